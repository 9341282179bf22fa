# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Uplinks of Open vSwitch bridges, on databases made by hand."""

from typing import Any

from oslotest import base

from nova_vhpc.topology import open_vswitch, ovs_uplinks
from nova_vhpc.topology.open_vswitch import Bridge, Interface, Port


def single(name: str, **columns: Any) -> Port:
    return Port(name, (Interface(name, **columns),))


def bridge(name: str, *ports: Port) -> Bridge:
    return Bridge(name, (single(name, type='internal'), *ports))


def patch(name: str, peer: str) -> Port:
    return single(name, type='patch', options={'peer': peer})


def bond(mode: str = '', lacp: str = '', **other_config: str) -> Port:
    return Port(
        'bond0',
        (Interface('eth1'), Interface('eth2')),
        mode,
        lacp,
        {key.replace('_', '-'): text for key, text in other_config.items()},
    )


def uplinks(*bridges: Bridge, **mappings: str) -> ovs_uplinks.OvsUplinks:
    return ovs_uplinks.OvsUplinks(
        open_vswitch.OpenVswitch(bridges=bridges),
        open_vswitch.NeutronBridges(mappings),
        lambda nic: nic.startswith('eth'),
    )


class PortsTest(base.BaseTestCase):
    def names(self, *ports: Port) -> list[str]:
        return [n.name for n in uplinks(bridge('br-a', *ports)).nics('br-a')]

    def test_only_nics_are_uplinks(self) -> None:
        guest = {'iface-id': '6a2f'}
        self.assertEqual(
            ['dpdk0', 'eth1'],
            self.names(
                single('eth1'),
                single('eth2', external_ids=guest),
                single('tap0'),
                single('vlan7', type='internal'),
                single('geneve0', type='geneve'),
                patch('to-int', 'from-int'),
                single('vhu0', type='dpdkvhostuserclient'),
                single('dpdk0', type='dpdk'),
                single('dpdk1', type='dpdk', external_ids=guest),
            ),
        )

    def test_representor_on_dpdk_is_no_uplink(self) -> None:
        port = single(
            'rep0',
            type='dpdk',
            options={'dpdk-devargs': '0000:08:00.0,representor=[0]'},
        )
        self.assertEqual([], self.names(port))

    def test_missing_bridge_has_no_uplinks(self) -> None:
        self.assertEqual((), uplinks().nics('br-a'))


class BondTest(base.BaseTestCase):
    def nics(self, port: Port) -> list[tuple[str, str | None]]:
        return [
            (nic.name, nic.bond)
            for nic in uplinks(bridge('br-a', port)).nics('br-a')
        ]

    def test_bond_is_one_uplink(self) -> None:
        for port in (
            bond(),
            bond('active-backup', bond_rebalance_interval='0'),
            bond('balance-tcp', 'active', bond_rebalance_interval='0'),
            bond('balance-slb'),
            bond('balance-slb', bond_rebalance_interval='10000'),
            bond('balance-slb', 'active', bond_rebalance_interval='0'),
        ):
            self.assertEqual([('bond0', None)], self.nics(port))

    def test_members_are_uplinks_if_guests_stay_on_them(self) -> None:
        for lacp in ('', 'off'):
            self.assertEqual(
                [('eth1', 'bond0'), ('eth2', 'bond0')],
                self.nics(
                    bond('balance-slb', lacp, bond_rebalance_interval='0')
                ),
            )

    def test_bond_that_balances_load_uses_all_members(self) -> None:
        for mode, uses_all in (
            ('', False),
            ('active-backup', False),
            ('balance-slb', True),
            ('balance-tcp', True),
        ):
            (nic,) = uplinks(bridge('br-a', bond(mode))).nics('br-a')
            self.assertEqual(uses_all, nic.uses_all)
            self.assertEqual(2, len(nic.members))

    def test_bond_of_other_ports_is_no_uplink(self) -> None:
        taps = Port('bond1', (Interface('tap0'), Interface('tap1')))
        self.assertEqual([], self.nics(taps))


class NamedTest(base.BaseTestCase):
    def test_named_port_counts_whatever_it_is(self) -> None:
        found = uplinks(bridge('br-a', single('tap0'), bond('balance-tcp')))
        for name, bond_name in (
            ('tap0', None),
            ('bond0', None),
            ('eth1', 'bond0'),
        ):
            nic = found.nic(name)
            assert nic is not None
            self.assertEqual((name, bond_name), (nic.name, nic.bond))
        self.assertIsNone(found.nic('eth9'))


class ConnectedTest(base.BaseTestCase):
    """br-int - br-map - br-mid - br-phys, and br-map2 - br-mid."""

    def setUp(self) -> None:
        super().setUp()
        self.found = uplinks(
            bridge('br-int', patch('i1', 'm1'), single('eth9')),
            bridge('br-map', patch('m1', 'i1'), patch('m2', 'd1')),
            bridge(
                'br-mid',
                patch('d1', 'm2'),
                patch('d2', 'p1'),
                patch('d3', 'n1'),
            ),
            bridge('br-phys', patch('p1', 'd2'), single('eth1')),
            bridge('br-map2', patch('n1', 'd3'), single('eth2')),
            bridge('br-alone', patch('a1', 'nothing'), single('eth3')),
            net1='br-map',
            net2='br-map2',
        )

    def test_way_ends_at_the_integration_bridge(self) -> None:
        self.assertEqual(
            ('br-map', 'br-mid', 'br-phys', 'br-map2'),
            self.found.connected('br-map'),
        )

    def test_nic_behind_has_the_physnets_of_all_bridges_before(self) -> None:
        self.assertEqual(('net1', 'net2'), self.found.physnets('br-phys'))
        self.assertEqual(('net1', 'net2'), self.found.physnets('br-map2'))
        self.assertEqual((), self.found.physnets('br-alone'))

    def test_patch_port_without_peer_leads_nowhere(self) -> None:
        self.assertEqual(('br-alone',), self.found.connected('br-alone'))
