# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Adoption of domains that another host or an earlier agent managed."""

from unittest import mock

import fixtures
import libvirt

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import reconcile
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

OWN = '<cputune><period>50000</period><quota>20000</quota></cputune>'

PINS = (
    "<cputune><vcpupin vcpu='0' cpuset='{}'/>"
    "<vcpupin vcpu='1' cpuset='{}'/></cputune>"
)


class RepinTest(manager_case.ManagerTestCase):
    """Nova makes the live XML that it migrates the persistent one, too."""

    def test_pins_to_all_cpus_do_not_forbid_pinning(self) -> None:
        """The guest was restored before it migrated."""
        self.domain.extra = PINS.format('0-1', '0-1')
        self.assertTrue(self.look().repin)

    def test_definition_with_pins_does_not_forbid_pinning_if_none_are_in_force(
        self,
    ) -> None:
        """The guest was not, and the agent of this host was restarted."""
        self.domain.extra = PINS.format(0, 1)
        self.assertTrue(self.look().repin)

    def test_pins_set_by_an_operator_forbid_pinning(self) -> None:
        self.domain.extra = PINS.format(0, 1)
        self.domain.pins = [(True, False), (False, True)]
        self.assertFalse(self.look().repin)

    def test_numa_placement_by_nova_forbids_pinning(self) -> None:
        self.domain.extra = (
            PINS.format('0-1', '0-1')
            + "<numatune><memory nodeset='0'/></numatune>"
        )
        self.assertFalse(self.look().repin)


class ConfinedTest(manager_case.ManagerTestCase):
    """systemd keeps CPUs from all guests; pins to these are refused."""

    def confined(self, *cpus: int) -> frozenset[int] | None:
        """Return the allowed CPUs of a guest in a control group."""
        self.useFixture(
            fixtures.MockPatchObject(
                qemu_process.Processes,
                'confined_to',
                lambda host, pid: frozenset(cpus) or None,
            )
        )
        return self.look().allowed_cpus

    def test_guest_is_pinned_only_within_its_control_group(self) -> None:
        self.assertEqual({1}, self.confined(1))

    def test_guest_without_cpuset_may_use_all_its_cpus(self) -> None:
        self.assertEqual({0, 1}, self.confined())

    def test_cpuset_without_any_of_its_cpus_is_ignored(self) -> None:
        """No other pins would be possible either."""
        self.assertEqual({0, 1}, self.confined(7))


class IncomingTest(manager_case.ManagerTestCase):
    """While a domain is migrated to this host, libvirt delays writes."""

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(
            fixtures.MockPatchObject(reconcile, 'INCOMING_S', 0.01)
        )
        self.domain.comes = True

    def find(self) -> None:
        self.manager.enqueue('u')
        self.drain()

    def test_incoming_domain_is_not_adopted_before_it_arrives(self) -> None:
        self.find()
        self.assertEqual({}, dict(self.manager.guests))

    def test_arrived_domain_is_adopted_without_an_event(self) -> None:
        self.find()
        self.domain.comes = False
        waiting.wait_for(lambda: self.manager.guests)
        self.assertIn('u', self.manager.guests)

    def test_incoming_domain_is_not_restored_yet(self) -> None:
        self.domain.metadata_xml = 'x'
        for specs in (self.domain.specs, {}):
            self.domain.specs = specs
            self.find()
        self.assertEqual([], self.domain.written)

    def test_incoming_domain_has_only_one_timer(self) -> None:
        with mock.patch('threading.Timer') as timer:
            for _ in range(3):
                self.find()
        self.assertEqual(1, timer.call_count)


class OutgoingTest(manager_case.ManagerTestCase):
    """The agent starts while a domain is migrated away."""

    def test_guest_found_while_it_migrates_is_written_only_once_it_stays(
        self,
    ) -> None:
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        guest = self.look()
        self.write(guest)
        self.assertFalse(self.manager.set_shares('u', 20))
        self.assertEqual([], self.domain.written)
        self.domain.job = 0
        self.write(self.look())
        self.assertIn('values', self.domain.written)


class NextRunTest(manager_case.ManagerTestCase):
    """The domain was started again while libvirtd did not run."""

    def test_next_run_with_the_same_id_is_adopted_as_a_new_guest(self) -> None:
        """A restarted libvirtd counts run IDs anew."""
        pid = 7
        with mock.patch.object(
            qemu_process.Processes,
            'identity',
            lambda host, uuid, run: qemu_process.Identity('b', pid, pid, run),
        ):
            guest = self.look()
            self.write(guest)
            pid = 8
            self.domain.values = {
                **fake_libvirt.ORIGINAL,
                cputune.PERIOD: 50_000,
                cputune.QUOTA: 20_000,
            }
            self.domain.extra = OWN
            self.domain.metadata_xml = None
            found = self.look()
        self.assertIsNot(guest, found)
        self.assertEqual(self.domain.values, found.original.parameters)
        self.assertEqual(frozenset(), found.external)
        self.assertEqual((), self.journal.uuids())
