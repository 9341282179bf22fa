# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Host CPUs that are switched on or off are no external change."""

import dataclasses
from unittest import mock

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.tests.unit.agent.external_changes import policy_case
from nova_vhpc.tests.unit.agent.restore import test_cputune

BOTH = frozenset({0, 1})


class CpuHotplugTest(policy_case.PolicyTestCase):
    def switch_off(self) -> None:
        """Switch off the second of the host's two CPUs."""
        self.domain.online = (True, False)
        self.domain.pins = [(True, False)] * 2

    def test_cpu_switched_off_is_no_external_change(self) -> None:
        for choice in ('respect', 'override'):
            self.domain.online = (True, True)
            self.domain.pins = [(True, True)] * 2
            guest = self.make(journalled=True)
            guest.original = guest.expected
            guest.note_written({cputune.SHARES: 7})
            self.domain.values[cputune.SHARES] = 7
            self.switch_off()
            self.assertEqual(0, self.look(guest, choice))
            self.assertEqual(frozenset(), guest.external)
            only = (frozenset({0}),) * 2
            self.assertEqual(only, guest.in_force.vcpu_pins)
            self.assertEqual(only, guest.original_tune.vcpu_pins)
            self.assertEqual({0}, guest.allowed_cpus)
            self.assertTrue(guest.is_floating)

    def test_cpu_switched_off_before_a_restore_is_no_external_change(
        self,
    ) -> None:
        guest = self.make(journalled=True)
        guest.original = guest.expected
        self.switch_off()
        self.changes().respect_unchecked(guest)
        self.assertEqual(frozenset(), guest.external)

    def test_external_pins_do_not_follow_the_online_cpus(self) -> None:
        guest = self.make(journalled=True)
        guest.original = guest.expected
        cputune.write_pin(self.domain, 0, frozenset({0}), 2)
        guest.note_written(pins={0: frozenset({0})})
        self.domain.pins = [(False, True), (True, False)]
        self.domain.online = (True, False)
        self.assertEqual(1, self.look(guest))
        self.assertEqual({cputune.pin_name(0)}, guest.external)

    def came_after_it_was_pinned(self) -> Guest:
        """Switch on the second CPU after a floating guest was pinned."""
        only = frozenset({0})
        guest = self.make(journalled=True, online=only)
        self.domain.pins = [(True, False)] * 2
        guest.set_expected(cputune.read(self.domain))
        guest.original = guest.expected
        guest.allowed_cpus = only
        self.assertTrue(guest.is_floating)
        return guest

    def assert_uses_all(self, guest: Guest) -> None:
        both = (BOTH,) * 2
        self.assertEqual(both, guest.original.vcpupins)
        self.assertEqual(both, guest.original_tune.vcpu_pins)
        self.assertEqual(BOTH, guest.allowed_cpus)
        self.assertTrue(guest.is_floating)
        self.assertEqual((frozenset({0}),) * 2, guest.in_force.vcpu_pins)

    def test_new_cpu_is_added_to_the_original_of_a_pinned_guest(self) -> None:
        for lock_free_weights in (frozenset(), frozenset({1024})):
            guest = self.came_after_it_was_pinned()
            guest.lock_free_weights = lock_free_weights
            self.assertEqual(0, self.look(guest))
            self.assert_uses_all(guest)
            self.assertEqual(guest.original, self.journal.load('u').original)
            self.assertTrue(self.domain.has_metadata_copy)
            self.domain.has_metadata_copy = False
            self.assertEqual(0, self.look(guest))
            self.assertFalse(self.domain.has_metadata_copy)
            cputune_restore.restore(self.domain, guest.original)
            self.assertEqual([(True, True)] * 2, self.domain.pins)

    def test_cpu_plugged_into_the_host_is_added_to_the_original(self) -> None:
        self.domain.online = (True,) * 3
        for pin in ((True, True, True), (True, False, False)):
            guest = self.make(journalled=True, online=BOTH)
            guest.original = guest.expected
            self.domain.pins = [pin] * 2
            guest.note_written(pins=dict.fromkeys(range(2), frozenset({0})))
            self.assertEqual(0, self.look(guest))
            self.assertEqual(
                (frozenset({0, 1, 2}),) * 2, guest.original.vcpupins
            )
            self.assertEqual(3, guest.expected.host_cpus)
            self.assertEqual(guest.original, self.journal.load('u').original)

    def test_new_cpu_is_added_by_a_restore_without_a_check(self) -> None:
        guest = self.came_after_it_was_pinned()
        self.changes().respect_unchecked(guest)
        self.assert_uses_all(guest)
        self.assertEqual((), self.journal.uuids())

    def test_original_is_adapted_again_if_the_journal_failed(self) -> None:
        guest = self.came_after_it_was_pinned()
        full = JournalError('full')
        with mock.patch.object(self.journal, 'save', side_effect=full):
            self.assertRaises(JournalError, self.look, guest)
        self.look(guest)
        self.assertEqual(guest.original, self.journal.load('u').original)

    def test_new_cpu_is_added_beside_vcpus_that_are_not_plugged_in(
        self,
    ) -> None:
        for spare in ((True, True), (False, False)):
            guest = self.came_after_it_was_pinned()
            self.domain.pins += [spare]
            xml = self.domain.XMLDesc(0).replace('>2<', '>3<')
            xml = xml.replace("<vcpupin vcpu='2'/>", '')
            with mock.patch.object(self.domain, 'XMLDesc', return_value=xml):
                self.look(guest)
            self.assertEqual(
                (BOTH, BOTH, cputune.pin_cpus(spare)), guest.original.vcpupins
            )

    def test_new_cpu_is_not_added_to_a_confined_guest(self) -> None:
        for change in ({'cpuset': frozenset({0})}, {'placed': True}):
            guest = self.came_after_it_was_pinned()
            guest.set_info(dataclasses.replace(guest.info, **change))
            self.assertEqual(0, self.look(guest))
            self.assertEqual({0}, guest.allowed_cpus)
            self.assertFalse(self.domain.has_metadata_copy)


