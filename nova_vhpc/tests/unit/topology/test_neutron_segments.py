# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.topology.neutron_segments`."""

from typing import Any

from oslotest import base

from nova_vhpc.topology import neutron_segments


def network(*segments: tuple[str | None, int | None]) -> dict[str, Any]:
    """Return a network as Neutron's API does."""
    return {
        'id': 'n-1',
        'name': 'hpc',
        'segments': [
            {
                'provider:network_type': 'vlan' if vlan else 'flat',
                'provider:physical_network': physnet,
                'provider:segmentation_id': vlan,
            }
            for physnet, vlan in segments
        ],
    }


# As Neutron 29 reports them.
OVN = {
    'host': 'h1',
    'agent_type': 'OVN Controller agent',
    'configurations': {'bridge-mappings': 'hpc0:br-hpc0,hpc1:br-hpc1'},
}
ML2 = {
    'host': 'h2',
    'agent_type': 'Open vSwitch agent',
    'configurations': {
        'bridge_mappings': {'hpc0': 'br-hpc0', 'hpc1': 'br-hpc1'}
    },
}
DHCP = {'host': 'h3', 'agent_type': 'DHCP agent', 'configurations': {}}
SEVERAL = network(('hpc0', 5), ('hpc1', 6))
SAME_VLAN = network(('hpc0', 5), ('hpc1', 5))


class ProblemsTest(base.BaseTestCase):
    def problems(
        self, networks: dict[str, Any], *agents: dict[str, Any]
    ) -> list[str]:
        return neutron_segments.problems(
            [networks], neutron_segments.mappings(agents)
        )

    def test_several_segments_on_a_host_of_ovn_are_named(self) -> None:
        (problem,) = self.problems(SEVERAL, OVN, DHCP)
        for word in ('hpc (n-1)', 'h1', 'hpc0 VLAN 5', 'hpc1 VLAN 6', 'Map'):
            self.assertIn(word, problem)

    def test_dead_agents_map_nothing(self) -> None:
        self.assertEqual([], self.problems(SEVERAL, OVN | {'alive': False}))

    def test_several_segments_on_hosts_of_ml2_are_fine(self) -> None:
        self.assertEqual([], self.problems(SEVERAL, ML2, DHCP))

    def test_one_vlan_on_a_host_of_ml2_is_named(self) -> None:
        (problem,) = self.problems(SAME_VLAN, ML2)
        for word in ('hpc (n-1)', 'h2', 'hpc0 VLAN 5', 'different VLANs'):
            self.assertIn(word, problem)
        flat = network(('hpc0', None), ('hpc1', None))
        self.assertEqual(1, len(self.problems(flat, ML2)))

    def test_segments_that_no_host_maps_together_are_fine(self) -> None:
        other = {
            **OVN,
            'configurations': {'bridge-mappings': 'hpc0:br-hpc0'},
        }
        for one in (SEVERAL, SAME_VLAN):
            self.assertEqual([], self.problems(one, other))

    def test_networks_of_one_segment_are_fine(self) -> None:
        for one in (
            network(('hpc0', 5)),
            network(('hpc0', 5), (None, 7)),
            {'id': 'n-2', 'name': 'tenant'},
        ):
            self.assertEqual([], self.problems(one, OVN, ML2))

    def test_few_of_many_hosts_are_named(self) -> None:
        (problem,) = self.problems(
            SEVERAL, *({**OVN, 'host': f'h{number}'} for number in range(9))
        )
        self.assertIn('h0, h1, h2, h3, ... (', problem)
