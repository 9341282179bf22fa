# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Stopping restores all guests, as far as possible in a few seconds."""

import threading
import time
from unittest import mock

import fixtures
import libvirt

from nova_vhpc.agent.guests.guest import Hold
from nova_vhpc.agent.journal.record import JournalRecord, Unreadable
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import manager, restore_queue
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

PATIENCE_S = manager_case.PATIENCE_S
WISH = manager_case.TUNE


class StopCase(manager_case.ManagerTestCase):
    def stop_refusing(self, times: int) -> None:
        """Stop while libvirt refuses the first writes; all is put back."""
        refusals = iter(range(times))

        def refuse() -> None:
            if next(refusals, None) is not None:
                self.refuse()

        self.domain.refuse = refuse
        with mock.patch.object(manager, 'FIRST_RETRY_S', 0.001):
            self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assert_put_back()


class StopTest(StopCase):
    def test_guest_whose_first_record_is_being_written_is_restored(
        self,
    ) -> None:
        guest = self.look()
        inside, go = threading.Event(), threading.Event()
        save = self.journal.save

        def slow(record: JournalRecord) -> None:
            inside.set()
            go.wait(PATIENCE_S)
            save(record)

        self.journal.save = slow
        self.manager.write(guest, WISH)
        self.assertTrue(inside.wait(PATIENCE_S))
        stopped: list[bool] = []
        stop = threading.Thread(
            target=lambda: stopped.append(self.manager.stop(PATIENCE_S))
        )
        stop.start()
        while Hold.STOPPING not in guest.holds and stop.is_alive():
            time.sleep(0.001)
        go.set()
        stop.join()
        self.assertEqual([True], stopped)
        self.assert_put_back()

    def test_refused_restore_is_retried(self) -> None:
        self.write(self.look())
        self.stop_refusing(4)

    def test_guest_is_restored_over_a_new_connection(self) -> None:
        """No guest was reconciled over the new connection yet."""
        guest = self.look()
        self.write(guest)
        old = mock.Mock()
        for name in dir(self.domain):
            if not name.startswith('_'):
                getattr(old, name).side_effect = fake_libvirt.error(
                    libvirt.VIR_ERR_INTERNAL_ERROR, 'client socket is closed'
                )
        guest.domain = old
        with mock.patch.object(manager, 'FIRST_RETRY_S', 0.001):
            self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assert_put_back()

    def test_external_shares_replaced_by_a_window_are_restored(self) -> None:
        guest = self.look()
        self.manager.set_shares('u', 20)
        guest.event_history.external_shares = 333
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assertEqual(333, self.domain.values[cputune.SHARES])

    def test_external_change_is_overridden_with_the_option(self) -> None:
        self.manager = self.make(foreign_changes='override')
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)

    def test_guest_that_is_not_restored_is_reported(self) -> None:
        self.write(self.look())
        self.domain.refuse = self.refuse
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.assertFalse(self.manager.stop(0.3))
        self.assertEqual(('u',), self.journal.uuids())
        self.assertIn('VM vm (u): not restored in time', log.output)

    def test_guest_that_ends_meanwhile_is_not_reported(self) -> None:
        """As all domains do when their host shuts down."""
        self.write(self.look())

        def end() -> None:
            self.domain.id = -1
            raise fake_libvirt.error(
                libvirt.VIR_ERR_OPERATION_INVALID, 'domain is not running'
            )

        self.domain.refuse = end
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assertEqual((), self.journal.uuids())

    def test_guest_that_hangs_delays_no_other(self) -> None:
        """Even with one thread, and long before ``call_deadline``."""
        other = fake_libvirt.Domain('other')
        self.manager = self.make(workers=1, call_deadline=PATIENCE_S)
        self.manager.connection.get().domains['other'] = other
        self.write(self.look())
        self.manager.enqueue('other')
        self.drain()
        self.write(self.manager.guests['other'])
        # The one that hangs comes first.
        self.assertEqual(['u', 'other'], list(self.manager.guests))
        go = threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(go.wait(PATIENCE_S))
        other.refuse = go.set
        with mock.patch.object(manager, 'STOP_DEADLINE_S', 0.1):
            self.assertTrue(self.manager.stop(PATIENCE_S / 2))
        self.assertEqual(fake_libvirt.ORIGINAL, other.values)
        self.assert_put_back()

    def test_other_guests_are_retried_while_one_hangs(self) -> None:
        other = fake_libvirt.Domain('other')
        self.manager.connection.get().domains['other'] = other
        self.write(self.look())
        self.manager.enqueue('other')
        self.drain()
        self.write(self.manager.guests['other'])
        go = threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(go.wait(PATIENCE_S))
        refusals = iter(range(2))

        def refuse() -> None:
            if next(refusals, None) is not None:
                self.refuse()
            go.set()

        other.refuse = refuse
        with mock.patch.object(manager, 'FIRST_RETRY_S', 0.001):
            self.assertTrue(self.manager.stop(PATIENCE_S / 2))
        self.assertEqual(fake_libvirt.ORIGINAL, other.values)
        self.assert_put_back()

    def test_attempt_that_will_not_run_is_finished(self) -> None:
        hung = threading.Event()
        self.addCleanup(hung.set)
        guest = self.look()
        self.write(guest)
        self.domain.refuse = lambda: hung.wait(PATIENCE_S)
        tried = self.manager.restore_one('u')
        self.assertIsNotNone(tried)
        self.assertFalse(self.manager.stop(0.3))
        self.assertEqual(restore_queue.ENDING, tried.result(timeout=0))


