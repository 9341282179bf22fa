# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Entries of a real bond: what is refused, shared, lost and left."""

import itertools
import os
import signal

from nova_vhpc.tests.functional.agent import bond_entry, encap_ip
from nova_vhpc_lab.ovn import lab

VLAN_WORD = str(bond_entry.VLAN)


class BondEntryTest(bond_entry.BondEntryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.host = self.hosts['h1']
        self.target = self.guest('h1', sends=True)

    def speak(self, guest: encap_ip.Guest) -> None:
        """Let a guest send a frame to all: it asks for an unknown address."""
        guest.place.shell('sh', '-c', 'ping -c 1 -W 0.1 192.0.2.251 || true')

    def entry(self, guest: encap_ip.Guest, basis: int = 0) -> str:
        return self.host.appctl(
            'bond/hash', guest.mac, VLAN_WORD, str(basis)
        ).strip()

    def set_bond(self, *columns: str) -> None:
        self.host.vsctl('set', 'Port', self.host.bond, *columns)
        self.addCleanup(
            self.host.vsctl, 'set', 'Port', self.host.bond, *bond_entry.SLB
        )

    def assert_refused(self, agent: bond_entry.Agent, *words: str) -> None:
        lab.wait_for(lambda: agent.problem(self.target), 'the problem')
        for word in (self.host.bond, self.host.name, *words):
            self.assertIn(word, agent.problem(self.target))

    def test_silent_guest_is_bound_by_its_first_frame(self) -> None:
        agent = self.bond_agent('h1')
        agent.manage(self.target, 1)
        lab.wait_for(agent.entries.uuids, 'the guest')
        self.assertEqual('', agent.in_force(self.target))
        self.assertEqual('', agent.problem(self.target))
        self.speak(self.target)
        self.wait_for_member(agent, self.target, 1)

    def test_vlan_that_neutrons_agent_has_recorded_is_used(self) -> None:
        """As its Open vSwitch agent writes it, before the first frame."""
        self.host.vsctl(
            *('set', 'Port', self.target.tap),
            'other_config:network_type=vlan',
            f'other_config:physical_network={bond_entry.PHYSNET}',
            f'other_config:segmentation_id={VLAN_WORD}',
            'other_config:tag=5',
        )
        agent = self.bond_agent('h1')
        agent.manage(self.target, 1)
        self.wait_for_member(agent, self.target, 1)

    def test_bond_that_is_no_slb_bond_is_refused_by_name(self) -> None:
        self.set_bond('bond_mode=active-backup')
        agent = self.bond_agent('h1')
        agent.manage(self.target, 1)
        self.assert_refused(agent, 'active-backup', 'balance-slb')

    def test_bond_that_rebalances_is_refused(self) -> None:
        self.set_bond('other_config:bond-rebalance-interval=10000')
        agent = self.bond_agent('h1')
        agent.manage(self.target, 1)
        self.assert_refused(agent, 'balance their load')

    def test_two_guests_in_one_entry_are_reported(self) -> None:
        """And another basis of the bond mends it."""
        agent = self.bond_agent('h1')
        agent.manage(self.target, 1)
        self.speak(self.target)
        self.wait_for_member(agent, self.target, 1)
        other = self.guest_in_entry(self.entry(self.target))
        agent.manage(other, 0)
        self.speak(other)
        lab.wait_for(lambda: agent.problem(other), 'the problem')
        for word in (
            *(self.target.uuid, other.uuid, self.host.name),
            f'entry {self.entry(other)}',
            'bond-hash-basis',
        ):
            self.assertIn(word, agent.problem(other))
        self.wait_for_member(agent, self.target, 1)

        basis = next(
            basis
            for basis in itertools.count(1)
            if self.entry(other, basis) != self.entry(self.target, basis)
        )
        self.set_bond(f'other_config:bond-hash-basis={basis}')
        self.addCleanup(
            self.host.vsctl,
            *('remove', 'Port', self.host.bond),
            *('other_config', 'bond-hash-basis'),
        )
        self.wait_for_member(agent, other, 0)
        self.wait_for_member(agent, self.target, 1)
        self.assertEqual({}, agent.binder.status()['problems'])

    def guest_in_entry(self, entry: str) -> encap_ip.Guest:
        """Return a guest whose frames have an entry."""
        for number in itertools.count():
            mac = f'fa:16:3e:01:{number >> 8:02x}:{number & 255:02x}'
            answer = self.host.appctl('bond/hash', mac, VLAN_WORD)
            if answer.strip() == entry:
                return self.guest('h1', sends=True, mac=mac)
        raise AssertionError(entry)

    def test_nothing_is_left_in_the_database(self) -> None:
        # OVN makes patch ports once a port of the network is on the host.
        self.lab.nbctl('--wait=hv', 'sync')
        before = self.contents('h1')
        agent = self.bond_agent('h1')
        agent.manage(self.target, 1)
        self.speak(self.target)
        self.wait_for_member(agent, self.target, 1)
        agent.binder.stop()
        self.assertFalse(agent.binder.left)
        self.assertEqual(before, self.contents('h1'))

    def test_vswitchd_that_hangs_is_reported(self) -> None:
        agent = self.bond_agent('h1')
        agent.manage(self.target, 1)
        self.speak(self.target)
        self.wait_for_member(agent, self.target, 1)
        daemon = int((self.host.place.path / 'ovs-vswitchd.pid').read_text())
        os.kill(daemon, signal.SIGSTOP)
        try:
            lab.wait_for(lambda: agent.problem(self.target), 'the problem')
            self.assertIn('timed out', agent.problem(self.target))
            # Nothing need be restored, so that the agent can stop.
            agent.binder.stop()
            self.assertFalse(agent.binder.left)
        finally:
            os.kill(daemon, signal.SIGCONT)
