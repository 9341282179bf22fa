# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Discovery in a made sysfs, for NICs that the test host lacks."""

from nova_vhpc.tests.unit.topology import made_sysfs
from nova_vhpc.topology import bridge_rules, discovery


class DiscoveryTest(made_sysfs.SysfsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.bridge('br0')

    def discover(self, *texts: str) -> discovery.Findings:
        return discovery.Discovery(
            bridge_rules.parse_rules(texts), sysfs=self.sysfs, default_mbps=777
        ).discover('node')

    def nics(self, *texts: str) -> list[str]:
        return [u.nic for u in self.discover(*texts).topology.uplinks]

    def test_every_bridge_with_a_nic_is_found_without_rules(self) -> None:
        self.nic('eth0')
        self.port('tap0')
        self.bridge('br-int')
        findings = self.discover()
        uplink = findings.topology.uplinks[0]
        self.assertEqual(('br0', 'eth0'), (uplink.bridge, uplink.nic))
        self.assertEqual((100000, 32), (uplink.mbps, uplink.slots))
        self.assertEqual(1, len(findings.topology.bridges))
        self.assertEqual((), findings.problems)

    def test_separate_bridge_has_one_slot(self) -> None:
        self.nic('eth0')
        (uplink,) = self.discover('br0:separate').topology.uplinks
        self.assertEqual(1, uplink.slots)

    def test_separate_bridge_with_two_uplinks_is_reported(self) -> None:
        self.nic('eth0')
        self.nic('eth1')
        findings = self.discover('br0:separate')
        self.assertEqual((), findings.topology.bridges)
        (problem,) = findings.problems
        self.assertIn('2 uplinks (eth0, eth1)', problem)

    def test_nic_is_exported_if_it_has_virtual_functions(self) -> None:
        for number, text in enumerate(('4', '0', '', None, '9' * 5000)):
            path = self.port(f'eth{number}')
            (path / 'device').mkdir()
            if text is not None:
                (path / 'device' / 'sriov_numvfs').write_text(text + '\n')
        self.assertEqual(
            [True, False, False, False, True],
            [u.exported for u in self.discover().topology.uplinks],
        )

    def test_representor_is_no_uplink(self) -> None:
        """A switch's NIC and what it passes to guests all have a device."""
        for name, port in (
            ('eth0', 'p0'),
            ('eth1', 'pf0vf1'),
            ('eth2', 'c1pf0sf3'),
            ('eth3', 'pf0vfr2'),
            ('eth4', 'pf0'),
            ('eth5', ''),
        ):
            self.nic(name, phys_port_name=port)
        self.assertEqual(['eth0', 'eth5'], self.nics())

    def test_vlan_on_a_bond_of_nics_is_an_uplink(self) -> None:
        (self.link('eth1') / 'device').mkdir()
        (self.link('bond0') / 'lower_eth1').mkdir()
        (self.port('bond0.7') / 'lower_bond0').mkdir()
        (self.port('vlan-on-nothing') / 'lower_veth9').mkdir()
        self.assertEqual(['bond0.7'], self.nics())

    def test_tunnel_over_a_nic_is_an_uplink_only_by_rule(self) -> None:
        (self.link('eth1') / 'device').mkdir()
        tunnel = self.port('vxlan-7', uevent='DEVTYPE=vxlan\nINTERFACE=v')
        (tunnel / 'lower_eth1').mkdir()
        self.assertEqual([], self.nics())
        self.assertEqual(['vxlan-7'], self.nics('br0:nic=vxlan-7'))

    def test_name_that_is_not_utf_8_is_reported(self) -> None:
        """Other bridges are published nevertheless."""
        self.nic('eth0')
        for odd, bridge in (('br\udcff', 'eth1'), ('br1', 'eth\udcff')):
            self.bridge(odd)
            self.nic(bridge, odd)
        findings = self.discover()
        self.assertEqual(['br0'], [b.name for b in findings.topology.bridges])
        for problem, name in zip(
            findings.problems,
            (r"'eth\udcff' of bridge 'br1'", r"'br\udcff' of bridge"),
            strict=True,
        ):
            self.assertIn(name, problem)
            problem.encode()

    def test_loop_of_lower_links_ends(self) -> None:
        (self.port('a') / 'lower_b').mkdir()
        (self.link('b') / 'lower_a').mkdir()
        self.assertEqual([], self.nics())

    def test_default_speed_replaces_an_invalid_one(self) -> None:
        for index, speed in enumerate(
            ('-1', '0', '65535', '4294967295', 'x', '')
        ):
            self.nic(f'eth{index}', speed=speed)
        self.assertEqual(
            {777}, {u.mbps for u in self.discover().topology.uplinks}
        )

    def test_speed_of_a_rule_overrides_that_of_the_driver(self) -> None:
        self.nic('eth0')
        uplink = self.discover('br0:mbps=40000').topology.uplinks[0]
        self.assertEqual(40000, uplink.mbps)

    def test_links_without_carrier_or_with_bridge_down_are_down(self) -> None:
        self.nic('eth0', carrier='0')
        self.nic('eth1', operstate='lowerlayerdown')
        self.nic('eth2', operstate='unknown')
        self.bridge('br1', flags='0x1002')
        self.nic('eth3', bridge='br1')
        self.assertEqual(
            {'eth0': False, 'eth1': False, 'eth2': True, 'eth3': False},
            {u.nic: u.up for u in self.discover().topology.uplinks},
        )

    def test_open_vswitch_needs_a_rule_with_nic(self) -> None:
        self.link('br-ovs')
        findings = self.discover('br-ovs', 'br0*')
        self.assertIn('not a Linux bridge', findings.problems[0])
        self.assertIn('nic=', findings.problems[0])
        self.link('eth5')
        self.assertEqual(['eth5'], self.nics('br-ovs:nic=eth5'))

    def test_uplink_without_interface_is_down_and_reported(self) -> None:
        """It is gone, bound to DPDK, or its name is misspelled."""
        self.nic('eth0')
        findings = self.discover('br0:nic=eth9:mbps=25000')
        self.assertEqual(
            {'eth0': (True, 25000), 'eth9': (False, 0)},
            {u.nic: (u.up, u.mbps) for u in findings.topology.uplinks},
        )
        (problem,) = findings.problems
        self.assertIn('uplink eth9 of bridge br0 is no network', problem)
        self.assertIn('DPDK', problem)

    def test_uplink_with_impossible_name_is_reported(self) -> None:
        for name in ('x' * 300, '..', '/etc'):
            (problem,) = self.discover(f'br0:nic={name}').problems
            self.assertIn('is no network interface', problem)

    def test_interface_of_another_namespace_is_not_proposed(self) -> None:
        """The kernel knows lo, but it has another number in this sysfs."""
        self.link('lo', ifindex='4711')
        (problem,) = self.discover('br0:nic=LO').problems
        self.assertNotIn('nic=lo', problem)

    def test_uplink_of_missing_bridge_is_down_and_reported(self) -> None:
        self.link('eth5')
        findings = self.discover('br-slip:nic=eth5')
        self.assertFalse(findings.topology.uplinks[0].up)
        (problem,) = findings.problems
        self.assertEqual(
            'bridge br-slip does not exist on this host; bridges that do: br0',
            problem,
        )

    def test_no_bridges_without_sysfs(self) -> None:
        findings = discovery.Discovery(sysfs=self.sysfs / 'nothing').discover(
            'node'
        )
        self.assertEqual((), findings.topology.bridges)
