# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Discovery on hosts with Open vSwitch: a database and a sysfs, both made."""

from typing import Any

from nova_vhpc.tests.unit.topology import made_sysfs
from nova_vhpc.topology import (
    bridge_rules,
    discovery,
    links,
    model,
    open_vswitch,
)
from nova_vhpc.topology.open_vswitch import Bridge, Interface, Port


def single(name: str, **columns: Any) -> Port:
    return Port(name, (Interface(name, **columns),))


class OvsDiscoveryTest(made_sysfs.SysfsTestCase):
    """A host of OVN whose uplinks are as the tests say."""

    def setUp(self) -> None:
        super().setUp()
        self.bridges: list[Bridge] = []
        # Interface and subnet by IP address.
        self.addresses: dict[str, str] = {}
        self.subnets: dict[str, str] = {}
        self.options = {
            'ovn-remote': 'tcp:10.9.0.1:6642',
            'ovn-bridge-mappings': 'hpc1:br-hpc1',
        }
        self.ml2: open_vswitch.NeutronBridges | None = None
        self.away = False
        self.nic_patterns: list[str] = []

    def device(self, name: str, **files: str) -> None:
        (self.link(name, **files) / 'device').mkdir()

    def ovs_bridge(self, name: str, *ports: Port) -> None:
        # add-br leaves the interface of the bridge's name switched off.
        self.link(name, flags='0x1002')
        self.bridges.append(
            Bridge(name, (single(name, type='internal'), *ports))
        )

    def discover(self, *texts: str) -> discovery.Findings:
        ovs = open_vswitch.OpenVswitch(self.options, tuple(self.bridges))
        return discovery.Discovery(
            bridge_rules.parse_rules(texts),
            sysfs=self.sysfs,
            default_mbps=777,
            nic_patterns=self.nic_patterns,
            open_vswitch=lambda: None if self.away else ovs,
            ml2_bridges=lambda: self.ml2,
            addresses=lambda: {
                ip: links.Address(device, self.subnets.get(ip))
                for ip, device in self.addresses.items()
            },
        ).discover('node')

    def uplinks(self, *texts: str) -> dict[tuple[str, str], model.Uplink]:
        findings = self.discover(*texts)
        self.assertEqual((), findings.problems + findings.notes)
        return {(u.bridge, u.nic): u for u in findings.topology.uplinks}

    def problem(self, *texts: str) -> str:
        findings = self.discover(*texts)
        self.assertEqual((), findings.notes)
        (problem,) = findings.problems
        return problem


