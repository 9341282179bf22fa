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

"""A put-back that fails is tried again, until it is done or in vain."""

import threading
from collections.abc import Callable
from typing import ClassVar
from unittest import mock

import libvirt

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import restore_queue
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

PINS = (frozenset({0}), frozenset({1}))


class TestUndo(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.target = self.look()
        self.write(self.target)
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.domain.refuse = self.refuse

    def recover(self) -> None:
        self.domain.refuse = lambda: None
        self.reconcile()

    def test_a_restore_that_fails_is_tried_again(self) -> None:
        done = self.made.restore_one('u')
        self.assertEqual('busy', done.result(manager_case.PATIENCE_S))
        self.reconcile()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.recover()
        self.assert_put_back()
        self.assertEqual('restored', self.target.hands_off)

    def test_slices_that_fail_leave_nothing_else_behind(self) -> None:
        """As if the privsep daemon did not start."""
        self.domain.refuse = lambda: None
        actuator = self.made._restore_queue._guest_restorer._actuators[0]
        with mock.patch.object(actuator, 'undo', side_effect=OSError('no')):
            done = self.made.restore_one('u')
            self.assertEqual('no', done.result(manager_case.PATIENCE_S))
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        # The next agent is to try it, too.
        self.assertEqual(('u',), self.records.uuids())
        self.recover()
        self.assert_put_back()

    def test_a_pause_that_fails_is_tried_again(self) -> None:
        done = self.made.pause()
        self.assertEqual('busy', done['u'].result(manager_case.PATIENCE_S))
        self.recover()
        self.assert_put_back()

    def test_leaving_that_fails_is_tried_again(self) -> None:
        self.made.restore_before_migration(frozenset({'u'}))
        self.drain()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.recover()
        self.assert_put_back()

    def test_opting_out_that_fails_is_tried_again(self) -> None:
        self.domain.specs.clear()
        self.look()
        self.recover()
        self.assert_put_back()
        self.assertEqual({}, self.made.guests)

    def test_not_during_a_migration_but_after_it(self) -> None:
        self.made.pause()
        self.drain()
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.recover()
        self.recover()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.domain.job = 0
        self.reconcile()
        self.assert_put_back()

    def test_a_migration_is_no_error(self) -> None:
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.made.enqueue('u')
        self.drain()
        with self.assertLogs(
            'nova_vhpc.agent.lifecycle.restore_queue', 'INFO'
        ) as logs:
            self.made.restore_before_migration(frozenset({'u'}))
            self.drain()
        self.assertEqual(['INFO'], [r.levelname for r in logs.records])

    def test_a_call_that_is_invalid_for_now_is_not_the_end(self) -> None:
        def refuse() -> None:
            raise fake_libvirt.error(libvirt.VIR_ERR_OPERATION_INVALID)

        self.domain.refuse = refuse
        self.made.restore_one('u').result(manager_case.PATIENCE_S)
        self.assertIs(self.target, self.made.guests['u'])
        self.recover()
        self.assert_put_back()

    def test_a_vm_that_is_gone_is_owed_no_more(self) -> None:
        def vanish() -> None:
            self.made.connection.get().domains.clear()
            raise fake_libvirt.error(libvirt.VIR_ERR_NO_DOMAIN)

        self.assert_gone(vanish)

    def assert_gone(self, vanish: Callable[[], None]) -> None:
        self.domain.refuse = vanish
        done = self.made.restore_one('u')
        self.assertEqual(
            'it has stopped or migrated away',
            done.result(manager_case.PATIENCE_S),
        )
        self.assertEqual({}, self.made.guests)
        self.assertEqual({}, self.made._restore_queue._pending)

    def ends(self, next_id: int) -> None:
        self.domain.id = next_id
        raise fake_libvirt.error(libvirt.VIR_ERR_OPERATION_INVALID)

    def test_so_is_one_that_is_shut_off(self) -> None:
        self.assert_gone(lambda: self.ends(-1))

    def test_and_one_that_was_started_anew(self) -> None:
        self.assert_gone(lambda: self.ends(self.target.domain_id + 1))

    def test_the_next_run_is_not_owed_what_the_last_one_was(self) -> None:
        self.made.restore_one('u').result(manager_case.PATIENCE_S)
        self.domain.refuse = lambda: None
        self.domain.id += 1
        self.domain.mark = None
        now = {**fake_libvirt.ORIGINAL, cputune.QUOTA: 50_000}
        self.domain.values = dict(now)
        self.look()
        self.reconcile()
        self.assertEqual(now, self.domain.values)

    def test_one_of_two_reasons_ends(self) -> None:
        self.made.restore_before_migration(frozenset({'u'}))
        self.made.pause()
        self.drain()
        self.made.restore_before_migration(frozenset())
        self.recover()
        self.assert_put_back()

    def test_the_record_of_a_vm_that_runs_is_kept(self) -> None:
        with mock.patch.object(
            self.made._context.processes, 'find', return_value=77
        ):
            self.made._restore_queue.forget_domain('u')
        self.assertEqual(('u',), self.records.uuids())
        self.made._restore_queue.forget_domain('u')
        self.assertEqual((), self.records.uuids())

    def test_nobody_waits_for_workers_that_have_ended(self) -> None:
        self.made.executor.close()
        done = self.made.restore_one('u')
        self.assertEqual(
            'the agent is ending', done.result(manager_case.PATIENCE_S)
        )

    def test_a_vm_that_was_resumed_is_owed_no_more(self) -> None:
        self.made.pause()
        self.drain()
        self.made.resume()
        self.recover()
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.assertTrue(self.target.free_to_write)

    def test_half_of_a_restore_is_not_somebody_elses(self) -> None:
        self.made.pause()
        self.drain()
        self.domain.values[cputune.PERIOD] = 100_000
        self.reconcile()
        self.assertEqual(0, self.made.external_changes)

    def test_said_once_when_it_fails_and_once_when_it_is_done(self) -> None:
        with self.assertLogs(
            'nova_vhpc.agent.lifecycle.restore_queue', 'INFO'
        ) as logs:
            self.made.restore_one('u')
            self.drain()
            self.reconcile()
            self.reconcile()
            self.recover()
            self.reconcile()
        self.assertEqual(
            ['ERROR', 'INFO'], [r.levelname for r in logs.records]
        )

    def test_a_try_that_hangs_is_not_joined_by_others(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(
            go.wait(manager_case.PATIENCE_S)
        )
        first = self.made.restore_one('u')
        self.made._restore_queue.retry('u')
        self.assertIs(first, self.made.restore_one('u'))
        self.assertGreaterEqual(1, self.made.executor.pending('u'))
        go.set()
        self.assertEqual('', first.result(manager_case.PATIENCE_S))

    def test_what_was_not_written_need_not_wait_for_a_migration(self) -> None:
        self.domain.refuse = lambda: None
        self.made.restore_one('u').result(manager_case.PATIENCE_S)
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()
        done = self.made.restore_one('u')
        self.assertEqual('', done.result(manager_case.PATIENCE_S))

    def test_opting_in_again_ends_it(self) -> None:
        self.domain.specs = {}
        self.look()
        self.domain.specs = {'vhpc:workload': 'parallel'}
        self.recover()
        self.assertTrue(self.target.free_to_write)


class _Restarts:
    """A VM's lock; while it was waited for, the VM was started anew."""

    def __init__(self, restart: Callable[[], None]) -> None:
        self._restart = restart

    def __enter__(self) -> None:
        restart, self._restart = self._restart, lambda: None
        restart()

    def __exit__(self, *error: object) -> None:
        pass


class TestAnotherRun(manager_case.ManagerTestCase):
    NOW: ClassVar = {**fake_libvirt.ORIGINAL, cputune.QUOTA: 50_000}

    def restart(self) -> None:
        self.domain.id += 1
        self.domain.values = dict(self.NOW)
        self.domain.written.clear()

    def restart_in_a_put_back(self, target: guest.Guest) -> None:
        target.lock = _Restarts(self.restart)  # type: ignore[assignment]
        tried = self.made.restore_one('u').result(manager_case.PATIENCE_S)
        self.assertEqual(restore_queue.GONE, tried)
        self.assertEqual([], self.domain.written)
        self.assertEqual(self.NOW, self.domain.values)
        self.assertEqual({}, self.made.guests)

    def test_that_began_while_a_call_about_the_old_one_hung(self) -> None:
        self.made = self.make(foreign_changes='override')
        target = self.look()
        self.write(target)
        self.restart_in_a_put_back(target)

    def test_nor_is_anything_said_in_its_xml(self) -> None:
        self.restart_in_a_put_back(self.settled())
        self.assertEqual('of the new run', self.domain.mark)

    def settled(self) -> guest.Guest:
        target = self.look()
        self.made.write(target, model.CpuTune(vcpu_pins=PINS))
        self.drain()
        self.made.restore_one('u')
        self.drain()
        self.made.resume()
        self.assertTrue(target.copy_for_destination)
        self.domain.mark = 'of the new run'
        return target


class TestWithoutLibvirt(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.target = self.look()

    def put_back(self) -> str:
        """As told, and what its actuators were asked to undo."""
        actuator = self.made._restore_queue._guest_restorer._actuators[0]
        self.made.connection._conn = None
        with mock.patch.object(actuator, 'undo') as self.undone:
            done = self.made.restore_one('u')
            return done.result(manager_case.PATIENCE_S)

    def test_what_needs_none_is_taken_back(self) -> None:
        """Slices of the kernel."""
        self.write(self.target)
        self.assertIn('no connection', self.put_back())
        self.undone.assert_called_once_with(self.target)

    def test_what_was_never_written_is_as_it_was(self) -> None:
        self.assertEqual(restore_queue.DONE, self.put_back())
