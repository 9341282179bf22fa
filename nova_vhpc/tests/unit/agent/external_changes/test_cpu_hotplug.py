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

"""CPUs of the host come and go, and nobody has changed a VM."""

import dataclasses
from unittest import mock

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.tests.unit.agent.external_changes import policy_case

BOTH = frozenset({0, 1})


class TestSwitchedCpus(policy_case.PolicyTestCase):
    def switch_off(self) -> None:
        """Of the host's two CPUs the second one."""
        self.domain.online = (True, False)
        self.domain.pins = [(True, False)] * 2

    def test_a_cpu_that_is_switched_off_is_nobodys_change(self) -> None:
        for choice in ('respect', 'override'):
            self.domain.online = (True, True)
            self.domain.pins = [(True, True)] * 2
            target = self.make(journalled=True)
            target.original = target.expected
            target.note_written({cputune.SHARES: 7})
            self.domain.values[cputune.SHARES] = 7
            self.switch_off()
            self.assertEqual(0, self.look(target, choice))
            self.assertEqual(frozenset(), target.external)
            only = (frozenset({0}),) * 2
            self.assertEqual(only, target.in_force.vcpu_pins)
            self.assertEqual(only, target.original_tune.vcpu_pins)
            self.assertEqual({0}, target.allowed_cpus)
            self.assertTrue(target.is_floating)

    def test_nor_is_it_when_a_vm_is_put_back(self) -> None:
        target = self.make(journalled=True)
        target.original = target.expected
        self.switch_off()
        self.changes().respect_unchecked(target)
        self.assertEqual(frozenset(), target.external)

    def test_what_was_pinned_does_not_follow_the_hosts_cpus(self) -> None:
        target = self.make(journalled=True)
        target.original = target.expected
        cputune.write_pin(self.domain, 0, frozenset({0}), 2)
        target.note_written(pins={0: frozenset({0})})
        self.domain.pins = [(False, True), (True, False)]
        self.domain.online = (True, False)
        self.assertEqual(1, self.look(target))
        self.assertEqual({cputune.pin_name(0)}, target.external)

    def came_after_it_was_pinned(self) -> guest.Guest:
        """The host's second CPU, to a VM that may use all there are."""
        only = frozenset({0})
        target = self.make(journalled=True, online=only)
        self.domain.pins = [(True, False)] * 2
        target.set_expected(cputune.read(self.domain))
        target.original = target.expected
        target.allowed_cpus = only
        self.assertTrue(target.is_floating)
        return target

    def assert_uses_all(self, target: guest.Guest) -> None:
        both = (BOTH,) * 2
        self.assertEqual(both, target.original.vcpupins)
        self.assertEqual(both, target.original_tune.vcpu_pins)
        self.assertEqual(BOTH, target.allowed_cpus)
        self.assertTrue(target.is_floating)
        self.assertEqual((frozenset({0}),) * 2, target.in_force.vcpu_pins)

    def test_a_cpu_that_comes_is_for_who_was_pinned_without_it(self) -> None:
        for lock_free_weights in (frozenset(), frozenset({1024})):
            target = self.came_after_it_was_pinned()
            target.lock_free_weights = lock_free_weights
            self.assertEqual(0, self.look(target))
            self.assert_uses_all(target)
            self.assertEqual(target.original, self.journal.load('u').original)
            self.assertTrue(self.domain.has_metadata_copy)
            self.domain.has_metadata_copy = False
            self.assertEqual(0, self.look(target))
            self.assertFalse(self.domain.has_metadata_copy)
            cputune_restore.restore(self.domain, target.original)
            self.assertEqual([(True, True)] * 2, self.domain.pins)

    def test_a_cpu_that_the_host_did_not_have_before(self) -> None:
        self.domain.online = (True,) * 3
        for pin in ((True, True, True), (True, False, False)):
            target = self.make(journalled=True, online=BOTH)
            target.original = target.expected
            self.domain.pins = [pin] * 2
            target.note_written(pins=dict.fromkeys(range(2), frozenset({0})))
            self.assertEqual(0, self.look(target))
            self.assertEqual(
                (frozenset({0, 1, 2}),) * 2, target.original.vcpupins
            )
            self.assertEqual(3, target.expected.host_cpus)
            self.assertEqual(target.original, self.journal.load('u').original)

    def test_also_where_nobody_looks_before_it_is_put_back(self) -> None:
        target = self.came_after_it_was_pinned()
        self.changes().respect_unchecked(target)
        self.assert_uses_all(target)
        self.assertEqual((), self.journal.uuids())

    def test_what_the_journal_did_not_take_is_tried_again(self) -> None:
        target = self.came_after_it_was_pinned()
        full = JournalError('full')
        with mock.patch.object(self.journal, 'save', side_effect=full):
            self.assertRaises(JournalError, self.look, target)
        self.look(target)
        self.assertEqual(target.original, self.journal.load('u').original)

    def test_nor_is_it_missed_beside_vcpus_that_are_not_plugged_in(
        self,
    ) -> None:
        for spare in ((True, True), (False, False)):
            target = self.came_after_it_was_pinned()
            self.domain.pins += [spare]
            xml = self.domain.XMLDesc(0).replace('>2<', '>3<')
            xml = xml.replace("<vcpupin vcpu='2'/>", '')
            with mock.patch.object(self.domain, 'XMLDesc', return_value=xml):
                self.look(target)
            self.assertEqual(
                (BOTH, BOTH, cputune.pin_cpus(spare)), target.original.vcpupins
            )

    def test_a_cpu_that_comes_is_not_for_who_has_its_own(self) -> None:
        for change in ({'cpuset': frozenset({0})}, {'placed': True}):
            target = self.came_after_it_was_pinned()
            target.set_info(dataclasses.replace(target.info, **change))
            self.assertEqual(0, self.look(target))
            self.assertEqual({0}, target.allowed_cpus)
            self.assertFalse(self.domain.has_metadata_copy)
