# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Holds, restores and runs that end, seen by the whole guest manager."""

import json
import pathlib
import uuid
from typing import Any
from unittest import mock

import fixtures
import libvirt

from nova_vhpc.agent.guests.guest import Hold
from nova_vhpc.agent.journal.record import VERSION, JournalError
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import restore_queue
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle.manager import (
    PATIENCE_S,
    ManagerTestCase,
)


class PauseTest(ManagerTestCase):
    def test_restored_shares_are_recorded_as_the_agents(self) -> None:
        guest = self.look()
        self.manager.set_shares('u', 20)
        self.manager.pause()
        self.drain()
        self.assert_put_back()
        self.assertEqual({20, 1024}, guest.event_history.written_shares)

    def test_period_and_quota_are_recorded_as_the_agents(self) -> None:
        guest = self.look()
        tune = model.CpuTune(period_us=30_000, quota_us=30_000)
        self.manager.write(guest, tune)
        self.drain()
        for name in (cputune.PERIOD, cputune.QUOTA):
            self.assertTrue(guest.event_history.wrote(name, 30_000))
        self.assertFalse(guest.event_history.wrote(cputune.PERIOD, 30_001))

    def test_metadata_copy_is_written_again_after_a_failed_restore(
        self,
    ) -> None:
        self.write(self.look())
        refuse = JournalError('read-only')
        with mock.patch.object(self.journal, 'remove', side_effect=refuse):
            self.manager.pause()
            self.drain()
        self.assertIsNone(self.domain.metadata_xml)
        self.manager.resume()
        self.write(self.look())
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.assertIsNotNone(self.domain.metadata_xml)


class LeavingTest(ManagerTestCase):
    def test_guest_missed_by_adoption_is_held_at_the_next_tick(self) -> None:
        """Adoption and tick missed each other: the next tick holds it."""
        guest = self.look()
        self.manager._context.permission.leaving = frozenset({'u'})
        self.manager.restore_before_migration(frozenset({'u'}))
        self.assertEqual('leaving', guest.hands_off)
        self.manager.restore_before_migration(frozenset())


class InvalidOperationTest(ManagerTestCase):
    """libvirt raises "invalid operation" for ended and running domains."""

    def no_cgroup(self) -> Any:
        return mock.patch.object(
            self.domain,
            'schedulerParametersFlags',
            side_effect=fake_libvirt.error(
                libvirt.VIR_ERR_OPERATION_INVALID,
                'cgroup CPU controller is not mounted',
            ),
        )

    def test_running_guest_is_kept_after_an_invalid_operation(self) -> None:
        guest = self.look()
        self.write(guest)
        with self.no_cgroup():
            self.reconcile()
            self.assertIn('not mounted', self.manager.refused['u'])
        self.assertIs(guest, self.manager.guests['u'])
        self.assertEqual(('u',), self.journal.uuids())
        self.reconcile()
        self.assertEqual({}, self.manager.refused)
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assert_put_back()

    def test_domain_is_refused_after_an_invalid_operation(self) -> None:
        with self.no_cgroup():
            self.reconcile()
        self.assertEqual({}, self.manager.guests)
        self.assertIn('not mounted', self.manager.refused['u'])
        self.reconcile()
        self.assertEqual({'u'}, self.manager.guests.keys())
        self.assertEqual({}, self.manager.refused)

    def test_guest_is_forgotten_if_its_run_has_ended(self) -> None:
        guest = self.look()
        self.write(guest)
        with self.no_cgroup():
            self.domain.id = -1
            self.reconcile()
        self.assertEqual({}, self.manager.guests)
        self.assertEqual((), self.journal.uuids())