ALL = frozenset({0, 1, 2, 3})


class CpusetV1(test_cputune.CpusetV1, policy_case.Domain):
    """A domain in cgroup v1, which refuses CPUs that were off."""


class NarrowedPinsTest(policy_case.PolicyTestCase):
    """One vCPU is pinned externally; the other is restored in part."""

    def setUp(self) -> None:
        super().setUp()
        self.domain = CpusetV1()
        self.domain.cpuset = ALL
        self.domain.online = (True,) * 4
        self.domain.pins = [(True,) * 4] * 2
        self.guest = self.make(journalled=True)
        self.guest.original = dataclasses.replace(
            self.guest.expected, host_cpus=4
        )
        self.domain.pins = [tuple(cpu == 0 for cpu in range(4))] * 2
        self.guest.set_expected(cputune.read(self.domain))
        self.domain.pins[0] = tuple(cpu == 2 for cpu in range(4))

    def check(self, left: frozenset[int]) -> None:
        self.assertEqual(1, self.look(self.guest))
        self.assertEqual(left, cputune.pin_cpus(self.domain.pins[1]))
        # The narrower pins are no external change, and are not retried.
        with mock.patch.object(self.domain, 'pinVcpuFlags') as pin:
            self.assertEqual(0, self.look(self.guest))
        pin.assert_not_called()
        self.assertEqual(self.guest.external, self.journal.load('u').external)

    def test_original_pins_are_restored_without_cpus_that_are_off(
        self,
    ) -> None:
        self.domain.online = (True, True, True, False)
        self.check(ALL - {3})

    def test_original_pins_are_restored_without_cpus_the_group_lacks(
        self,
    ) -> None:
        """The kernel does not give CPUs back to existing groups."""
        self.domain.cpuset = ALL - {1}
        self.check(ALL - {1})
