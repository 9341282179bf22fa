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

"""VMs that take part in no windows for long: unpinned, or idle."""

from nova_vhpc.control import model
from nova_vhpc.control.gang import unpinned
from nova_vhpc.tests import base


def vm(uuid, vcpus=2, cluster=None):
    return model.VmView(uuid, vcpus, cluster=cluster)


class TestNonParticipants(base.TestCase):
    def unpinned_after(
        self, periods, vms, spinning, non_participants=None, used=1.0
    ):
        """Return the UUIDs of VMs that are unpinned after some periods.

        :param spinning: UUIDs of the VMs that spin.
        :param used: CPUs that each VM uses.
        """
        non_participants = non_participants or unpinned.NonParticipants(5)
        for _ in range(periods):
            non_participants.advance(
                vms,
                [one for one in vms if one.uuid in spinning],
                lambda uuid: used,
            )
        return non_participants.unpinned

    def test_vm_that_has_not_spun_for_long_is_unpinned(self):
        vms = [vm('a'), vm('b')]
        self.assertEqual(set(), self.unpinned_after(5, vms, 'a'))
        self.assertEqual({'b'}, self.unpinned_after(6, vms, 'a'))

    def test_vm_that_spins_again_is_pinned_at_once(self):
        vms, non_participants = [vm('a'), vm('b')], unpinned.NonParticipants(5)
        self.unpinned_after(6, vms, 'a', non_participants)
        self.assertEqual(
            set(), self.unpinned_after(1, vms, 'ab', non_participants)
        )
        # Nor after a short pause.
        self.assertEqual(
            set(), self.unpinned_after(5, vms, 'a', non_participants)
        )

    def test_vm_that_was_gone_starts_anew(self):
        vms, non_participants = [vm('a'), vm('b')], unpinned.NonParticipants(5)
        self.unpinned_after(6, vms, '', non_participants)
        self.unpinned_after(1, vms[:1], '', non_participants)
        self.assertEqual(
            {'a'}, self.unpinned_after(1, vms, '', non_participants)
        )

    def test_vm_of_one_vcpu_is_unpinned_without_a_spinning_mate(self):
        for vms, expected in (
            ([vm('a', 1), vm('b', 1)], {'a', 'b'}),
            ([vm('a', 1, 'x'), vm('b', 1, 'y')], {'a', 'b'}),
            ([vm('a', 1, 'x'), vm('b', 1, 'x')], set()),
            ([vm('a', 1, 'x'), vm('b', 4, 'x')], set()),
        ):
            self.assertEqual(expected, self.unpinned_after(6, vms, 'ab'))

    def test_vm_of_one_vcpu_is_unpinned_if_its_mate_sleeps(self):
        vms = [vm('a', 1, 'x'), vm('b', 1, 'x')]
        self.assertEqual({'a', 'b'}, self.unpinned_after(6, vms, 'a'))

    def test_vm_that_does_nothing_is_idle_and_stays_pinned(self):
        vms, non_participants = [vm('a'), vm('b')], unpinned.NonParticipants(5)
        self.unpinned_after(6, vms, 'a', non_participants, used=0.05)
        self.assertEqual(
            (set(), {'b'}), (non_participants.unpinned, non_participants.idle)
        )
        # One busy period does not end this, nor does one idle period later
        # begin it.
        self.unpinned_after(1, vms, 'a', non_participants, used=0.7)
        self.assertEqual({'b'}, non_participants.idle)
        self.unpinned_after(5, vms, 'a', non_participants, used=9.0)
        self.assertEqual(
            ({'b'}, set()), (non_participants.unpinned, non_participants.idle)
        )
        self.unpinned_after(1, vms, 'a', non_participants, used=0.0)
        self.assertEqual({'b'}, non_participants.unpinned)
        self.unpinned_after(12, vms, 'a', non_participants, used=0.0)
        self.assertEqual(
            (set(), {'b'}), (non_participants.unpinned, non_participants.idle)
        )
        idle = non_participants.idle
        self.unpinned_after(1, vms, 'a', non_participants, used=0.0)
        self.assertIs(idle, non_participants.idle)
        self.unpinned_after(1, vms, 'ab', non_participants, used=2.0)
        self.assertEqual(
            (set(), set()), (non_participants.unpinned, non_participants.idle)
        )

    def test_unpinned_is_the_same_object_until_it_changes(self):
        vms, non_participants = [vm('a'), vm('b')], unpinned.NonParticipants(5)
        before = self.unpinned_after(6, vms, 'a', non_participants)
        self.assertIs(
            before, self.unpinned_after(9, vms, 'a', non_participants)
        )
