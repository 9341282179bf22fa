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

"""Who is ours, who is refused, who is not ours."""

from oslotest import base

from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.probes import unmanaged
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent.guests import test_guest


def make() -> registry.GuestRegistry:
    return registry.GuestRegistry(
        unmanaged.UnmanagedVms(
            qemu_process.Processes('/nowhere', '/nowhere'), frozenset
        )
    )


class TestGuestRegistry(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guests = make()

    def test_guests_are_a_snapshot(self) -> None:
        before = self.guests.by_uuid
        target = test_guest.make()
        self.guests.add(target)
        self.assertEqual({}, before)
        self.assertEqual({'u': target}, self.guests.by_uuid)
        self.assertEqual('vm', self.guests.name('u'))
        self.assertTrue(self.guests.forget('u'))
        self.assertFalse(self.guests.forget('u'))
        self.assertEqual('u', self.guests.name('u'))

    def test_a_vm_that_is_taken_in_is_refused_no_more(self) -> None:
        self.guests.refuse('u', 'because')
        self.assertEqual({'u': 'because'}, self.guests.refused)
        self.guests.add(test_guest.make())
        self.assertEqual({}, self.guests.refused)

    def test_refused_until_it_ends(self) -> None:
        """Also where libvirt was away then, and no event told of it."""
        for uuid in 'ab':
            self.guests.refuse(uuid, 'because')
        self.guests.forget_stopped({'b'})
        self.assertEqual({'b': 'because'}, self.guests.refused)

    def test_others_until_they_change_or_end(self) -> None:
        self.guests.add_unmanaged('a', (1, 10))
        self.guests.add_unmanaged('b', (2, 20))
        self.assertTrue(self.guests.is_unmanaged('a', (1, 10)))
        self.assertFalse(self.guests.is_unmanaged('a', (1, 11)))
        self.guests.forget_stopped({'b'})
        self.assertFalse(self.guests.is_unmanaged('a', (1, 10)))
        self.assertTrue(self.guests.is_unmanaged('b', (2, 20)))
        self.guests.forget_unmanaged('b')
        self.assertFalse(self.guests.is_unmanaged('b', (2, 20)))

    def test_others_until_cpus_of_the_host_come_or_go(self) -> None:
        """For who is not pinned libvirt tells other CPUs then."""
        self.guests.add_unmanaged('a', (1, 10))
        cpus = frozenset({0})
        self.guests.unmanaged.usable = lambda: cpus
        self.assertFalse(self.guests.is_unmanaged('a', (1, 10)))
        self.guests.add_unmanaged('a', (1, 10))
        self.assertTrue(self.guests.is_unmanaged('a', (1, 10)))

    def test_one_of_the_others_that_opts_in(self) -> None:
        self.guests.add_unmanaged('u', (1, 10))
        self.guests.add(test_guest.make())
        self.assertFalse(self.guests.is_unmanaged('u', (1, 10)))
