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

"""A VM that may migrate next is put back, and says that it was ours."""

from unittest import mock

import libvirt

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case
from nova_vhpc.tests.unit.agent.lifecycle import test_adoption

PINS = (frozenset({0}), frozenset({1}))
LEAVING = frozenset({'u'})


class SettledCase(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.target = self.look()

    def pin(self) -> None:
        self.made.write(self.target, model.CpuTune(vcpu_pins=PINS))
        self.drain()

    def leave(self) -> None:
        self.made.restore_before_migration(LEAVING)
        self.drain()

    def copy(self) -> JournalRecord:
        text = self.domain.mark.partition('>')[2].rpartition('<')[0]
        return JournalRecord.from_json(text, 'mark')

    def assert_settled(self) -> None:
        self.assertEqual([(True, True)] * 2, self.domain.pins)
        self.assertEqual((), self.records.uuids())
        self.assertTrue(self.copy().restored)
        self.assertTrue(self.copy().is_floating)


class TestSettled(SettledCase):
    def setUp(self) -> None:
        super().setUp()
        self.pin()

    def test_before_it_leaves(self) -> None:
        self.assertFalse(self.copy().restored)
        self.leave()
        self.assert_settled()

    def test_on_an_operators_word_however_often(self) -> None:
        for _ in range(2):
            self.made.restore_one('u')
            self.drain()
            self.assert_settled()

    def test_pins_of_another_host_that_mean_nothing_here(self) -> None:
        self.made.pause()
        self.drain()
        self.domain.id += 1
        self.domain.extra = test_adoption.PINS.format('0-1', '0-1')
        self.target = self.look()
        self.made.resume()
        self.assertIsNone(self.domain.mark)
        self.leave()
        self.assert_settled()

    def test_it_stays(self) -> None:
        self.leave()
        self.made.restore_before_migration(frozenset())
        self.pin()
        self.assertFalse(self.copy().restored)
        self.made.pause()
        self.drain()
        self.assert_put_back()

    def test_not_longer_than_the_agent(self) -> None:
        self.leave()
        self.made.stop(manager_case.PATIENCE_S)
        self.assert_put_back()

    def test_said_if_it_is_longer_than_the_agent(self) -> None:
        self.leave()
        self.domain.refuse = self.refuse
        self.assertFalse(self.made.stop(0.3))

    def test_tried_again_at_the_end(self) -> None:
        self.leave()
        refusals = iter(range(2))

        def refuse() -> None:
            if next(refusals, None) is not None:
                self.refuse()

        self.domain.refuse = refuse
        self.assertTrue(self.made.stop(manager_case.PATIENCE_S))
        self.assert_put_back()

    def test_not_when_it_opts_out(self) -> None:
        self.leave()
        self.domain.specs = {}
        self.reconcile()
        self.assert_put_back()

    def test_no_call_that_hangs_in_a_migration(self) -> None:
        self.leave()
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()
        self.assertIn(guest.Hold.MIGRATING, self.target.holds)
        self.domain.refuse = self.refuse
        self.assertTrue(self.made.stop(manager_case.PATIENCE_S))

    def test_nothing_is_to_be_said_without_pins(self) -> None:
        self.made.pause()
        self.drain()
        self.made.resume()
        self.made.write(self.target, manager_case.TUNE)
        self.drain()
        self.leave()
        self.assert_put_back()
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)


class TestNotOurs(SettledCase):
    """What we have not written is not put back."""

    def pause(self) -> None:
        self.domain.written.clear()
        self.made.pause()
        self.drain()

    def test_of_a_vm_that_we_never_wrote_to(self) -> None:
        self.domain.values[cputune.QUOTA] = 50_000
        self.domain.pins[0] = (True, False)
        self.pause()
        self.assertEqual([], self.domain.written)

    def test_pins_of_one_that_we_have_not_pinned(self) -> None:
        """Their elements would stay in the XML, and migrate."""
        self.made.write(self.target, manager_case.TUNE)
        self.drain()
        self.pause()
        self.assertNotIn('pin', self.domain.written)
        self.assert_put_back()


class TestInVain(SettledCase):
    """libvirt says that it has done what it has not."""

    def test_said_and_tried_again(self) -> None:
        self.pin()
        with mock.patch.object(self.domain, 'pinVcpuFlags'):
            done = self.made.restore_one('u')
            said = done.result(manager_case.PATIENCE_S)
        self.assertIn('vcpupin 0 is [0], not [0, 1]', said)
        self.assertEqual(('u',), self.records.uuids())
        self.reconcile()
        self.assert_settled()


class TestPinsOfSomebody(SettledCase):
    """They go along as they are, as without us."""

    def by_hand(self) -> None:
        self.domain.pins = [(False, True)] * 2
        self.domain.extra = test_adoption.PINS.format(1, 1)
        self.look()

    def assert_theirs(self) -> None:
        self.assertEqual([(False, True)] * 2, self.domain.pins)
        self.assertIsNone(self.domain.mark)

    def test_of_a_vm_that_we_have_not_pinned(self) -> None:
        self.by_hand()
        self.leave()
        self.assert_theirs()

    def test_of_one_that_we_have(self) -> None:
        self.by_hand()
        self.pin()
        self.assertNotEqual([(False, True)] * 2, self.domain.pins)
        self.leave()
        self.assert_theirs()

    def test_of_one_that_was_put_back_for_them(self) -> None:
        self.pin()
        self.made.restore_one('u')
        self.drain()
        self.assert_settled()
        self.by_hand()
        self.assert_theirs()
