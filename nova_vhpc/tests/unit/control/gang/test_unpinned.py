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

"""Who takes part in no windows for long is let loose, or idle."""

from nova_vhpc.control import model
from nova_vhpc.control.gang import unpinned
from nova_vhpc.tests import base


def vm(uuid, vcpus=2, cluster=None):
    return model.VmView(uuid, vcpus, cluster=cluster)


class TestResting(base.TestCase):
    def loose_after(self, periods, vms, spinning, resting=None, used=1.0):
        """Who is loose after so many periods; vms by their uuids.

        :param used: CPUs, by each of them.
        """
        resting = resting or unpinned.NonParticipants(5)
        for _ in range(periods):
            resting.advance(
                vms,
                [one for one in vms if one.uuid in spinning],
                lambda uuid: used,
            )
        return resting.unpinned

    def test_who_has_not_spun_for_long_is_loose(self):
        vms = [vm('a'), vm('b')]
        self.assertEqual(set(), self.loose_after(5, vms, 'a'))
        self.assertEqual({'b'}, self.loose_after(6, vms, 'a'))

    def test_who_spins_again_is_not_at_once(self):
        vms, resting = [vm('a'), vm('b')], unpinned.NonParticipants(5)
        self.loose_after(6, vms, 'a', resting)
        self.assertEqual(set(), self.loose_after(1, vms, 'ab', resting))
        # Nor for a short pause.
        self.assertEqual(set(), self.loose_after(5, vms, 'a', resting))

    def test_who_comes_back_is_known_no_more(self):
        vms, resting = [vm('a'), vm('b')], unpinned.NonParticipants(5)
        self.loose_after(6, vms, '', resting)
        self.loose_after(1, vms[:1], '', resting)
        self.assertEqual({'a'}, self.loose_after(1, vms, '', resting))

    def test_one_vcpu_has_nobody_to_run_together_with(self):
        for vms, loose in (
            ([vm('a', 1), vm('b', 1)], {'a', 'b'}),
            ([vm('a', 1, 'x'), vm('b', 1, 'y')], {'a', 'b'}),
            ([vm('a', 1, 'x'), vm('b', 1, 'x')], set()),
            ([vm('a', 1, 'x'), vm('b', 4, 'x')], set()),
        ):
            self.assertEqual(loose, self.loose_after(6, vms, 'ab'))

    def test_a_mate_that_sleeps_does_not_count(self):
        vms = [vm('a', 1, 'x'), vm('b', 1, 'x')]
        self.assertEqual({'a', 'b'}, self.loose_after(6, vms, 'a'))

    def test_who_does_nothing_is_idle_instead(self):
        vms, resting = [vm('a'), vm('b')], unpinned.NonParticipants(5)
        self.loose_after(6, vms, 'a', resting, used=0.05)
        self.assertEqual((set(), {'b'}), (resting.unpinned, resting.idle))
        # Not for a moment's work, nor for a moment's rest afterwards.
        self.loose_after(1, vms, 'a', resting, used=0.7)
        self.assertEqual({'b'}, resting.idle)
        self.loose_after(5, vms, 'a', resting, used=9.0)
        self.assertEqual(({'b'}, set()), (resting.unpinned, resting.idle))
        self.loose_after(1, vms, 'a', resting, used=0.0)
        self.assertEqual({'b'}, resting.unpinned)
        self.loose_after(12, vms, 'a', resting, used=0.0)
        self.assertEqual((set(), {'b'}), (resting.unpinned, resting.idle))
        idle = resting.idle
        self.loose_after(1, vms, 'a', resting, used=0.0)
        self.assertIs(idle, resting.idle)
        self.loose_after(1, vms, 'ab', resting, used=2.0)
        self.assertEqual((set(), set()), (resting.unpinned, resting.idle))

    def test_the_same_object_while_they_stay(self):
        vms, resting = [vm('a'), vm('b')], unpinned.NonParticipants(5)
        before = self.loose_after(6, vms, 'a', resting)
        self.assertIs(before, self.loose_after(9, vms, 'a', resting))
