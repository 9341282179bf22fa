# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A real agent publishes the members of a bond, and sets a guest's entry."""

import signal

from nova_vhpc.tests.functional.agent import binding_agent, bond_entry


class BondEntryAgentTest(binding_agent.BindingAgentCase):
    UPLINKS = 1

    def setUp(self) -> None:
        super().setUp()
        self.members = self.host.add_bond(
            'prov', 2, bond_entry.PHYSNET, *bond_entry.SLB
        )

    def plug(self) -> None:
        """Plug the port; the guest sends nothing, so its VLAN is recorded."""
        super().plug()
        self.host.vsctl(
            *('set', 'Port', self.tap, 'other_config:network_type=vlan'),
            f'other_config:physical_network={bond_entry.PHYSNET}',
            f'other_config:segmentation_id={bond_entry.VLAN}',
            'other_config:net_uuid=net1',
        )

    def start_bound(self) -> object:
        """Start the agent; wait until the second member is in force."""
        agent = self.start(
            [*self.members, self.host.nic('n0')],
            self.host.bridge('prov'),
            self.members[1],
        )
        self.wait_for(self.in_force, 'the entry')
        return agent

    def in_force(self) -> bool:
        binding = self.bound()
        if binding is None:
            return False
        uplink = binding['uplinks'][self.target.UUIDString()]
        self.assertEqual('bond_entry', uplink['binder'])
        member = f'{self.host.bond}/{self.members[1]}'
        return uplink['in_force'] == {binding_agent.MAC: member}

    def test_entry_follows_the_claim_and_nothing_is_left(self) -> None:
        before = self.host.external_ids(self.tap)
        agent = self.start_bound()
        self.assertEqual({}, self.status()['binding']['problems'])

        self.host.place.kill('ovs-vswitchd')
        self.wait_for(
            lambda: self.status()['binding']['problems'], 'the problem'
        )
        self.assertEqual([], self.status()['binding']['bound'])
        self.host.start_vswitchd()
        self.wait_for(self.in_force, 'the entry of the new ovs-vswitchd')

        # A hard reboot: another port, another run of the domain.
        self.target.destroy()
        self.host.unplug(self.tap)
        self.plug()
        self.target.create()
        self.wait_for(self.in_force, 'the entry after a hard reboot')

        self.stop_agent(agent, signal.SIGKILL)
        self.assertEqual(0, self.restore())
        agent = self.start_bound()
        self.assertEqual(0, self.stop_agent(agent))
        self.assertEqual(before, self.host.external_ids(self.tap))
        self.assertFalse((self.path / 'state' / 'encap-ips').exists())
