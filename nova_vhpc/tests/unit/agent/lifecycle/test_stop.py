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

"""All is put back at the end, as far as it goes in a few seconds."""

import threading
import time
from unittest import mock

import libvirt

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import manager, restore_queue
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

PATIENCE_S = manager_case.PATIENCE_S
WISH = manager_case.TUNE


class TestStop(manager_case.ManagerTestCase):
    def test_a_first_record_that_is_just_being_written(self) -> None:
        target = self.look()
        inside, go = threading.Event(), threading.Event()
        save = self.records.save

        def slow(record: JournalRecord) -> None:
            inside.set()
            go.wait(PATIENCE_S)
            save(record)

        self.records.save = slow
        self.made.write(target, WISH)
        self.assertTrue(inside.wait(PATIENCE_S))
        stopped: list[bool] = []
        stop = threading.Thread(
            target=lambda: stopped.append(self.made.stop(PATIENCE_S))
        )
        stop.start()
        while guest.Hold.STOPPING not in target.holds and stop.is_alive():
            time.sleep(0.001)
        go.set()
        stop.join()
        self.assertEqual([True], stopped)
        self.assert_put_back()

    def test_a_refusal_is_tried_again(self) -> None:
        self.write(self.look())
        refusals = iter(range(4))

        def refuse() -> None:
            if next(refusals, None) is not None:
                self.refuse()

        self.domain.refuse = refuse
        with mock.patch.object(manager, 'FIRST_RETRY_S', 0.001):
            self.assertTrue(self.made.stop(PATIENCE_S))
        self.assert_put_back()

    def test_libvirtd_was_just_started_anew(self) -> None:
        """Nobody has looked at the VMs over the new connection yet."""
        target = self.look()
        self.write(target)
        old = mock.Mock()
        for name in dir(self.domain):
            if not name.startswith('_'):
                getattr(old, name).side_effect = fake_libvirt.error(
                    libvirt.VIR_ERR_INTERNAL_ERROR, 'client socket is closed'
                )
        target.domain = old
        with mock.patch.object(manager, 'FIRST_RETRY_S', 0.001):
            self.assertTrue(self.made.stop(PATIENCE_S))
        self.assert_put_back()

    def test_what_others_wrote_at_the_last_moment_stays(self) -> None:
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assertEqual(
            {**fake_libvirt.ORIGINAL, cputune.SHARES: 333}, self.domain.values
        )
        self.assertTrue(self.records.load('u').is_handed_back)

    def test_also_what_a_window_has_written_over(self) -> None:
        target = self.look()
        self.made.set_shares('u', 20)
        target.event_history.external_shares = 333
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assertEqual(333, self.domain.values[cputune.SHARES])

    def test_unless_our_values_go_over_theirs(self) -> None:
        self.made = self.make(foreign_changes='override')
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)

    def test_what_is_left_is_said(self) -> None:
        self.write(self.look())
        self.domain.refuse = self.refuse
        self.assertFalse(self.made.stop(0.3))
        self.assertEqual(('u',), self.records.uuids())

    def test_one_that_ends_meanwhile_is_none_that_is_left(self) -> None:
        """As all do that are shut down with their host."""
        self.write(self.look())

        def end() -> None:
            self.domain.id = -1
            raise fake_libvirt.error(
                libvirt.VIR_ERR_OPERATION_INVALID, 'domain is not running'
            )

        self.domain.refuse = end
        self.assertTrue(self.made.stop(PATIENCE_S))
        self.assertEqual((), self.records.uuids())

    def test_one_that_hangs_holds_up_no_other(self) -> None:
        """With one thread, and long before ``call_deadline``."""
        other = fake_libvirt.Domain('other')
        self.made = self.make(workers=1, call_deadline=PATIENCE_S)
        self.made.connection.get().domains['other'] = other
        self.write(self.look())
        self.made.enqueue('other')
        self.drain()
        self.write(self.made.guests['other'])
        # The one that hangs comes first.
        self.assertEqual(['u', 'other'], list(self.made.guests))
        go = threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(go.wait(PATIENCE_S))
        other.refuse = go.set
        with mock.patch.object(manager, 'STOP_DEADLINE_S', 0.1):
            self.assertTrue(self.made.stop(PATIENCE_S / 2))
        self.assertEqual(fake_libvirt.ORIGINAL, other.values)
        self.assert_put_back()

    def test_beside_one_that_hangs_others_are_tried_again(
        self,
    ) -> None:
        other = fake_libvirt.Domain('other')
        self.made.connection.get().domains['other'] = other
        self.write(self.look())
        self.made.enqueue('other')
        self.drain()
        self.write(self.made.guests['other'])
        go = threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(go.wait(PATIENCE_S))
        refusals = iter(range(2))

        def refuse() -> None:
            if next(refusals, None) is not None:
                self.refuse()

        other.refuse = refuse
        with mock.patch.object(manager, 'FIRST_RETRY_S', 0.001):
            self.assertFalse(self.made.stop(0.5))
        self.assertEqual(fake_libvirt.ORIGINAL, other.values)
        self.assertEqual(('u',), self.records.uuids())

    def test_nobody_waits_for_what_will_not_be_tried(self) -> None:
        hung = threading.Event()
        self.addCleanup(hung.set)
        target = self.look()
        self.write(target)
        self.domain.refuse = lambda: hung.wait(PATIENCE_S)
        tried = self.made.restore_one('u')
        self.assertIsNotNone(tried)
        self.assertFalse(self.made.stop(0.3))
        self.assertEqual(restore_queue.ENDING, tried.result(timeout=0))
