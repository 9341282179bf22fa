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

"""What must be put back is, some day; and nothing is written meanwhile."""

import json
import pathlib
import uuid
from typing import Any
from unittest import mock

import fixtures
import libvirt

from nova_vhpc.agent.guests import guest
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


class TestPutBack(ManagerTestCase):
    def test_late_events_of_our_writes_are_known_as_ours(self) -> None:
        target = self.look()
        self.made.set_shares('u', 20)
        self.made.pause()
        self.drain()
        self.assert_put_back()
        self.assertEqual({20, 1024}, target.event_history.written_shares)

    def test_late_events_of_period_and_quota_are_known_too(self) -> None:
        target = self.look()
        tune = model.CpuTune(period_us=30_000, quota_us=30_000)
        self.made.write(target, tune)
        self.drain()
        for name in (cputune.PERIOD, cputune.QUOTA):
            self.assertTrue(target.event_history.wrote(name, 30_000))
        self.assertFalse(target.event_history.wrote(cputune.PERIOD, 30_001))

    def test_the_mark_is_there_again_after_it(self) -> None:
        """Without it a migration takes our values along for the VM's own."""
        self.write(self.look())
        self.made.pause()
        self.drain()
        self.assert_put_back()
        self.made.resume()
        self.write(self.made.guests['u'])
        self.assertIsNotNone(self.domain.mark)

    def test_also_after_one_that_was_half_done(self) -> None:
        self.write(self.look())
        refuse = JournalError('read-only')
        with mock.patch.object(self.records, 'remove', side_effect=refuse):
            self.made.pause()
            self.drain()
        self.assertIsNone(self.domain.mark)
        self.made.resume()
        self.write(self.look())
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.assertIsNotNone(self.domain.mark)


class TestRestored(ManagerTestCase):
    """On an operator's word: left alone until the agent is resumed."""

    def assert_left_alone(self) -> None:
        target = self.look()
        self.write(target)
        self.made.set_shares('u', 7)
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.assertEqual('restored', target.hands_off)

    def assert_written_after_resume(self) -> None:
        self.made.resume()
        self.write(self.made.guests['u'])
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.domain.id += 1
        self.assertEqual('', self.look().hands_off)

    def test_also_after_a_restart(self) -> None:
        self.write(self.look())
        self.made.restore_one('u').result(PATIENCE_S)
        self.domain.id = 2
        self.assert_left_alone()
        self.assert_written_after_resume()

    def test_also_after_opting_out_and_in_again(self) -> None:
        self.write(self.look())
        self.made.restore_one('u').result(PATIENCE_S)
        specs, self.domain.specs = self.domain.specs, {}
        self.made.enqueue('u')
        self.drain()
        self.assertEqual({}, self.made.guests)
        self.domain.specs = specs
        self.assert_left_alone()
        self.assert_written_after_resume()


class TestOptingOut(ManagerTestCase):
    def test_while_it_migrates_and_then_does_not(self) -> None:
        target = self.look()
        self.write(target)
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()
        self.assertIn(guest.Hold.MIGRATING, target.holds)
        self.domain.specs = {}
        self.reconcile()
        self.assertEqual(8_000, self.domain.values[cputune.PERIOD])
        self.domain.job = 0
        self.reconcile()
        self.assert_put_back()


class TestLeaving(ManagerTestCase):
    def assert_not_written(self) -> None:
        self.write(self.made.guests['u'])
        self.made.set_shares('u', 7)
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)

    def test_found_after_nova_has_said_so(self) -> None:
        self.made.restore_before_migration(frozenset({'u'}))
        self.assertEqual('leaving', self.look().hands_off)
        self.assert_not_written()
        self.made.restore_before_migration(frozenset())
        self.write(self.made.guests['u'])
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])

    def test_paused_and_resumed(self) -> None:
        self.look()
        self.made.restore_before_migration(frozenset({'u'}))
        self.made.pause()
        self.drain()
        self.made.resume()
        self.assert_not_written()

    def test_restored_by_an_operator_and_staying(self) -> None:
        self.look()
        self.made.restore_before_migration(frozenset({'u'}))
        self.made.restore_one('u')
        self.made.restore_before_migration(frozenset())
        self.drain()
        self.assert_not_written()

    def test_found_in_the_very_moment(self) -> None:
        """Neither saw the other: the next tick does."""
        target = self.look()
        self.made._context.permission.leaving = frozenset({'u'})
        self.made.restore_before_migration(frozenset({'u'}))
        self.assertEqual('leaving', target.hands_off)
        self.made.restore_before_migration(frozenset())

    def test_found_while_paused(self) -> None:
        self.made.pause()
        self.assertEqual('paused', self.look().hands_off)
        self.made.resume()
        self.assertTrue(self.made.guests['u'].free_to_write)


class TestInvalidForNow(ManagerTestCase):
    """libvirt calls many a refusal an invalid operation."""

    def no_cgroup(self) -> Any:
        return mock.patch.object(
            self.domain,
            'schedulerParametersFlags',
            side_effect=fake_libvirt.error(
                libvirt.VIR_ERR_OPERATION_INVALID,
                'cgroup CPU controller is not mounted',
            ),
        )

    def test_a_vm_that_runs_is_not_gone(self) -> None:
        target = self.look()
        self.write(target)
        with self.no_cgroup():
            self.reconcile()
            self.assertIn('not mounted', self.made.refused['u'])
        self.assertIs(target, self.made.guests['u'])
        self.assertEqual(('u',), self.records.uuids())
        self.reconcile()
        self.assertEqual({}, self.made.refused)
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assert_put_back()

    def test_why_it_is_not_taken_in(self) -> None:
        with self.no_cgroup():
            self.reconcile()
        self.assertEqual({}, self.made.guests)
        self.assertIn('not mounted', self.made.refused['u'])
        self.reconcile()
        self.assertEqual({'u'}, self.made.guests.keys())
        self.assertEqual({}, self.made.refused)

    def test_a_run_that_has_ended(self) -> None:
        target = self.look()
        self.write(target)
        with self.no_cgroup():
            self.domain.id = -1
            self.reconcile()
        self.assertEqual({}, self.made.guests)
        self.assertEqual((), self.records.uuids())


