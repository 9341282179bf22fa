# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""No write without the journal, none through a closed gate."""

import pathlib
import tempfile
import types
from unittest import mock

import libvirt
from oslotest import base

from nova_vhpc.agent import context
from nova_vhpc.agent.actuators import libvirt_cputune, weights
from nova_vhpc.agent.external_changes import misdirected_writes
from nova_vhpc.agent.guests import guest, quarantine, write_permission
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cgroup_weight, cputune, executor
from nova_vhpc.agent.lifecycle import writer
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.external_changes import policy_case
from nova_vhpc.tests.unit.agent.guests import (
    test_guest,
    test_quarantine,
    test_registry,
)

WISH = model.CpuTune(5_000, 2_500)


class Link:
    """A connection that stands."""

    up = True

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    def get(self) -> None:
        pass

    def failed(self, error: Exception) -> None:
        self.failures.append(error)

    def runs(self, uuid: str, run: int) -> bool:
        return True


class WriterCase(base.BaseTestCase):
    """A writer, and one VM in a libvirt of memory."""

    def setUp(self) -> None:
        super().setUp()
        self.state = pathlib.Path(tempfile.mkdtemp())
        self.journal = store.Journal(str(self.state))
        self.journal.prepare()
        self.domain = policy_case.Domain()
        self.target = self.make()
        self.guests = test_registry.make()
        self.guests.add(self.target)
        self.permission = write_permission.WritePermission(dry_run=False)
        self.deadline = 60.0
        self.quarantine = quarantine.Quarantine(
            test_quarantine.OPTIONS, self.guests
        )
        self.executor = executor.DomainExecutor(
            1,
            lambda: self.deadline,
            self.quarantine.call_is_late,
            self.quarantine.calls_returned,
        )
        self.addCleanup(self.executor.close)
        self.connection = Link()
        self.enqueued: list[str] = []
        conf = types.SimpleNamespace(
            vhpc_agent=types.SimpleNamespace(cgroup_root='/sys/fs/cgroup')
        )
        processes = qemu_process.Processes('/nowhere', '/nowhere')
        self.writer = writer.Writer(
            context.HostContext(
                self.guests,
                self.permission,
                self.connection,
                self.executor,
                self.journal,
                processes,
            ),
            [libvirt_cputune.LibvirtCputuneActuator(conf)],
            weights.Weights(
                types.SimpleNamespace(window_weights='cgroup'),
                processes,
            ),
            misdirected_writes.MisdirectedWrites(self.connection, processes),
            self.quarantine,
            self.enqueued.append,
        )

    def make(self) -> guest.Guest:
        target = test_guest.make()
        target.domain = self.domain
        target.original = cputune.read(self.domain)
        target.set_expected(target.original)
        return target

    def write(self) -> dict[str, int]:
        self.writer.write(self.target, WISH, 2_500)
        self.assertTrue(self.executor.drain(60.0))
        return self.domain.values


