# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_vhpc.explain import steering
from nova_vhpc.explain.steering import Way
from nova_vhpc.flavor import recipes
from nova_vhpc.scheduler.hosts import networks, requirements
from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.topology import model

HPC1 = 'CUSTOM_PHYSNET_HPC1'


def uplink(number, **facts):
    return snapshot.UplinkState(
        f'uuid{number}',
        model.BridgeKind.SEPARATE,
        f'br{number}',
        f'eth{number}',
        1000,
        1,
        0,
        **facts,
    )


class SteeringTest(base.BaseTestCase):
    def of_host(self, *uplinks, claims=True, ports=(), **of_server):
        specs = recipes.recipe({'network': 'separate'}, ports=not claims)
        wanted = requirements.of_flavor(
            specs,
            1,
            port_requests=ports,
            networks=networks.Networks(**of_server) if of_server else None,
        )
        return steering.of_host(wanted, uplinks[:1], uplinks)

    def test_tunneled_packets_take_the_uplink_by_its_encap_ip(self):
        two = [uplink(n, tunnel=True) for n in (1, 2)]
        found = self.of_host(*two, tunneled=True, by_encap_ip=True)
        self.assertEqual((Way.ENCAP_IP, None), found)

    def test_only_encap_ip_of_a_host_steers_nothing(self):
        found = self.of_host(
            uplink(1, tunnel=True), uplink(2), tunneled=True, by_encap_ip=True
        )
        self.assertIsNone(found.way)
        self.assertIn('eth1 on bridge br1 has the only encap', found.reason)

    def test_tunneled_packets_need_an_encap_ip(self):
        found = self.of_host(uplink(1), tunneled=True)
        self.assertIsNone(found.way)
        self.assertIn('no packet of a tunneled network', found.reason)

    def test_provider_network_or_bond_steers(self):
        for bond, way in ((False, Way.PHYSNET), (True, Way.BOND)):
            one = uplink(1, physnets=frozenset([HPC1]), bond=bond)
            found = self.of_host(one, physnets=frozenset([HPC1]))
            self.assertEqual((way, None), found)

    def test_one_of_several_uplinks_of_a_network_is_not_steered(self):
        physnets = frozenset([HPC1])
        for bond, way in ((False, None), (True, Way.BOND)):
            found = self.of_host(
                *(uplink(n, physnets=physnets, bond=bond) for n in (1, 2)),
                physnets=physnets,
            )
            self.assertEqual(way, found.way)
        found = self.of_host(
            *(uplink(n, physnets=physnets) for n in (1, 2)), physnets=physnets
        )
        self.assertIn('eth2', found.reason)

    def test_unknown_physical_network_steers_nothing(self):
        found = self.of_host(uplink(1), physnets=frozenset([HPC1]))
        self.assertIsNone(found.way)
        self.assertIn('set physnet=', found.reason)

    def test_ports_bring_their_own_way(self):
        requests = (
            requirements.ports.PortRequest('group', {'X': 1}, frozenset()),
        )
        self.assertEqual(
            Way.PORTS, self.of_host(claims=False, ports=requests).way
        )

    def test_unknown_networks_and_missing_claims_are_said(self):
        self.assertIn('--tunneled', self.of_host(uplink(1)).reason)
        self.assertIn(
            'claims no uplink', self.of_host(uplink(1), claims=False).reason
        )

    def test_every_way_has_words(self):
        self.assertEqual(set(Way), set(steering.WORDS))


class OfRailsTest(base.BaseTestCase):
    def test_members_get_free_uplinks_of_their_rails(self):
        serving = [
            uplink(1, rail='10.1.0.0/24'),
            uplink(2, rail='10.2.0.0/24'),
            uplink(3, rail='10.1.0.0/24'),
        ]
        names = ('10.1.0.0/24', '10.2.0.0/24', '10.1.0.0/24')
        self.assertEqual(
            ['eth1', 'eth2', 'eth3'],
            [each.nic for each in steering.of_rails(names, serving)],
        )
        self.assertEqual((), steering.of_rails(('',), serving))
