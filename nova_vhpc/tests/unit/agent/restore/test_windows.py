# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What gang windows leave beside libvirt's values is restored, too.

That is the affinity of vCPU threads and idle control groups. A killed agent
leaves both, and its record says what it may have written.
"""

import os
import pathlib
import tempfile
from collections.abc import Sequence
from unittest import mock

from nova_vhpc.agent.actuators import affinity
from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import restore_guest
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.actuators import test_affinity
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

IDLE = {cputune.SHARES: frozenset({0, 40_960})}
NOT_IDLE = {cputune.SHARES: frozenset({20, 40_960})}
ORIGINAL = cputune.Cputune(
    dict(fake_libvirt.ORIGINAL), (frozenset({0, 1}),) * 2, frozenset({0, 1}), 2
)


class Processes(qemu_process.Processes):
    """Knows one QEMU process, its vCPU threads and its weight file."""

    def __init__(
        self, pid: int, tids: tuple[int, ...], weight: pathlib.Path
    ) -> None:
        super().__init__('/nowhere', '/nowhere')
        self.pid, self.tids, self.weight = pid, tids, weight

    def find(self, uuid: str, domain_id: int | None = None) -> int:
        return self.pid

    def vcpu_threads(self, pid: int, vcpus: Sequence[int]) -> tuple[int, ...]:
        return self.tids[: len(vcpus)]

    def weight_file(self, pid: int, tid: int) -> pathlib.Path | None:
        return self.weight


class WindowsOfKilledAgentTest(test_affinity.AffinityTestCase):
    """An agent was killed within a window of an idle, placed guest."""

    def setUp(self) -> None:
        super().setUp()
        self.domain = fake_libvirt.Domain()
        self.journal = store.Journal(tempfile.mkdtemp())
        self.weight = pathlib.Path(tempfile.mkdtemp(), 'cpu.weight')
        self.idle = self.weight.with_name('cpu.idle')
        self.weight.write_text('0\n')
        self.idle.write_text('1\n')
        self.domain.values[cputune.SHARES] = 0
        affinity.place(self.tids, (self.first, self.first))
        self.restorer = recovery.Restorer(
            self.journal, Processes(self.process.pid, self.tids, self.weight)
        )

    def record(self, written: written_values.WrittenValues) -> JournalRecord:
        here = qemu_process.Identity('', 0, 0, self.domain.id)
        return JournalRecord('u', 'vm', here, ORIGINAL, written=written)

    def recover(self, written: written_values.WrittenValues) -> str:
        """Recover from the record of a killed agent; return cpu.idle."""
        self.journal.save(self.record(written))
        self.restorer.recover(self.domain)
        return self.idle.read_text().strip()

    def test_group_is_not_idle_before_libvirt_writes_the_weight(self) -> None:
        # The kernel refuses weights of idle groups.
        idle: list[str] = []
        write = self.domain.setSchedulerParametersFlags

        def note(values: dict[str, int], flags: int) -> None:
            idle.append(self.idle.read_text())
            write(values, flags)

        self.domain.setSchedulerParametersFlags = note
        self.assertEqual('0', self.recover(IDLE))
        self.assertIn('0', idle)
        self.assertNotIn('1\n', idle)
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)

    def test_vcpus_run_where_pins_allow(self) -> None:
        self.recover(IDLE)
        pins = [
            {cpu for cpu, allowed in enumerate(pin) if allowed}
            for pin in self.domain.pins
        ]
        self.assertEqual(
            [pin & set(test_affinity.CPUS) for pin in pins], self.in_force()
        )

    def test_metadata_copy_serves_without_the_record(self) -> None:
        store.put_metadata(self.domain, self.record(IDLE))
        self.restorer.recover(self.domain)
        self.assertEqual('0', self.idle.read_text())

    def test_idle_that_somebody_else_set_stays(self) -> None:
        self.assertEqual('1', self.recover(NOT_IDLE))

    def test_other_values_are_restored_if_affinity_is_refused(self) -> None:
        refused = PermissionError(1, 'no')
        with (
            mock.patch.object(os, 'sched_setaffinity', side_effect=refused),
            self.assertLogs(recovery.LOG, 'WARNING') as logs,
        ):
            self.recover(IDLE)
        self.assertIn('vCPUs stay on the CPUs', logs.output[0])
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)


class WindowsOfThisAgentTest(manager_case.ManagerTestCase):
    """A guest is restored while it is placed and idle."""

    def setUp(self) -> None:
        super().setUp()
        self.guest = self.look()
        self.write(self.guest)
        self.guest.tids = (77, 78)
        self.weight = pathlib.Path(self.state, 'cpu.weight')
        self.idle = self.weight.with_name('cpu.idle')
        self.weight.write_text('0\n')
        self.idle.write_text('1')
        self.guest.written = {**self.guest.written, **IDLE}
        processes = Processes(76, self.guest.tids, self.weight)
        for name in ('find', 'vcpu_threads', 'weight_file'):
            patch = mock.patch.object(
                qemu_process.Processes, name, getattr(processes, name)
            )
            patch.start()
            self.addCleanup(patch.stop)
        self.affinity: dict[int, frozenset[int]] = {}

    def restore(self, refused: OSError | None = None) -> None:
        def set_affinity(tid: int, cpus: frozenset[int]) -> None:
            if refused is not None:
                raise refused
            self.affinity[tid] = frozenset(cpus)

        with mock.patch.object(os, 'sched_setaffinity', set_affinity):
            self.manager.pause()
            self.drain()

    def test_vcpus_run_where_pins_allow_and_the_group_is_not_idle(
        self,
    ) -> None:
        pins = self.guest.expected.vcpupins
        self.restore()
        self.assert_put_back()
        self.assertEqual({77: pins[0], 78: pins[1]}, self.affinity)
        self.assertEqual('0', self.idle.read_text())

    def test_idle_that_somebody_else_set_stays(self) -> None:
        self.guest.written = {**self.guest.written, **NOT_IDLE}
        self.restore()
        self.assertEqual('1', self.idle.read_text())

    def test_other_values_are_restored_if_affinity_is_refused(self) -> None:
        with self.assertLogs(restore_guest.LOG, 'WARNING') as logs:
            self.restore(refused=OSError(22, 'no such CPU'))
        self.assertIn('vCPUs stay on the CPUs', logs.output[0])
        self.assert_put_back()

    def test_window_does_not_place_a_guest_after_its_restore(self) -> None:
        self.restore()
        self.affinity.clear()
        with mock.patch.object(
            os, 'sched_setaffinity', self.affinity.__setitem__
        ):
            self.assertFalse(self.manager.place('u', (0, 1)))
        self.assertEqual({}, self.affinity)
