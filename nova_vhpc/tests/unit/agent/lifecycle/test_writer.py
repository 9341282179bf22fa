# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""No write without journal, metadata copy and write permission."""

import os
import pathlib
import tempfile
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import libvirt
from oslotest import base

from nova_vhpc.agent import context
from nova_vhpc.agent.actuators import libvirt_cputune, weights
from nova_vhpc.agent.external_changes import misdirected_writes
from nova_vhpc.agent.guests import quarantine, registry
from nova_vhpc.agent.guests.guest import Guest, Hold
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

FORBIDDEN: tuple[tuple[Callable[[Any], None], Callable[[Any], None]], ...] = (
    (
        lambda test: setattr(test.permission, 'dry_run', True),
        lambda test: setattr(test.permission, 'dry_run', False),
    ),
    (
        lambda test: setattr(test.permission, 'paused', True),
        lambda test: setattr(test.permission, 'paused', False),
    ),
    (
        lambda test: test.permission.ending.set(),
        lambda test: test.permission.ending.clear(),
    ),
    (
        lambda test: test.guest.holds.add(Hold.LEAVING),
        lambda test: test.guest.holds.clear(),
    ),
)
"""What forbids to write, and what ends that, given the test."""


class Link:
    """A connection that is up."""

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
    """A writer, and one guest in an in-memory libvirt."""

    def setUp(self) -> None:
        super().setUp()
        self.state = pathlib.Path(tempfile.mkdtemp())
        self.journal = store.Journal(str(self.state))
        self.journal.prepare()
        self.domain = policy_case.Domain()
        self.guest = self.make()
        self.guests = test_registry.make()
        self.guests.add(self.guest)
        self.permission = registry.WritePermission(dry_run=False)
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
        options = types.SimpleNamespace(
            cgroup_root='/sys/fs/cgroup', window_weights='cgroup'
        )
        conf = types.SimpleNamespace(vhpc_agent=options)
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
            libvirt_cputune.LibvirtCputuneActuator(conf),
            weights.Weights(
                options,
                processes,
            ),
            misdirected_writes.MisdirectedWrites(self.connection, processes),
            self.quarantine,
            self.enqueued.append,
        )

    def make(self) -> Guest:
        guest = test_guest.make()
        guest.domain = self.domain
        guest.original = cputune.read(self.domain)
        guest.set_expected(guest.original)
        return guest

    def write(self) -> dict[str, int]:
        self.writer.write(self.guest, WISH)
        self.assertTrue(self.executor.drain(60.0))
        return self.domain.values