class PhysnetTest(OvsDiscoveryTest):
    def test_mapped_bridge_is_published_with_its_physnet(self) -> None:
        self.device('eth1')
        self.ovs_bridge('br-hpc1', single('eth1'))
        self.device('eth7')
        self.ovs_bridge('br-storage', single('eth7'))
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual(('br-hpc1', 'eth1'), place)
        self.assertEqual(('hpc1',), uplink.physnets)
        self.assertEqual((True, 100000), (uplink.up, uplink.mbps))
        self.assertIsNone(uplink.encap_ip)

    def test_physnet_of_a_rule_counts_more(self) -> None:
        self.device('eth1')
        self.ovs_bridge('br-hpc1', single('eth1'))
        (uplink,) = self.uplinks('br-*:separate:physnet=fabric').values()
        self.assertEqual(('fabric',), uplink.physnets)
        self.assertEqual(model.BridgeKind.SEPARATE, uplink.kind)
        self.assertEqual(1, uplink.slots)

    def test_nic_behind_the_mapped_bridge_is_found(self) -> None:
        self.device('eth1')
        self.ovs_bridge(
            'br-hpc1', single('a', type='patch', options={'peer': 'b'})
        )
        self.ovs_bridge(
            'br-phys',
            single('b', type='patch', options={'peer': 'a'}),
            single('eth1'),
        )
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual(('br-phys', 'eth1'), place)
        self.assertEqual(('hpc1',), uplink.physnets)
        self.assertIn('it reaches those of br-phys', self.problem('br-hpc1'))

    def test_missing_mapped_bridge_is_reported(self) -> None:
        self.ovs_bridge('br-int')
        problem = self.problem()
        self.assertIn(
            'hpc1 is mapped to bridge br-hpc1, which does not exist', problem
        )
        self.assertIn('bridges that do: br-int', problem)

    def test_bridge_patched_onto_that_of_another_physnet(self) -> None:
        self.options['ovn-bridge-mappings'] = 'hpc1:br-hpc1,hpc2:br-hpc2'
        self.device('eth1')
        self.ovs_bridge(
            'br-hpc1',
            single('eth1'),
            single('a', type='patch', options={'peer': 'b'}),
        )
        self.ovs_bridge(
            'br-hpc2', single('b', type='patch', options={'peer': 'a'})
        )
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual(('br-hpc1', 'eth1'), place)
        self.assertEqual(('hpc1', 'hpc2'), uplink.physnets)

    def veth(self, one: str, other: str) -> None:
        """Make a veth pair."""
        self.link(one, ifindex=f'7{one[-1]}', iflink=f'7{other[-1]}')
        self.link(other, ifindex=f'7{other[-1]}', iflink=f'7{one[-1]}')

    def test_veth_pair_leads_to_a_linux_bridge(self) -> None:
        self.veth('veth1', 'veth2')
        self.ovs_bridge('br-hpc1', single('veth1'))
        self.bridge('br-lin')
        self.nic('eth1', 'br-lin')
        net = self.sysfs / 'class/net'
        (net / 'br-lin/brif/veth2').mkdir()
        (net / 'veth2/master').symlink_to(net / 'br-lin')
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual(('br-lin', 'eth1'), place)
        self.assertEqual(('hpc1',), uplink.physnets)

    def test_veth_pair_leads_to_a_bridge_of_open_vswitch(self) -> None:
        self.veth('veth1', 'veth2')
        self.device('eth1')
        self.ovs_bridge('br-hpc1', single('veth1'))
        self.ovs_bridge('br-x', single('veth2'), single('eth1'))
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual(('br-x', 'eth1'), place)
        self.assertEqual(('hpc1',), uplink.physnets)

    def test_port_of_two_bridges_joins_them(self) -> None:
        """An internal port of Open vSwitch in a Linux bridge."""
        self.device('eth1')
        self.ovs_bridge('br-x', single('eth1'), single('in0', type='internal'))
        self.bridge('br-lin')
        net = self.sysfs / 'class/net'
        self.port('in0', 'br-lin')
        (net / 'in0/master').symlink_to(net / 'br-lin')
        self.veth('veth1', 'veth2')
        self.ovs_bridge('br-hpc1', single('veth1'))
        (net / 'br-lin/brif/veth2').mkdir()
        (net / 'veth2/master').symlink_to(net / 'br-lin')
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual(('br-x', 'eth1'), place)
        self.assertEqual(('hpc1',), uplink.physnets)

    def test_veth_pair_into_a_namespace_leads_nowhere(self) -> None:
        """Another namespace counts its interfaces by itself."""
        self.link('veth1', ifindex='71', iflink='2')
        self.ovs_bridge('br-hpc1', single('veth1'))
        self.bridge('br-lin')
        self.nic('eth1', 'br-lin', ifindex='2', iflink='2')
        findings = self.discover()
        self.assertEqual(
            [('eth1', ())],
            [(u.nic, u.physnets) for u in findings.topology.uplinks],
        )

    def test_mapped_bridge_without_uplink_is_noted(self) -> None:
        self.link('veth0')
        self.ovs_bridge('br-hpc1', single('veth0'))
        findings = self.discover()
        self.assertEqual((), findings.problems)
        (note,) = findings.notes
        self.assertIn('br-hpc1, which has no uplink', note)

    def test_mappings_of_ml2_count_on_hosts_without_ovn(self) -> None:
        self.ml2 = open_vswitch.NeutronBridges({'net7': 'br-7'})
        self.device('eth1')
        self.ovs_bridge('br-hpc1', single('eth1'))
        self.device('eth7')
        self.ovs_bridge('br-7', single('eth7'))
        self.assertEqual([('br-hpc1', 'eth1')], list(self.uplinks()))
        self.options.clear()
        ((place, uplink),) = self.uplinks().items()
        self.assertEqual(('br-7', 'eth7'), place)
        self.assertEqual(('net7',), uplink.physnets)

    def test_nothing_is_said_of_ovs_while_it_is_unknown(self) -> None:
        self.away = True
        self.assertEqual({}, self.uplinks())


