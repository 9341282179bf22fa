# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Managed, refused and unmanaged guests."""

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


class GuestRegistryTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guests = make()

    def test_guests_are_a_snapshot(self) -> None:
        before = self.guests.by_uuid
        guest = test_guest.make()
        self.guests.add(guest)
        self.assertEqual({}, before)
        self.assertEqual({'u': guest}, self.guests.by_uuid)
        self.assertEqual('vm', self.guests.name('u'))
        self.assertTrue(self.guests.forget('u'))
        self.assertFalse(self.guests.forget('u'))
        self.assertEqual('u', self.guests.name('u'))

    def test_added_guest_is_no_longer_refused(self) -> None:
        self.guests.refuse('u', 'because')
        self.assertEqual({'u': 'because'}, self.guests.refused)
        self.guests.add(test_guest.make())
        self.assertEqual({}, self.guests.refused)

    def test_refusal_ends_when_the_vm_stops(self) -> None:
        """Also if libvirt was away then, and sent no event."""
        for uuid in 'ab':
            self.guests.refuse(uuid, 'because')
        self.guests.forget_stopped({'b'})
        self.assertEqual({'b': 'because'}, self.guests.refused)

    def test_unmanaged_vm_is_known_until_it_changes_or_stops(self) -> None:
        self.guests.add_unmanaged('a', (1, 10))
        self.guests.add_unmanaged('b', (2, 20))
        self.assertTrue(self.guests.is_unmanaged('a', (1, 10)))
        self.assertFalse(self.guests.is_unmanaged('a', (1, 11)))
        self.guests.forget_stopped({'b'})
        self.assertFalse(self.guests.is_unmanaged('a', (1, 10)))
        self.assertTrue(self.guests.is_unmanaged('b', (2, 20)))
        self.guests.forget_unmanaged('b')
        self.assertFalse(self.guests.is_unmanaged('b', (2, 20)))

    def test_unmanaged_vm_is_looked_at_again_if_host_cpus_change(self) -> None:
        """libvirt then lists other CPUs for VMs without pins."""
        self.guests.add_unmanaged('a', (1, 10))
        cpus = frozenset({0})
        self.guests.unmanaged.usable = lambda: cpus
        self.assertFalse(self.guests.is_unmanaged('a', (1, 10)))
        self.guests.add_unmanaged('a', (1, 10))
        self.assertTrue(self.guests.is_unmanaged('a', (1, 10)))

    def test_added_guest_is_no_longer_unmanaged(self) -> None:
        self.guests.add_unmanaged('u', (1, 10))
        self.guests.add(test_guest.make())
        self.assertFalse(self.guests.is_unmanaged('u', (1, 10)))