class ConnectionLostTest(ManagerTestCase):
    """The connection is lost just after a call about an ended domain."""

    def setUp(self) -> None:
        super().setUp()
        self.manager = self.make(workers=1)
        self.guest = self.look()
        self.write(self.guest)
        self.manager.executor.submit('other', self.ask_for_one_that_is_gone)
        self.drain()
        self.manager.connection._conn = None

    def ask_for_one_that_is_gone(self) -> None:
        """Leave an error behind: the binding keeps one per thread."""
        conn = libvirt.open('test:///default')
        self.assertRaises(
            libvirt.libvirtError, conn.lookupByUUIDString, str(uuid.uuid4())
        )

    def test_lost_connection_does_not_mean_that_a_domain_has_ended(
        self,
    ) -> None:
        tried = self.manager.restore_one('u')
        self.drain()
        self.assertEqual(
            'no connection to qemu:///system', tried.result(PATIENCE_S)
        )
        self.manager.enqueue('u')
        self.drain()
        self.assertIs(self.guest, self.manager.guests['u'])
        self.assertEqual(('u',), self.journal.uuids())

    def test_stop_reports_a_guest_left_without_a_connection(self) -> None:
        self.assertFalse(self.manager.stop(0.3))
        self.assertEqual(('u',), self.journal.uuids())


class LeftByEarlierAgentTest(ManagerTestCase):
    """An earlier agent crashed; this one ends before it adopts the guest."""

    def setUp(self) -> None:
        super().setUp()
        self.runs = 0
        self.host = qemu_process.Processes
        self.useFixture(
            fixtures.MockPatchObject(
                self.host, 'find', lambda host, uuid, run=None: self.runs
            )
        )
        self.useFixture(
            fixtures.MockPatchObject(
                self.host, 'start_ticks', lambda host, pid: pid and 7
            )
        )
        self.runs = 42
        self.write(self.look())
        self.manager = self.make()
        self.manager.connection._conn = None

    def test_stop_reports_a_guest_left_by_an_earlier_agent(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.assertFalse(self.manager.stop(0.3))
        self.assertIn('VM vm (u): not restored in time', log.output)
        self.assertEqual(('u',), self.journal.uuids())

    def test_stop_reports_a_running_domain_with_a_torn_record(self) -> None:
        pathlib.Path(self.state, 'journal', 'u.json').write_text('{')
        self.assertFalse(self.manager.stop(0.3))

    def test_stop_ignores_a_record_of_a_stopped_domain(self) -> None:
        self.runs = 0
        self.assertTrue(self.manager.stop(0.3))

    def test_stop_ignores_a_record_of_an_earlier_run(self) -> None:
        with mock.patch.object(self.host, 'start_ticks', return_value=9):
            self.assertTrue(self.manager.stop(0.3))

    def test_stop_ignores_a_newer_agents_record(self) -> None:
        file = pathlib.Path(self.state, 'journal', 'u.json')
        file.write_text(json.dumps({'version': VERSION + 1}))
        self.assertTrue(self.manager.stop(0.3))

    def test_stop_of_a_dry_run_reports_nothing_left(self) -> None:
        self.manager = self.make(dry_run=True)
        self.assertTrue(self.manager.stop(0.3))


class RestartedTest(ManagerTestCase):
    """The domain was started again, and not reconciled yet."""

    def setUp(self) -> None:
        super().setUp()
        self.guest = self.look()
        self.manager.write(self.guest, model.CpuTune(8_000, 8_000, 2048))
        self.drain()
        self.domain.id += 1
        self.domain.values = dict(fake_libvirt.ORIGINAL)
        self.domain.metadata_xml = None
        self.domain.written.clear()

    def test_restore_of_the_old_run_keeps_the_new_guest(self) -> None:
        """The new run was adopted between pause and restore."""
        found = self.look()
        self.write(found)
        self.domain.written.clear()
        tried = self.manager._restore_queue.submit(self.guest, Hold.PAUSED)
        self.assertEqual(restore_queue.GONE, tried.result(PATIENCE_S))
        self.assertEqual([], self.domain.written)
        self.assertIs(found, self.manager.guests['u'])
        self.assertEqual(('u',), self.journal.uuids())

    def test_check_does_not_take_the_new_run_for_an_external_change(
        self,
    ) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.manager._policy.check(self.guest)
        self.assertNotIn('external change', log.output)
        self.assertEqual(frozenset(), self.guest.external)
        self.assertEqual([], self.domain.written)
