# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import itertools

from nova import objects
from oslotest import base

from nova_vhpc.scheduler.hosts import networks
from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.topology import model

HPC1 = 'CUSTOM_PHYSNET_HPC1'


def metadata(*physnets, tunneled=False):
    return objects.NetworkMetadata(physnets=set(physnets), tunneled=tunneled)


def uplink(*physnets, tunnel=False):
    return snapshot.UplinkState(
        'uuid',
        model.BridgeKind.SEPARATE,
        'br1',
        'eth1',
        1000,
        1,
        0,
        frozenset(physnets),
        tunnel,
    )


class OfMemberTest(base.BaseTestCase):
    def test_networks_are_those_that_nova_names(self):
        found = networks.of_member(metadata('hpc0', 'hpc1'), [HPC1])
        self.assertEqual({'CUSTOM_PHYSNET_HPC0', HPC1}, found.physnets)
        self.assertFalse(found.tunneled)

    def test_unknown_networks_are_those_of_the_port_requests(self):
        for unknown in (None, metadata()):
            self.assertEqual(
                networks.Networks(frozenset([HPC1])),
                networks.of_member(unknown, [HPC1]),
            )

    def test_without_any_word_networks_are_unknown(self):
        for unknown in (None, metadata()):
            self.assertIsNone(networks.of_member(unknown, []))

    def test_tunneled_network_counts_beside_others(self):
        found = networks.of_member(metadata('hpc1', tunneled=True), [])
        self.assertEqual((frozenset([HPC1]), True), found[:2])


class ProblemTest(base.BaseTestCase):
    """Which uplinks serve which servers, where hosts have encap IPs."""

    def serving(self, of_server, encap_ips=True):
        """The kinds of uplinks that serve a server."""
        uplinks = {
            'physnet': uplink(HPC1),
            'other': uplink('CUSTOM_PHYSNET_OTHER'),
            'unknown': uplink(),
            'tunnel': uplink(tunnel=True),
            'both': uplink(HPC1, tunnel=True),
        }
        wanted = of_server.with_encap_ips(encap_ips)
        return {n for n, each in uplinks.items() if not wanted.problem(each)}

    def test_provider_network_uses_uplinks_on_its_physical_network(self):
        for encap_ips in (True, False):
            self.assertEqual(
                {'physnet', 'unknown', 'both'},
                self.serving(networks.Networks(frozenset([HPC1])), encap_ips),
            )

    def test_tunneled_network_uses_uplinks_with_encap_ips(self):
        tunneled = networks.Networks(tunneled=True)
        self.assertEqual({'tunnel', 'both'}, self.serving(tunneled))

    def test_server_on_both_uses_the_uplinks_of_either(self):
        both = networks.Networks(frozenset([HPC1]), tunneled=True)
        self.assertEqual(
            {'physnet', 'unknown', 'tunnel', 'both'}, self.serving(both)
        )

    def test_without_encap_ips_tunneled_servers_use_any_uplink(self):
        for physnets in (frozenset(), frozenset([HPC1])):
            tunneled = networks.Networks(physnets, tunneled=True)
            self.assertEqual(5, len(self.serving(tunneled, encap_ips=False)))

    def test_problem_names_uplink_and_networks(self):
        for text, of_server, tunnel in (
            ('has no encap IP', networks.Networks(tunneled=True), False),
            ('is on CUSTOM_PHYSNET_X', networks.Networks({HPC1}), False),
            ('for tunnels only', networks.Networks({HPC1}), True),
        ):
            physnets = () if tunnel else ('CUSTOM_PHYSNET_X',)
            problem = of_server.with_encap_ips(True).problem(
                uplink(*physnets, tunnel=tunnel)
            )
            self.assertIn(text, problem)
            self.assertIn('NIC eth1 on bridge br1', problem)

    def test_networks_are_listed_for_operators(self):
        texts = {
            str(networks.Networks(physnets, tunneled))
            for physnets, tunneled in itertools.product(
                (frozenset(), frozenset([HPC1])), (False, True)
            )
        }
        self.assertEqual({'', 'tunnels', HPC1, HPC1 + ' and tunnels'}, texts)
