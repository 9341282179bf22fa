# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.binders.wire_vlans`."""

import dataclasses

import fixtures
from oslotest import base

from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import bond_table, wire_vlans
from nova_vhpc.tests.unit.agent.uplinks.binders import bond
from nova_vhpc.topology.open_vswitch import Interface, Port

MAC = 'fa:16:3e:00:00:01'
UPLINK = claims.ClaimedUplink('br-ex', 'eth1', None, ('prov',))
BOND = Port(
    'bond0', (Interface('eth1', ofport=1), Interface('eth2', ofport=2))
)
PATCH = 7


class WireVlansCase(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(wire_vlans, '_LOAD', 0))
        self.useFixture(fixtures.MockPatchObject(wire_vlans, 'CHECK_S', 0))
        self.daemon = bond.MemoryVswitchd('bond0', ('eth1', 'eth2'))
        self.vlans = wire_vlans.WireVlans(
            bond_table.BondTable(self.daemon), 'h1'
        )
        self.sought = wire_vlans.SoughtVlan(MAC, 'u')
        self.port: Port | None = Port('tap1', (Interface('tap1'),))
        self.bond = BOND
        self.uplink = UPLINK

    def record(self, **other_config: str) -> None:
        self.port = Port(
            'tap1', (Interface('tap1'),), other_config=other_config, tag=5
        )

    def find(self) -> int | None:
        member = bond_table.BondMember('br-ex', self.bond, 'eth1')
        return self.vlans.find(
            self.sought, self.port, self.uplink, member, {MAC}
        )

    def assert_refused(self, *words: str) -> None:
        error = self.assertRaises(UnsupportedError, self.find)
        for word in words:
            self.assertIn(word, str(error))


class RecordedTest(WireVlansCase):
    """Neutron's Open vSwitch agent has recorded the network."""

    def test_recorded_vlan_is_used_before_the_first_frame(self) -> None:
        for network_type, segment, expected in (
            ('vlan', '100', 100),
            ('flat', '', 0),
        ):
            self.record(
                network_type=network_type,
                physical_network='prov',
                segmentation_id=segment,
                tag='5',
            )
            self.assertEqual(expected, self.find())
        self.assertEqual([], self.daemon.calls)

    def test_tunnel_network_is_refused(self) -> None:
        self.record(network_type='vxlan', segmentation_id='100')
        self.assert_refused('tap1', 'h1', 'vxlan', 'bond0')

    def test_other_physical_network_is_refused(self) -> None:
        self.record(
            network_type='vlan',
            physical_network='other',
            segmentation_id='100',
        )
        self.assert_refused('tap1', 'h1', 'other', 'prov', 'eth1')

    def test_unknown_physical_networks_are_not_guessed(self) -> None:
        self.record(
            network_type='vlan', physical_network='prov', segmentation_id='100'
        )
        self.uplink = UPLINK._replace(physnets=())
        self.assertIsNone(self.find())
        self.daemon.fdb.append((PATCH, 100, MAC))
        self.assertEqual(100, self.find())

    def test_record_that_is_damaged_is_not_used(self) -> None:
        for segment in ({}, {'segmentation_id': 'None'}):
            self.record(
                network_type='vlan', physical_network='prov', **segment
            )
            self.assertIsNone(self.find())


class LearnedTest(WireVlansCase):
    """The bond's bridge has seen the NIC's address."""

    def test_vlan_is_the_one_in_which_the_bridge_has_seen_it(self) -> None:
        for vlan in (0, 100):
            self.daemon.fdb = [(PATCH, vlan, MAC)]
            self.assertEqual(vlan, self.find())

    def test_vlan_is_known_while_the_guest_is_silent(self) -> None:
        self.daemon.fdb = [(PATCH, 100, MAC)]
        self.find()
        self.daemon.fdb = []
        self.port = None
        self.assertEqual(100, self.find())

    def test_new_vlan_counts_once_the_old_one_is_forgotten(self) -> None:
        self.daemon.fdb = [(PATCH, 100, MAC)]
        self.find()
        self.daemon.fdb.append((PATCH, 200, MAC))
        self.assertEqual(100, self.find())
        self.daemon.fdb = [(PATCH, 200, MAC)]
        self.assertEqual(200, self.find())

    def test_frame_that_came_by_the_bond_does_not_count(self) -> None:
        """Such as the guest's own, which another switch has sent back."""
        for port in (1, 2):
            self.daemon.fdb = [(port, 100, MAC)]
            self.assertIsNone(self.find())

    def test_several_vlans_are_refused(self) -> None:
        self.daemon.fdb = [(PATCH, 200, MAC), (PATCH, 100, MAC)]
        self.assert_refused(MAC, 'u', '[100, 200]', 'br-ex', 'h1')

    def test_silence_is_reported_after_a_while(self) -> None:
        self.assertIsNone(self.find())
        self.sought.since_s -= wire_vlans.SILENCE_S
        self.assert_refused(MAC, 'u', 'br-ex', 'bond0', 'h1')

    def test_bond_of_one_vlan_sends_untagged(self) -> None:
        self.bond = dataclasses.replace(BOND, tag=100)
        self.daemon.fdb = [(PATCH, 100, MAC)]
        self.assertEqual(0, self.find())