class StopBeforeRecoveryTest(StopCase):
    """The agent stops before it has looked at what a killed one has left."""

    def setUp(self) -> None:
        super().setUp()
        self.write(self.look())
        self.assertNotEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.manager = self.make()

    def test_domain_with_a_record_is_restored(self) -> None:
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assert_put_back()

    def test_domain_is_restored_from_its_copy(self) -> None:
        self.journal.remove('u')
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assert_put_back()

    def test_libvirt_is_waited_for(self) -> None:
        connection = self.manager.connection
        link, connection._conn = connection.get(), None
        timer = threading.Timer(0.3, setattr, (connection, '_conn', link))
        timer.start()
        self.addCleanup(timer.cancel)
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assert_put_back()

    def test_refused_recovery_is_retried(self) -> None:
        self.stop_refusing(3)

    def test_domain_that_arrives_is_restored_when_it_is_here(self) -> None:
        self.domain.comes = True
        timer = threading.Timer(0.3, setattr, (self.domain, 'comes', False))
        timer.start()
        self.addCleanup(timer.cancel)
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assert_put_back()

    def test_domain_without_record_that_is_left_is_reported(self) -> None:
        self.journal.remove('u')
        self.domain.comes = True
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.assertFalse(self.manager.stop(0.3))
        self.assertIn('VM vm (u): not restored in time', log.output)

    def test_unreadable_journal_says_nothing_of_other_domains(self) -> None:
        self.manager.stop(PATIENCE_S)
        self.domain.written.clear()
        self.manager = self.make()
        self.journal.load = mock.Mock(side_effect=Unreadable('EMFILE'))
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assertEqual([], self.domain.written)

    def test_dry_run_writes_nothing(self) -> None:
        left = dict(self.domain.values)
        self.manager = self.make(dry_run=True)
        self.assertTrue(self.manager.stop(PATIENCE_S))
        self.assertEqual(left, self.domain.values)

    def test_libvirt_that_is_away_is_waited_for_only_at_first(self) -> None:
        self.manager.stop(PATIENCE_S)
        self.manager = self.make()
        self.reconcile()
        self.manager.connection._conn = None
        self.assertTrue(self.manager.stop(PATIENCE_S))