class LinkTest(OvsDiscoveryTest):
    def uplink(self, *ports: Port) -> model.Uplink:
        self.ovs_bridge('br-hpc1', *ports)
        (uplink,) = self.uplinks().values()
        return uplink

    def state(self, *ports: Port) -> tuple[bool, int]:
        uplink = self.uplink(*ports)
        return uplink.up, uplink.mbps

    def test_kernel_counts_more_than_the_database(self) -> None:
        self.device('eth1', carrier='0')
        self.assertEqual(
            (False, 0),
            self.state(single('eth1', link_up=True, mbps=100000)),
        )

    def test_state_of_a_dpdk_port_is_that_of_the_database(self) -> None:
        port = single('dpdk0', type='dpdk', link_up=True, mbps=25000)
        self.assertEqual((True, 25000), self.state(port))

    def test_dpdk_port_that_is_down_is_down(self) -> None:
        port = single('dpdk0', type='dpdk', mbps=25000)
        self.assertEqual((False, 0), self.state(port))

    def test_bond_is_up_as_long_as_a_member_is(self) -> None:
        self.device('eth1', carrier='0')
        self.device('eth2', speed='25000')
        self.device('eth3', speed='10000')
        members = tuple(Interface(f'eth{n}') for n in (1, 2, 3))
        for mode, mbps in (('balance-tcp', 35000), ('active-backup', 10000)):
            self.bridges.clear()
            self.bridges.append(
                Bridge('br-hpc1', (Port('bond0', members, mode),))
            )
            findings = self.discover()
            (uplink,) = findings.topology.uplinks
            self.assertEqual('bond0', uplink.nic)
            self.assertEqual((True, mbps), (uplink.up, uplink.mbps))
            (note,) = findings.notes
            for word in ('bond0', 'br-hpc1', mode, 'balance-slb'):
                self.assertIn(word, note)

    def test_bond_of_the_kernel_is_one_uplink_and_says_why(self) -> None:
        self.device('eth1')
        bond = self.link('bond1')
        (bond / 'lower_eth1').mkdir()
        (bond / 'bonding').mkdir()
        (self.link('bond1.7') / 'lower_bond1').mkdir()
        self.ovs_bridge('br-hpc1', single('bond1.7'))
        findings = self.discover()
        self.assertEqual(
            ['bond1.7'], [u.nic for u in findings.topology.uplinks]
        )
        (note,) = findings.notes
        for word in ('bond1', 'br-hpc1', 'kernel', 'balance-slb'):
            self.assertIn(word, note)

    def test_members_that_guests_stay_on_are_uplinks_of_their_own(
        self,
    ) -> None:
        self.device('eth1', carrier='0')
        self.device('eth2')
        self.ovs_bridge(
            'br-hpc1',
            Port(
                'bond0',
                (Interface('eth1'), Interface('eth2')),
                'balance-slb',
                other_config={'bond-rebalance-interval': '0'},
            ),
        )
        # Each belongs to one guest, so the bridge may be separate.
        uplinks = self.uplinks('br-hpc1:separate')
        self.assertEqual(
            {'eth1': (False, 'bond0'), 'eth2': (True, 'bond0')},
            {u.nic: (u.up, u.bond) for u in uplinks.values()},
        )
        self.assertEqual(
            {('hpc1',)}, {uplink.physnets for uplink in uplinks.values()}
        )


