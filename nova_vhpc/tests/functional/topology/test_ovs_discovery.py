# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Discovery on a real Open vSwitch, read from its real database."""

import subprocess

from oslotest import base

from nova_vhpc.tests.functional.topology import ovs_lab
from nova_vhpc.topology import bridge_rules, discovery, model


class OvsDiscoveryTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.lab = self.useFixture(ovs_lab.OvsLab())
        self.switch = self.lab.switch
        self.ovsdb = self.lab.connect()

    def discover(self, *texts: str) -> discovery.Findings:
        self.lab.settle(self.ovsdb)
        return discovery.Discovery(
            bridge_rules.parse_rules(texts),
            nic_patterns=[self.lab.links.prefix + 'n*'],
            open_vswitch=self.ovsdb.read,
        ).discover('node')

    def uplinks(self, *texts: str) -> dict[tuple[str, str], model.Uplink]:
        findings = self.discover(*texts)
        self.assertEqual((), findings.problems + findings.notes)
        return {(u.bridge, u.nic): u for u in findings.topology.uplinks}

    def bond(self, bridge: str, *nics: str, **columns: str) -> None:
        self.switch.vsctl(
            *('add-bond', bridge, 'bond0', *nics),
            *(f'{column}={text}' for column, text in columns.items()),
        )

    def test_host_of_ovn_is_discovered_without_rules(self) -> None:
        n1, n2, n3 = (self.lab.veth(f'n{number}') for number in (1, 2, 3))
        provider = self.lab.bridge('b1', n1)
        tunnels = self.lab.bridge('b2', n2)
        self.lab.bridge('b3', self.lab.veth('n4'))
        self.lab.address(tunnels, '10.77.2.1')
        self.lab.address(n3, '10.77.3.1')
        self.lab.ovn(
            ovn_bridge_mappings=f'hpc0:{provider}',
            ovn_encap_ip='10.77.2.1,10.77.3.1',
        )
        uplinks = self.uplinks()
        self.assertEqual(
            {
                (provider, n1): (('hpc0',), None),
                (tunnels, n2): ((), '10.77.2.1'),
                (n3, n3): ((), '10.77.3.1'),
            },
            {k: (u.physnets, u.encap_ip) for k, u in uplinks.items()},
        )
        for uplink in uplinks.values():
            # veth says 10 Gbit/s.
            self.assertEqual((True, 10000), (uplink.up, uplink.mbps))

    def test_link_that_goes_down_is_down(self) -> None:
        nic = self.lab.veth('n1')
        bridge = self.lab.bridge('b1', nic)
        self.lab.ovn(ovn_bridge_mappings=f'hpc0:{bridge}')
        self.lab.links.set(nic + 'x', state='down')
        (uplink,) = self.uplinks().values()
        self.assertFalse(uplink.up)

    def test_bridge_behind_a_mapped_one_has_its_physnet(self) -> None:
        nic = self.lab.veth('n1')
        mapped, behind = self.lab.bridge('b1'), self.lab.bridge('b2', nic)
        integration = self.lab.bridge('bi', self.lab.veth('n2'))
        self.lab.patch(mapped, behind)
        self.lab.patch(integration, mapped)
        self.lab.ovn(
            ovn_bridge=integration, ovn_bridge_mappings=f'hpc0:{mapped}'
        )
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual((behind, nic), place)
        self.assertEqual(('hpc0',), uplink.physnets)

    def test_bridge_patched_onto_a_mapped_one_shares_its_wire(self) -> None:
        nic = self.lab.veth('n1')
        first, second = self.lab.bridge('b1', nic), self.lab.bridge('b2')
        self.lab.patch(second, first)
        self.lab.ovn(ovn_bridge_mappings=f'hpc0:{first},hpc1:{second}')
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual((first, nic), place)
        self.assertEqual(('hpc0', 'hpc1'), uplink.physnets)

    def test_veth_pair_leads_to_the_next_bridge(self) -> None:
        nic, joint = self.lab.veth('n1'), self.lab.veth('j1')
        mapped = self.lab.bridge('b1', joint)
        behind = self.lab.bridge('b2', joint + 'x', nic)
        self.lab.ovn(ovn_bridge_mappings=f'hpc0:{mapped}')
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual((behind, nic), place)
        self.assertEqual(('hpc0',), uplink.physnets)

    def test_encap_ip_on_the_loopback_interface_steers_nothing(self) -> None:
        self.lab.address('lo', '10.77.9.1')
        self.addCleanup(
            subprocess.run,
            ['ip', 'address', 'del', '10.77.9.1/24', 'dev', 'lo'],
            check=True,
        )
        self.lab.ovn(ovn_encap_ip='10.77.9.1')
        findings = self.discover()
        self.assertEqual((), findings.topology.uplinks)
        (note,) = findings.notes
        self.assertIn('routes its tunnels', note)

    def test_bond_is_one_uplink_until_guests_stay_on_members(self) -> None:
        n1, n2 = self.lab.veth('n1'), self.lab.veth('n2')
        bridge = self.lab.bridge('b1')
        self.bond(bridge, n1, n2, bond_mode='balance-slb')
        self.lab.ovn(ovn_bridge_mappings=f'hpc0:{bridge}')
        findings = self.discover()
        (uplink,) = findings.topology.uplinks
        self.assertEqual((bridge, 'bond0'), (uplink.bridge, uplink.nic))
        self.assertEqual((True, 20000), (uplink.up, uplink.mbps))
        (note,) = findings.notes
        self.assertIn('bond0', note)
        self.switch.vsctl(
            *('set', 'Port', 'bond0'),
            'other_config:bond-rebalance-interval=0',
        )
        self.lab.links.set(n2 + 'x', state='down')
        self.assertEqual(
            {(bridge, n1): ('bond0', True), (bridge, n2): ('bond0', False)},
            {k: (u.bond, u.up) for k, u in self.uplinks().items()},
        )

    def test_port_that_the_kernel_does_not_have_is_known(self) -> None:
        """As one of DPDK, which this Open vSwitch cannot open."""
        bridge = self.lab.bridge('b1')
        self.switch.vsctl(
            *('--no-wait', 'add-port', bridge, 'dpdk0'),
            *('--', 'set', 'Interface', 'dpdk0', 'type=dpdk'),
        )
        self.lab.ovn(ovn_bridge_mappings=f'hpc0:{bridge}')
        (uplink,) = self.uplinks().values()
        self.assertEqual(('dpdk0', False), (uplink.nic, uplink.up))
