# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The domain restarts while a call waits for its lock."""

import pathlib
import tempfile
import threading
from typing import Any
from unittest import mock

import libvirt

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.agent.lifecycle import writer
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

TUNE = model.CpuTune(8_000, 8_000, vcpu_pins=(frozenset({0}), frozenset({1})))
OWN = '<cputune><period>50000</period><quota>20000</quota></cputune>'
HELD_S = 0.3


class MisdirectedWriteTest(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guest = self.look()
        self.manager.set_shares('u', 30)
        self.original = dict(fake_libvirt.ORIGINAL)
        self.metadata_xml: str | None = None
        self.domain.refuse = self.restart

    def restart(self) -> None:
        """Start the domain again while the first call waits."""
        self.domain.refuse = lambda: None
        self.domain.id += 1
        self.domain.values = dict(self.original)
        self.domain.pins = [(True, True)] * 2
        self.domain.metadata_xml = self.metadata_xml

    def assert_as_it_began(self) -> None:
        self.drain()
        self.assertEqual(self.original, self.domain.values)
        self.assertEqual([(True, True)] * 2, self.domain.pins)
        self.assertIsNone(self.domain.metadata_xml)
        found = self.look()
        self.assertIsNot(self.guest, found)
        self.assertEqual(self.original, found.original.parameters)
        self.assertEqual(frozenset(), found.external)
        self.assertEqual((), self.journal.uuids())

    def test_partly_refused_write_to_new_run_is_reverted(self) -> None:
        """The actuator restores the other part in the new run, too."""
        self.write_known(model.CpuTune(9_000, 9_000))
        self.domain.refuse = self.ends
        self.manager.write(self.guest, model.CpuTune(9_000, 9_000))
        self.assert_as_it_began()

    def write_known(self, tune: model.CpuTune) -> None:
        """Have a tune journalled, so that only its values are written."""
        self.domain.refuse = lambda: None
        for one in (tune, model.CpuTune(7_000, 7_000)):
            self.manager.write(self.guest, one)
            self.drain()

    def ends(self) -> None:
        self.domain.refuse = self.restart
        raise fake_libvirt.error(
            libvirt.VIR_ERR_OPERATION_INVALID, 'domain is not running'
        )

    def test_write_to_new_run_is_reverted_if_the_actuator_fails_then(
        self,
    ) -> None:
        write = self.actuator.write

        def fail_after_write(*args: Any) -> None:
            write(*args)
            raise OSError('no daemon')

        self.actuator.write = fail_after_write
        self.manager.write(self.guest, TUNE)
        self.assert_as_it_began()

    def pause_with_restart(self) -> None:
        """Pause after one window and one tick have written."""
        self.domain.refuse = lambda: None
        self.manager.write(self.guest, TUNE)
        self.drain()
        self.domain.extra = OWN
        self.original |= {cputune.PERIOD: 50_000, cputune.QUOTA: 20_000}
        self.domain.refuse = self.restart
        self.manager.pause()

    def test_original_is_not_restored_if_the_next_call_is_refused(
        self,
    ) -> None:
        restart = self.restart

        def fail() -> None:
            self.domain.refuse = lambda: None
            raise fake_libvirt.refused('busy')

        def restart_and_fail() -> None:
            restart()
            self.domain.refuse = fail

        self.restart = restart_and_fail
        self.pause_with_restart()
        self.assert_as_it_began()

    def written(self) -> None:
        """Have a tick write; the next run gets other settings."""
        self.domain.refuse = lambda: None
        self.manager.write(self.guest, TUNE)
        self.drain()
        self.domain.extra = OWN
        self.original |= {cputune.PERIOD: 50_000, cputune.QUOTA: 20_000}

    def test_hand_back_of_old_run_is_reverted_in_new_run(self) -> None:
        self.written()
        self.domain.values[cputune.QUOTA] = 4_000
        restore = cputune_restore.restore

        def late(*args: Any) -> tuple[str, ...]:
            self.restart()
            return restore(*args)

        with mock.patch.object(cputune_restore, 'restore', late):
            self.manager.enqueue('u')
            self.drain()
        self.assert_as_it_began()

    def test_external_value_of_old_run_is_reverted_in_new_run(self) -> None:
        for name, value in ((cputune.QUOTA, 4_000), (cputune.SHARES, 77)):
            with self.subTest(name):
                self.written()
                if name == cputune.SHARES:
                    self.manager.set_shares('u', 30)
                    self.guest.event_history.external_shares = value
                else:
                    self.guest.event_history.external = {name: value}
                self.domain.refuse = self.restart
                self.manager.enqueue('u')
                self.assert_as_it_began()
                self.guest = self.look()

    def test_external_bandwidth_of_old_run_is_reverted_in_new_run(
        self,
    ) -> None:
        """One call writes period and quota."""
        self.written()
        self.domain.values[cputune.PERIOD] = 77_000
        self.manager.enqueue('u')
        self.drain()
        # The restore has replaced an external quota that was just set.
        self.guest.event_history.external = {cputune.QUOTA: 33_000}
        self.domain.refuse = self.restart
        self.manager.enqueue('u')
        self.assert_as_it_began()

    def test_metadata_copy_of_old_run_is_removed_from_new_run(self) -> None:
        """Otherwise the new run would be taken for a floating guest."""
        self.written()
        put = store.put_metadata

        def late(domain: Any, record: JournalRecord) -> None:
            if record.restored:
                self.restart()
                self.domain.pins = [(True, False), (False, True)]
            put(domain, record)

        with mock.patch.object(store, 'put_metadata', late):
            self.manager.restore_before_migration(frozenset({'u'}))
            self.drain()
        self.assertIsNone(self.domain.metadata_xml)
        self.assertIsNot(self.guest, self.look())
        self.assertEqual([(True, False), (False, True)], self.domain.pins)
        self.assertEqual((), self.journal.uuids())

    def test_copy_for_plugged_vcpus_is_removed_from_new_run(self) -> None:
        """The record that it repeats is of the run that has ended."""
        self.written()
        put = store.put_metadata

        def late(domain: Any, record: JournalRecord) -> None:
            self.restart()
            put(domain, record)

        self.domain.pins.append((True, True))
        with mock.patch.object(store, 'put_metadata', late):
            self.manager.enqueue('u')
            self.drain()
        self.assertIsNone(self.domain.metadata_xml)
        self.assertIsNot(self.guest, self.look())
        self.assertEqual((), self.journal.uuids())

    def test_failed_revert_is_repeated_by_adoption(self) -> None:
        """The first revert had no effect."""
        self.write_known(TUNE)
        self.domain.refuse = self.restart
        restore = cputune_restore.restore
        tries = iter((('vcpu_period is 8000',), None))
        with mock.patch.object(
            cputune_restore,
            'restore',
            lambda *all_: next(tries) or restore(*all_),
        ):
            self.manager.write(self.guest, TUNE)
            self.drain()
        self.assertIsNone(next(tries, None))
        self.assert_as_it_began()

    def test_run_with_metadata_copy_is_restored_from_it(self) -> None:
        """The new run was started from a managed save."""
        self.metadata_xml = self.domain.metadata_xml
        self.original[cputune.SHARES] = 30
        self.assertFalse(self.manager.set_shares('u', 20))
        self.original = dict(fake_libvirt.ORIGINAL)
        self.assert_as_it_began()

    def test_domain_that_has_ended_is_forgotten(self) -> None:
        self.domain.refuse = lambda: setattr(self.domain, 'id', -1)
        self.assertFalse(self.manager.set_shares('u', 20))
        self.drain()
        self.assertEqual({}, self.manager.guests)

    def look_meanwhile(self, uuid: str, run: int) -> bool:
        """Have the new run reconciled before the write is reverted."""
        if self.domain.id == run:
            return True
        self.manager.enqueue('u')
        self.manager.executor.drain(HELD_S)
        return False

    def test_adoption_of_new_run_waits_for_the_revert(self) -> None:
        with mock.patch.object(
            self.manager.connection, 'runs', self.look_meanwhile
        ):
            self.assertFalse(self.manager.set_shares('u', 20))
            self.drain()
        self.assert_as_it_began()

    def test_record_is_kept_until_the_write_is_reverted(self) -> None:
        """The record says which values the new run may have."""
        self.domain.refuse = self.ends_and_is_found_gone
        self.assertFalse(self.manager.set_shares('u', 20))
        self.assertIn('u', self.kept)
        self.assert_as_it_began()

    def ends_and_is_found_gone(self) -> None:
        self.domain.id = -1
        self.manager.enqueue('u')
        self.manager.executor.drain(HELD_S)
        self.kept = self.journal.uuids()
        self.domain.id = self.guest.domain_id
        self.restart()

    def test_window_that_waited_does_not_write_to_new_run(self) -> None:
        self.domain.refuse = lambda: None
        written: list[bool] = []
        late = threading.Thread(
            target=lambda: written.append(self.manager.set_shares('u', 20))
        )
        patience = mock.patch.object(
            writer, 'LOCK_SECONDS', manager_case.PATIENCE_S
        )
        with patience, self.guest.lock:
            late.start()
            self.restart()
            self.manager.enqueue('u')
            self.manager.executor.drain(0.02)
            self.assertTrue(late.is_alive())
        late.join()
        self.assertEqual([False], written)
        self.assert_as_it_began()

    def test_lock_free_window_does_not_find_the_new_file(self) -> None:
        path = pathlib.Path(tempfile.mkdtemp()) / 'cpu.weight'
        self.guest.weight_file = cgroup_weight.WeightFile(path)
        self.guest.weight_file.proven = True
        self.guest.lock_free_weights = frozenset({20})
        entered, go_on = threading.Event(), threading.Event()
        write_file = weights.Weights.write_file

        def slowly(own: weights.Weights, guest: Guest, shares: int) -> bool:
            entered.set()
            go_on.wait(HELD_S)
            return write_file(own, guest, shares)

        with (
            mock.patch.object(weights.Weights, 'write_file', slowly),
            mock.patch.object(weights, '_find') as find,
        ):
            window = threading.Thread(
                target=self.manager.set_shares, args=('u', 20)
            )
            window.start()
            self.assertTrue(entered.wait(manager_case.PATIENCE_S))
            self.restart()
            with self.guest.lock:
                self.manager._writer._misdirected.revert(self.guest)
            go_on.set()
            window.join()
        find.assert_not_called()
        self.assertEqual('20', path.read_text())
        self.assertEqual(frozenset(), self.guest.lock_free_weights)
        self.assert_as_it_began()