class TestAway(ManagerTestCase):
    """No libvirt, just after it has said of some domain that it is gone."""

    def setUp(self) -> None:
        super().setUp()
        self.made = self.make(workers=1)
        self.target = self.look()
        self.write(self.target)
        self.made.executor.submit('other', self.ask_for_one_that_is_gone)
        self.drain()
        self.made.connection._conn = None

    def ask_for_one_that_is_gone(self) -> None:
        """The binding keeps the last error of each thread."""
        conn = libvirt.open('test:///default')
        self.assertRaises(
            libvirt.libvirtError, conn.lookupByUUIDString, str(uuid.uuid4())
        )

    def test_nobody_is_taken_for_gone(self) -> None:
        tried = self.made.restore_one('u')
        self.drain()
        self.assertEqual(
            'no connection to qemu:///system', tried.result(PATIENCE_S)
        )
        self.made.enqueue('u')
        self.drain()
        self.assertIs(self.target, self.made.guests['u'])
        self.assertEqual(('u',), self.records.uuids())

    def test_what_is_open_is_told_at_the_end(self) -> None:
        self.assertFalse(self.made.stop(0.3))
        self.assertEqual(('u',), self.records.uuids())


class TestLeftByAnEarlierAgent(ManagerTestCase):
    """It was killed, and this one ends before it has looked at the VM."""

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
        self.made = self.make()
        self.made.connection._conn = None

    def test_it_is_said_to_be_left(self) -> None:
        self.assertFalse(self.made.stop(PATIENCE_S))
        self.assertEqual(('u',), self.records.uuids())

    def test_also_if_the_record_is_torn(self) -> None:
        pathlib.Path(self.state, 'journal', 'u.json').write_text('{')
        self.assertFalse(self.made.stop(PATIENCE_S))

    def test_one_that_has_ended_is_not_left(self) -> None:
        self.runs = 0
        self.assertTrue(self.made.stop(PATIENCE_S))

    def test_one_that_was_restarted_is_not_left(self) -> None:
        with mock.patch.object(self.host, 'start_ticks', return_value=9):
            self.assertTrue(self.made.stop(PATIENCE_S))

    def test_one_that_a_newer_agent_knows_is_not_ours_to_tell(self) -> None:
        file = pathlib.Path(self.state, 'journal', 'u.json')
        file.write_text(json.dumps({'version': VERSION + 1}))
        self.assertTrue(self.made.stop(PATIENCE_S))

    def test_a_dry_run_leaves_it_as_it_says(self) -> None:
        self.made = self.make(dry_run=True)
        self.assertTrue(self.made.stop(PATIENCE_S))


class TestRestarted(ManagerTestCase):
    """A VM that was restarted, and nobody has looked at it yet."""

    def setUp(self) -> None:
        super().setUp()
        self.target = self.look()
        self.made.write(self.target, model.CpuTune(8_000, 8_000, 2048))
        self.drain()
        self.domain.id += 1
        self.domain.values = dict(fake_libvirt.ORIGINAL)
        self.domain.mark = None
        self.domain.written.clear()

    def test_no_window_writes_to_the_new_run(self) -> None:
        self.assertFalse(self.made.set_shares('u', 20))
        self.drain()
        found = self.made.guests['u']
        self.assertIsNot(self.target, found)
        self.assertEqual(1024, found.original.parameters[cputune.SHARES])
        self.assertEqual([], self.domain.written)

    def test_no_tick_writes_to_the_new_run(self) -> None:
        self.made.write(self.target, model.CpuTune(9_000, 9_000))
        self.drain()
        self.assertEqual([], self.domain.written)
        self.assertIsNot(self.target, self.made.guests['u'])

    def test_what_it_was_is_not_put_into_the_new_run(self) -> None:
        """Which may be of another flavor, and be none of ours."""
        for choice in ('respect', 'override'):
            self.made._policy._options.foreign_changes = choice
            now = {**fake_libvirt.ORIGINAL, cputune.QUOTA: 50_000}
            self.domain.values = dict(now)
            log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
            tried = self.made.restore_one('u').result(PATIENCE_S)
            self.assertEqual(restore_queue.GONE, tried)
            self.assertEqual([], self.domain.written)
            self.assertEqual(now, self.domain.values)
            self.assertNotIn('somebody', log.output)
            # Found as the new run, it is written, and started once more.
            self.made.resume()
            self.write(self.look())
            self.domain.id += 1
            self.domain.mark = None
            self.domain.written.clear()

    def test_nor_is_the_new_run_lost_that_was_found_before(self) -> None:
        """A pause has seen the old one, and a look came in between."""
        found = self.look()
        self.write(found)
        self.domain.written.clear()
        tried = self.made._restore_queue.submit(self.target, guest.Hold.PAUSED)
        self.assertEqual(restore_queue.GONE, tried.result(PATIENCE_S))
        self.assertEqual([], self.domain.written)
        self.assertIs(found, self.made.guests['u'])
        self.assertEqual(('u',), self.records.uuids())

    def test_nobody_has_changed_what_is_new(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.made._policy.check(self.target)
        self.assertNotIn('somebody', log.output)
        self.assertEqual(frozenset(), self.target.external)
        self.assertEqual([], self.domain.written)