class WriterTest(WriterCase):
    def test_journal_and_metadata_are_written_first(self) -> None:
        original = dict(self.domain.values)
        self.assertEqual(2_500, self.write()[cputune.QUOTA])
        record = self.journal.load('u')
        self.assertEqual(original, record.original.parameters)
        self.assertTrue(self.domain.has_metadata_copy)
        self.assertEqual(1, self.guest.writes)
        self.assertEqual(2_500, self.guest.in_force.quota_us)

    def test_window_writes_the_file_while_libvirt_hangs(self) -> None:
        path = self.state / 'cpu.weight'
        path.write_text('7')
        self.guest.weight_file = cgroup_weight.WeightFile(path)
        self.guest.journalled = self.guest.has_metadata_copy = True
        self.guest.written = {cputune.SHARES: frozenset({9})}
        lost = fake_libvirt.refused('lost')
        with mock.patch.object(self.connection, 'get', side_effect=lost):
            self.assertRaises(
                libvirt.libvirtError, self.writer.set_shares, 'u', 9
            )
            self.assertEqual('7', path.read_text())
            self.guest.weight_file.proven = True
            self.assertTrue(self.writer.set_shares('u', 9))
        self.assertEqual('9', path.read_text())

    def test_nothing_is_written_without_permission(self) -> None:
        for begin, end in FORBIDDEN:
            begin(self)
            self.assertEqual(50_000, self.write()[cputune.QUOTA])
            self.writer.set_shares('u', 7)
            self.assertEqual(1024, self.domain.values[cputune.SHARES])
            self.assertEqual((), self.journal.uuids())
            self.assertFalse(self.domain.has_metadata_copy)
            end(self)
        self.assertEqual(2_500, self.write()[cputune.QUOTA])

    def test_nothing_is_written_without_the_metadata_copy(self) -> None:
        """Otherwise a migration would take agent values for original ones."""
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

    def test_unseen_change_is_not_overwritten(self) -> None:
        """The journal must hold the guest's original settings."""
        self.domain.values[cputune.QUOTA] = 20_000
        self.assertEqual(20_000, self.write()[cputune.QUOTA])
        self.assertFalse(self.writer.set_shares('u', 7))
        self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.assertEqual(['u', 'u'], self.enqueued)
        self.assertEqual((), self.journal.uuids())
        self.guest.original = cputune.read(self.domain)
        self.assertEqual(2_500, self.write()[cputune.QUOTA])
        self.assertEqual(
            20_000, self.journal.load('u').original.parameters[cputune.QUOTA]
        )

    def test_nothing_is_written_if_permission_ends_during_the_wait(
        self,
    ) -> None:
        """The permission ends while writers wait for the guest's lock."""
        lock, gate_ = self.guest.lock, self.permission

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

        self.guest.lock = Lock()
        self.assertEqual(50_000, self.write()[cputune.QUOTA])
        self.assertTrue(gate_.ending.is_set())
        gate_.ending.clear()
        self.writer.set_shares('u', 7)
        self.assertTrue(gate_.ending.is_set())
        self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.assertEqual((), self.journal.uuids())

    def test_guest_of_an_earlier_run_is_not_written(self) -> None:
        self.guests.add(self.make())
        self.assertEqual(50_000, self.write()[cputune.QUOTA])

    def test_nothing_is_written_without_the_journal(self) -> None:
        (self.state / 'journal').rmdir()
        (self.state / 'journal').write_text('in the way')
        self.assertEqual(50_000, self.write()[cputune.QUOTA])
        self.assertEqual(1, self.guest.failures.count)
        self.assertFalse(self.domain.has_metadata_copy)

    def test_refusal_is_counted_and_enqueues_the_guest(self) -> None:
        def refuse(values: dict[str, int], flags: int) -> None:
            raise fake_libvirt.refused('no')

        self.domain.setSchedulerParametersFlags = refuse
        self.write()
        self.assertEqual(1, self.guest.failures.count)
        self.assertTrue(self.guest.uncertain)
        self.assertEqual(['u'], self.enqueued)
        self.assertEqual(1, len(self.connection.failures))

    def test_invalid_operation_of_a_running_guest_counts_as_failure(
        self,
    ) -> None:
        """Otherwise each tick would retry it, without a log line."""
        for active, failures in ((False, 0), (True, 1)):
            self.refuse(libvirt.VIR_ERR_OPERATION_INVALID, active)
            self.write()
            self.assertEqual(failures, self.guest.failures.count)

    def refuse(self, code: int, active: bool) -> None:
        def refuse(values: dict[str, int], flags: int) -> None:
            raise fake_libvirt.error(code)

        self.domain.setSchedulerParametersFlags = refuse
        self.domain.isActive = lambda: active

    def test_guest_that_ends_in_its_window_is_no_failure(self) -> None:
        for code in (
            libvirt.VIR_ERR_NO_DOMAIN,
            libvirt.VIR_ERR_OPERATION_INVALID,
        ):
            self.refuse(code, active=False)
            self.assertFalse(self.writer.set_shares('u', 7))
        self.assertEqual(['u', 'u'], self.enqueued)

    def test_window_of_a_running_guest_raises_on_invalid_operation(
        self,
    ) -> None:
        self.refuse(libvirt.VIR_ERR_OPERATION_INVALID, active=True)
        self.assertRaises(libvirt.libvirtError, self.writer.set_shares, 'u', 7)

    def test_shares_are_recorded_before_they_are_in_force(self) -> None:
        known: list[set[int]] = []
        write = self.domain.setSchedulerParametersFlags

        def note(values: dict[str, int], flags: int) -> None:
            known.append(set(self.guest.event_history.written_shares))
            write(values, flags)

        self.domain.setSchedulerParametersFlags = note
        self.writer.write(self.guest, model.CpuTune(shares=7))
        self.assertTrue(self.executor.drain(60.0))
        self.assertEqual([{7}], known)


class PlaceTest(WriterCase):
    """Gang windows place the vCPUs by the affinity of their threads."""

    def setUp(self) -> None:
        super().setUp()
        self.guest.tids = (77, 78)
        self.guest.journalled = True
        self.affinity: dict[int, set[int]] = {}
        patch = mock.patch.object(
            os, 'sched_setaffinity', self.affinity.__setitem__
        )
        patch.start()
        self.addCleanup(patch.stop)

    def test_each_vcpu_runs_on_its_cpu(self) -> None:
        self.assertTrue(self.writer.place('u', (1, 0)))
        self.assertEqual({77: {1}, 78: {0}}, self.affinity)

    def test_vcpus_without_cpus_run_where_their_pins_allow(self) -> None:
        self.assertTrue(self.writer.place('u', ()))
        pins = self.guest.expected.vcpupins
        self.assertEqual({77: pins[0], 78: pins[1]}, self.affinity)

    def test_libvirt_is_not_called(self) -> None:
        with mock.patch.object(self.domain, 'pinVcpuFlags') as pin:
            self.writer.place('u', (1, 0))
        pin.assert_not_called()

    def test_nothing_is_placed_without_permission(self) -> None:
        # A killed agent would leave a guest without a record placed, and the
        # next one would not know it.
        unrecorded = (
            lambda test: setattr(test.guest, 'journalled', False),
            lambda test: setattr(test.guest, 'journalled', True),
        )
        for begin, end in (*FORBIDDEN, unrecorded):
            begin(self)
            self.assertFalse(self.writer.place('u', (1, 0)))
            self.assertFalse(self.writer.place('u', ()))
            self.assertEqual({}, self.affinity)
            end(self)

    def test_guest_that_is_gone_is_not_placed(self) -> None:
        self.assertFalse(self.writer.place('other', (1, 0)))
        self.assertEqual({}, self.affinity)

    def test_guest_with_other_vcpus_now_is_not_placed(self) -> None:
        self.guest.tids = (77, 78, 79)
        self.assertFalse(self.writer.place('u', (1, 0)))
        self.assertEqual({}, self.affinity)
