# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A failed restore is retried until it succeeds or the guest is gone."""

import threading
from collections.abc import Callable
from typing import ClassVar
from unittest import mock

import libvirt
from oslotest import base

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import restore_queue
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

PINS = (frozenset({0}), frozenset({1}))


class RestoreQueueTest(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guest = self.look()
        self.write(self.guest)
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.domain.refuse = self.refuse

    def recover(self) -> None:
        self.domain.refuse = lambda: None
        self.reconcile()

    def test_failed_restore_is_retried(self) -> None:
        done = self.manager.restore_one('u')
        self.assertEqual('busy', done.result(manager_case.PATIENCE_S))
        self.reconcile()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.recover()
        self.assert_put_back()
        self.assertEqual('restored', self.guest.hands_off)

    def test_restore_during_a_migration_is_logged_as_info(self) -> None:
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.manager.enqueue('u')
        self.drain()
        with self.assertLogs(
            'nova_vhpc.agent.lifecycle.restore_queue', 'INFO'
        ) as logs:
            self.manager.restore_before_migration(frozenset({'u'}))
            self.drain()
        self.assertEqual(['INFO'], [r.levelname for r in logs.records])

    def test_invalid_operation_of_a_running_domain_is_retried(self) -> None:
        def refuse() -> None:
            raise fake_libvirt.error(libvirt.VIR_ERR_OPERATION_INVALID)

        self.domain.refuse = refuse
        self.manager.restore_one('u').result(manager_case.PATIENCE_S)
        self.assertIs(self.guest, self.manager.guests['u'])
        self.recover()
        self.assert_put_back()

    def vanishes(self) -> None:
        self.manager.connection.get().domains.clear()
        raise fake_libvirt.error(libvirt.VIR_ERR_NO_DOMAIN)

    def ends(self, next_id: int) -> None:
        self.domain.id = next_id
        raise fake_libvirt.error(libvirt.VIR_ERR_OPERATION_INVALID)

    def test_restore_ends_with_the_run(self) -> None:
        for how in (
            lambda: self.ends(-1),
            lambda: self.ends(self.guest.domain_id + 1),
            self.vanishes,
        ):
            self.domain.refuse = lambda: None
            self.domain.id = self.guest.domain_id
            self.manager.resume()
            self.guest = self.look()
            self.write(self.guest)
            self.domain.refuse = how
            attempt = self.manager.restore_one('u')
            self.assertEqual(
                restore_queue.GONE, attempt.result(manager_case.PATIENCE_S)
            )
            self.assertEqual({}, self.manager.guests)

    def test_record_of_a_running_domain_is_kept(self) -> None:
        with mock.patch.object(
            self.manager._context.processes, 'find', return_value=77
        ):
            self.manager._restore_queue.forget_domain('u')
        self.assertEqual(('u',), self.journal.uuids())
        self.manager._restore_queue.forget_domain('u')
        self.assertEqual((), self.journal.uuids())

    def test_attempt_ends_if_the_executor_has_ended(self) -> None:
        self.manager.executor.close()
        done = self.manager.restore_one('u')
        self.assertEqual(
            'the agent is ending', done.result(manager_case.PATIENCE_S)
        )

    def test_partial_restore_is_no_external_change(self) -> None:
        self.manager.pause()
        self.drain()
        self.domain.values[cputune.PERIOD] = 100_000
        self.reconcile()
        self.assertEqual(0, self.manager.external_changes)

    def test_failure_and_later_success_are_logged_once(self) -> None:
        with self.assertLogs(
            'nova_vhpc.agent.lifecycle.restore_queue', 'INFO'
        ) as logs:
            self.manager.restore_one('u')
            self.drain()
            self.reconcile()
            self.reconcile()
            self.recover()
            self.reconcile()
        self.assertEqual(
            ['ERROR', 'INFO'], [r.levelname for r in logs.records]
        )

    def test_retry_does_not_wait_behind_a_call_that_hangs(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(
            go.wait(manager_case.PATIENCE_S)
        )
        first = self.manager.restore_one('u')
        self.manager._restore_queue.retry('u')
        self.assertIs(first, self.manager.restore_one('u'))
        self.assertGreaterEqual(1, self.manager.executor.pending('u'))
        go.set()
        self.assertEqual('', first.result(manager_case.PATIENCE_S))

    def test_guest_never_written_is_restored_during_a_migration(self) -> None:
        self.domain.refuse = lambda: None
        self.manager.restore_one('u').result(manager_case.PATIENCE_S)
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()
        done = self.manager.restore_one('u')
        self.assertEqual('', done.result(manager_case.PATIENCE_S))


class RestartingLock:
    """A guest's lock; the domain is started again during the wait for it."""

    def __init__(self, restart: Callable[[], None]) -> None:
        self._restart = restart

    def __enter__(self) -> None:
        restart, self._restart = self._restart, lambda: None
        restart()

    def __exit__(self, *error: object) -> None:
        pass


class AnotherRunTest(manager_case.ManagerTestCase):
    NOW: ClassVar = {**fake_libvirt.ORIGINAL, cputune.QUOTA: 50_000}

    def restart(self) -> None:
        self.domain.id += 1
        self.domain.values = dict(self.NOW)
        self.domain.written.clear()

    def restart_during_restore(self, guest: Guest) -> None:
        guest.lock = RestartingLock(self.restart)  # type: ignore[assignment]
        tried = self.manager.restore_one('u').result(manager_case.PATIENCE_S)
        self.assertEqual(restore_queue.GONE, tried)
        self.assertEqual([], self.domain.written)
        self.assertEqual(self.NOW, self.domain.values)
        self.assertEqual({}, self.manager.guests)

    def test_restore_that_waited_does_not_write_to_the_next_run(self) -> None:
        self.manager = self.make(foreign_changes='override')
        guest = self.look()
        self.write(guest)
        self.restart_during_restore(guest)

    def test_metadata_of_the_next_run_is_not_written(self) -> None:
        self.restart_during_restore(self.with_migration_copy())
        self.assertEqual('of the new run', self.domain.metadata_xml)

    def with_migration_copy(self) -> Guest:
        guest = self.look()
        self.manager.write(guest, model.CpuTune(vcpu_pins=PINS))
        self.drain()
        self.manager.restore_one('u')
        self.drain()
        self.manager.resume()
        self.assertTrue(guest.copy_for_destination)
        self.domain.metadata_xml = 'of the new run'
        return guest


class WithoutLibvirtTest(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guest = self.look()

    def restore(self) -> str:
        """Return the outcome of a restore without libvirt."""
        self.manager.connection._conn = None
        return self.manager.restore_one('u').result(manager_case.PATIENCE_S)

    def test_restore_of_a_written_guest_fails_without_libvirt(self) -> None:
        self.write(self.guest)
        self.assertIn('no connection', self.restore())
        self.assertEqual(('u',), self.journal.uuids())

    def test_restore_of_a_guest_never_written_succeeds_without_libvirt(
        self,
    ) -> None:
        self.assertEqual(restore_queue.DONE, self.restore())


def done(outcome: str) -> restore_queue.RestoreAttempt:
    attempt = restore_queue.RestoreAttempt()
    attempt.set_result(outcome)
    return attempt


class RestoreReportTest(base.BaseTestCase):
    def test_each_server_is_listed_by_its_outcome(self) -> None:
        attempts = {
            'b': done(restore_queue.DONE),
            'a': done(restore_queue.DONE),
            'c': done('busy'),
            'd': done(restore_queue.GONE),
        }
        self.assertEqual(
            {
                'restored': ['a', 'b'],
                'failed': {'c': 'busy'},
                'unknown': ['d'],
            },
            restore_queue.report_restored(attempts, 60.0),
        )

    def test_an_attempt_beyond_the_wait_is_reported_as_failed(
        self,
    ) -> None:
        report = restore_queue.report_restored(
            {
                'a': restore_queue.RestoreAttempt(),
                'b': done(restore_queue.DONE),
            },
            0.01,
        )
        self.assertEqual(['b'], report['restored'])
        self.assertIn('0.01 s', report['failed']['a'])

    def test_a_server_that_is_not_managed_is_refused_or_unknown(self) -> None:
        self.assertEqual(
            ['x'], restore_queue.report_refused('x', None)['unknown']
        )
        self.assertEqual(
            {'x': 'left alone: no journal'},
            restore_queue.report_refused('x', 'no journal')['failed'],
        )

    def test_a_server_is_resumed_or_not_or_unknown(self) -> None:
        for reason, key, outcome in (
            ('', 'resumed', ['x']),
            ('busy', 'failed', {'x': 'busy'}),
            (None, 'unknown', ['x']),
        ):
            answer = restore_queue.report_resumed('x', reason)
            self.assertEqual(outcome, answer.pop(key))
            self.assertFalse(any(answer.values()))