class NamedTest(OvsDiscoveryTest):
    def test_named_uplinks_replace_those_found(self) -> None:
        self.device('eth1')
        self.link('veth1')
        self.ovs_bridge('br-hpc1', single('eth1'), single('veth1'))
        self.assertEqual(
            [('br-hpc1', 'veth1')], list(self.uplinks('br-hpc1:nic=veth1'))
        )

    def test_named_dpdk_port_of_any_bridge_is_published(self) -> None:
        self.options.clear()
        self.ovs_bridge(
            'br-x', single('dpdk0', type='dpdk', link_up=True, mbps=25000)
        )
        for rule in ('br-x', 'br-x:nic=dpdk0'):
            (uplink,) = self.uplinks(rule).values()
            self.assertEqual((True, 25000), (uplink.up, uplink.mbps))

    def test_other_bridges_are_not_published_by_a_wildcard(self) -> None:
        self.options.clear()
        self.device('eth1')
        self.ovs_bridge('br-x', single('eth1'))
        self.assertEqual({}, self.uplinks('br-*'))


class EncapIpTest(OvsDiscoveryTest):
    """Which uplink an IP address of ovn-encap-ip is on."""

    def setUp(self) -> None:
        super().setUp()
        self.options = {'ovn-encap-ip': '10.1.0.1,10.2.0.1'}

    def encap_ips(self, *texts: str) -> dict[tuple[str, str], str | None]:
        return {k: u.encap_ip for k, u in self.uplinks(*texts).items()}

    def test_nic_without_bridge_is_published_by_its_own_name(self) -> None:
        self.device('eth1')
        (self.link('bond1') / 'lower_eth2').mkdir()
        self.device('eth2')
        (self.link('bond1.7') / 'lower_bond1').mkdir()
        self.addresses = {'10.1.0.1': 'eth1', '10.2.0.1': 'bond1.7'}
        expected = {
            ('bond1.7', 'bond1.7'): '10.2.0.1',
            ('eth1', 'eth1'): '10.1.0.1',
        }
        self.assertEqual(expected, self.encap_ips())
        uplinks = self.uplinks('eth*:separate').values()
        self.assertEqual([('eth1', 1)], [(u.nic, u.slots) for u in uplinks])

    def test_rail_is_the_subnet_of_the_encap_ip(self) -> None:
        self.device('eth1')
        self.device('eth2')
        self.addresses = {'10.1.0.1': 'eth1', '10.2.0.1': 'eth2'}
        self.subnets = {'10.1.0.1': '10.1.0.0/24'}
        self.assertEqual(
            {('eth1', 'eth1'): '10.1.0.0/24', ('eth2', 'eth2'): None},
            {key: u.rail for key, u in self.uplinks().items()},
        )

    def test_ip_is_on_the_uplinks_to_which_its_device_leads(self) -> None:
        self.device('eth1')
        self.ovs_bridge('br-t', single('eth1'))
        self.bridge('br-lin')
        self.nic('eth2', 'br-lin')
        (self.link('eth2.7') / 'lower_eth2').mkdir()
        # As on a host whose NIC is bound to DPDK.
        self.ovs_bridge(
            'br-d',
            single('dpdk0', type='dpdk', link_up=True),
            single('tun0', type='internal'),
        )
        (self.link('tun0.7') / 'lower_tun0').mkdir()
        self.device('eth3')
        addresses = {
            '10.1.0.1': ('br-t', 'eth1'),
            '10.2.0.1': ('br-lin', 'eth2'),
            'FD00:0::0001': ('eth3', 'eth3'),
            '10.3.0.1': ('br-d', 'dpdk0'),
        }
        self.options = {'ovn-encap-ip': ','.join(addresses)}
        for of_linux in ('br-lin', 'eth2.7'):
            self.addresses = {
                '10.1.0.1': 'br-t',
                '10.2.0.1': of_linux,
                # Any spelling counts.
                'fd00::1': 'eth3',
                '10.3.0.1': 'tun0.7',
            }
            self.assertEqual(
                {uplink: ip for ip, uplink in addresses.items()},
                self.encap_ips(),
            )

    def test_two_vlans_of_a_nic_are_one_uplink(self) -> None:
        self.device('eth1')
        for vlan in ('eth1.7', 'eth1.8'):
            (self.link(vlan) / 'lower_eth1').mkdir()
        self.addresses = {'10.1.0.1': 'eth1.7', '10.2.0.1': 'eth1.8'}
        findings = self.discover()
        self.assertEqual(
            [('eth1.7', '10.1.0.1')],
            [(u.nic, u.encap_ip) for u in findings.topology.uplinks],
        )
        self.assertIn(
            'encap IPs 10.1.0.1 and 10.2.0.1 are on the same uplink',
            findings.notes[0],
        )

    def test_ip_that_is_nowhere_is_reported(self) -> None:
        self.device('eth1')
        self.addresses = {'10.1.0.1': 'eth1'}
        self.assertIn('has the IP address 10.2.0.1', self.problem())

    def test_ip_that_leads_to_no_uplink_is_noted(self) -> None:
        self.ovs_bridge('br-t')
        self.options['ovn-encap-ip'] = '10.2.0.1'
        self.addresses = {'10.2.0.1': 'br-t'}
        (note,) = self.discover().notes
        self.assertIn('encap IP 10.2.0.1 is on br-t, which leads to no', note)

    def test_address_for_routes_only_is_no_uplink(self) -> None:
        self.device('eth1')
        for name, files in (
            ('lo', {'flags': '0x9'}),
            ('vrf-blue', {'uevent': 'DEVTYPE=vrf'}),
            ('dummy0', {'flags': '0x82'}),
        ):
            (self.link(name, **files) / 'lower_eth1').mkdir()
        (self.sysfs / 'class/net/dummy0/lower_eth1').rmdir()
        self.options['ovn-encap-ip'] = '10.1.0.1'
        for name, pattern in (('lo', 'l*'), ('vrf-blue', '*'), ('dummy0', '')):
            with self.subTest(name):
                self.nic_patterns = [pattern]
                self.addresses = {'10.1.0.1': name}
                findings = self.discover()
                self.assertEqual((), findings.topology.uplinks)
                (note,) = findings.notes
                for words in (name, 'routes its tunnels', '10.1.0.1'):
                    self.assertIn(words, note)
                self.assertNotIn('nic_patterns', note)