class TestWriter(WriterCase):
    def test_journalled_and_marked_before_it_is_written(self) -> None:
        original = dict(self.domain.values)
        self.assertEqual(2_500, self.write()[cputune.QUOTA])
        record = self.journal.load('u')
        self.assertEqual(original, record.original.parameters)
        self.assertTrue(self.domain.has_metadata_copy)
        self.assertEqual(1, self.target.writes)
        self.assertEqual(2_500, self.target.in_force.quota_us)

    def test_windows_go_on_without_libvirt_where_the_file_is_proven(
        self,
    ) -> None:
        path = self.state / 'cpu.weight'
        path.write_text('7')
        self.target.weight_file = cgroup_weight.WeightFile(path)
        self.target.journalled = self.target.has_metadata_copy = True
        self.target.written = {cputune.SHARES: frozenset({9})}
        lost = fake_libvirt.refused('lost')
        with mock.patch.object(self.connection, 'get', side_effect=lost):
            self.assertRaises(
                libvirt.libvirtError, self.writer.set_shares, 'u', 9
            )
            self.assertEqual('7', path.read_text())
            self.target.weight_file.proven = True
            self.assertTrue(self.writer.set_shares('u', 9))
        self.assertEqual('9', path.read_text())

    def assert_nothing_is_written(self) -> None:
        self.assertEqual(50_000, self.write()[cputune.QUOTA])
        self.writer.set_shares('u', 7)
        self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.assertEqual((), self.journal.uuids())
        self.assertFalse(self.domain.has_metadata_copy)

    def test_without_its_mark_nothing_is_written(self) -> None:
        """Or it would go to another host with our values for its own."""
        refused = fake_libvirt.refused('busy')
        with mock.patch.object(
            self.domain, 'setMetadata', side_effect=refused
        ):
            self.assertEqual(50_000, self.write()[cputune.QUOTA])
            for _ in range(2):
                self.assertRaises(
                    libvirt.libvirtError, self.writer.set_shares, 'u', 7
                )
            self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.assertEqual(2_500, self.write()[cputune.QUOTA])
        self.assertTrue(self.domain.has_metadata_copy)

    def test_metadata_copy_is_put_with_each_new_record_only(self) -> None:
        self.write()
        for shares, is_new in ((7, True), (8, True), (7, False)):
            self.domain.has_metadata_copy = False
            self.writer.set_shares('u', shares)
            self.assertEqual(shares, self.domain.values[cputune.SHARES])
            self.assertEqual(is_new, self.domain.has_metadata_copy)

    def test_not_over_a_change_that_nobody_has_looked_at(self) -> None:
        """What stands in the journal must be what the VM had."""
        self.domain.values[cputune.QUOTA] = 20_000
        self.assertEqual(20_000, self.write()[cputune.QUOTA])
        self.assertFalse(self.writer.set_shares('u', 7))
        self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.assertEqual(['u', 'u'], self.enqueued)
        self.assertEqual((), self.journal.uuids())
        self.target.original = cputune.read(self.domain)
        self.assertEqual(2_500, self.write()[cputune.QUOTA])
        self.assertEqual(
            20_000, self.journal.load('u').original.parameters[cputune.QUOTA]
        )

    def test_in_a_dry_run(self) -> None:
        self.permission.dry_run = True
        self.assert_nothing_is_written()

    def test_while_paused(self) -> None:
        self.permission.paused = True
        self.assert_nothing_is_written()
        self.permission.paused = False
        self.assertEqual(2_500, self.write()[cputune.QUOTA])

    def test_at_the_end(self) -> None:
        self.permission.ending.set()
        self.assert_nothing_is_written()

    def test_to_a_vm_whose_lock_was_waited_for(self) -> None:
        """The gate closes while the writers wait for the VM's lock."""
        lock, gate_ = self.target.lock, self.permission

        class Lock:
            def acquire(self, timeout: float = -1) -> bool:
                gate_.ending.set()
                return lock.acquire(timeout=timeout)

            def release(self) -> None:
                lock.release()

            def __enter__(self) -> None:
                self.acquire()

            def __exit__(self, *args: object) -> None:
                self.release()

        self.target.lock = Lock()
        self.assertEqual(50_000, self.write()[cputune.QUOTA])
        self.assertTrue(gate_.ending.is_set())
        gate_.ending.clear()
        self.writer.set_shares('u', 7)
        self.assertTrue(gate_.ending.is_set())
        self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.assertEqual((), self.journal.uuids())

    def test_to_a_vm_that_is_leaving(self) -> None:
        self.target.holds.add(guest.Hold.LEAVING)
        self.assert_nothing_is_written()

    def test_to_a_vm_of_an_earlier_run(self) -> None:
        self.guests.add(self.make())
        self.assertEqual(50_000, self.write()[cputune.QUOTA])

    def test_nothing_is_written_without_a_journal(self) -> None:
        (self.state / 'journal').rmdir()
        (self.state / 'journal').write_text('in the way')
        self.assertEqual(50_000, self.write()[cputune.QUOTA])
        self.assertEqual(1, self.target.failures.count)
        self.assertFalse(self.domain.has_metadata_copy)

    def test_a_refusal_is_counted_and_the_domain_looked_at(self) -> None:
        def refuse(values: dict[str, int], flags: int) -> None:
            raise fake_libvirt.refused('no')

        self.domain.setSchedulerParametersFlags = refuse
        self.write()
        self.assertEqual(1, self.target.failures.count)
        self.assertTrue(self.target.uncertain)
        self.assertEqual(['u'], self.enqueued)
        self.assertEqual(1, len(self.connection.failures))

    def test_so_is_one_as_invalid_of_a_vm_that_runs(self) -> None:
        """Or it is tried again at each tick, for ever, and nobody is told."""
        for active, failures in ((False, 0), (True, 1)):
            self.refuse(libvirt.VIR_ERR_OPERATION_INVALID, active)
            self.write()
            self.assertEqual(failures, self.target.failures.count)

    def refuse(self, code: int, active: bool) -> None:
        def refuse(values: dict[str, int], flags: int) -> None:
            raise fake_libvirt.error(code)

        self.domain.setSchedulerParametersFlags = refuse
        self.domain.isActive = lambda: active

    def test_a_vm_that_ends_in_its_window_is_no_failure(self) -> None:
        for code in (
            libvirt.VIR_ERR_NO_DOMAIN,
            libvirt.VIR_ERR_OPERATION_INVALID,
        ):
            self.refuse(code, active=False)
            self.assertFalse(self.writer.set_shares('u', 7))
        self.assertEqual(['u', 'u'], self.enqueued)

    def test_what_is_invalid_for_a_vm_that_runs_is_one(self) -> None:
        self.refuse(libvirt.VIR_ERR_OPERATION_INVALID, active=True)
        self.assertRaises(libvirt.libvirtError, self.writer.set_shares, 'u', 7)

    def test_shares_of_the_tick_are_known_before_they_are_in_force(
        self,
    ) -> None:
        known: list[set[int]] = []
        write = self.domain.setSchedulerParametersFlags

        def note(values: dict[str, int], flags: int) -> None:
            known.append(set(self.target.event_history.written_shares))
            write(values, flags)

        self.domain.setSchedulerParametersFlags = note
        self.writer.write(self.target, model.CpuTune(shares=7))
        self.assertTrue(self.executor.drain(60.0))
        self.assertEqual([{7}], known)