class WireTest(OvsDiscoveryTest):
    """Two names of one wire."""

    def setUp(self) -> None:
        super().setUp()
        self.options = {}

    def vlan_bridges(self) -> None:
        self.device('eth0')
        for bridge in ('br-a', 'br-b'):
            self.bridge(bridge)
            port = self.port(f'eth0.{bridge[-1]}', bridge)
            (port / 'lower_eth0').mkdir()

    def test_vlans_of_a_nic_are_one_wire(self) -> None:
        self.vlan_bridges()
        findings = self.discover()
        self.assertEqual(
            ['br-a', 'br-b'], [u.bridge for u in findings.topology.uplinks]
        )
        (note,) = findings.notes
        for word in ('br-a', 'br-b', 'one wire (eth0)'):
            self.assertIn(word, note)

    def test_separate_bridge_needs_a_wire_of_its_own(self) -> None:
        self.vlan_bridges()
        for rules, left in (
            (('br-a:separate', 'br-b:separate'), 'br-a'),
            (('br-a:separate', 'br-b'), 'br-b'),
        ):
            with self.subTest(left=left):
                findings = self.discover(*rules)
                self.assertEqual(
                    [left], [u.bridge for u in findings.topology.uplinks]
                )
                (problem,) = findings.problems
                self.assertIn('one wire (eth0)', problem)

    def test_functions_of_a_port_are_one_wire(self) -> None:
        self.bridge('br-a')
        self.nic('eth1', 'br-a', phys_port_id='b8cef6')
        self.bridge('br-b')
        self.nic('eth2', 'br-b', phys_port_id='b8cef6')
        (note,) = self.discover().notes
        self.assertIn('one wire', note)

    def test_virtual_function_leaves_by_its_physical_one(self) -> None:
        self.bridge('br-a')
        self.nic('eth1', 'br-a')
        self.bridge('br-b')
        self.nic('eth1v0', 'br-b')
        path = self.sysfs / 'class/net/eth1v0/device/physfn/net/eth1'
        path.mkdir(parents=True)
        (note,) = self.discover().notes
        self.assertIn('one wire (eth1)', note)
