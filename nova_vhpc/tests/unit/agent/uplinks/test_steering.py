# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.uplinks.steering`."""

import pathlib
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.uplinks import claims, port_networks, steering
from nova_vhpc.agent.uplinks.binders import base as binder_base
from nova_vhpc.tests.unit.agent.uplinks.binders import ovsdb
from nova_vhpc.topology import open_vswitch, port_network
from nova_vhpc_lab.ovn import domain

MACS = ('fa:16:3e:00:00:01', 'fa:16:3e:00:00:02')
NIC = "<interface type='{kind}'><mac address='{mac}'/>{source}</interface>"


def uplink(number: int, *beside: str) -> claims.ClaimedUplink:
    return claims.ClaimedUplink(
        f'br-hpc{number}',
        f'n{number}',
        f'10.{number}.0.1',
        (f'hpc{number}',),
        beside,
    )


def provider(*physnets: str) -> port_network.PortNetwork:
    return port_network.PortNetwork(
        'net', tuple(port_network.Segment(one, 'VLAN 5') for one in physnets)
    )


TUNNEL = port_network.PortNetwork('net')


class SteeringTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ovsdb = ovsdb.MemoryOvsdb()
        self.read = self.ovsdb.read
        for mac in MACS:
            self.ovsdb.plug('u', mac)
        self.domain = domain.Domain('u', MACS)
        self.networks: dict[str, port_network.PortNetwork] = {}
        self.unsettled: set[str] = set()
        self.sysfs = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.binders = [self.binder('t', binder_base.TUNNEL)]

    def binder(self, name: str, networks: str) -> mock.Mock:
        made = mock.create_autospec(binder_base.Binder, instance=True)
        made.name, made.networks = name, networks
        made.serves.return_value = True
        return made

    def carrier(
        self, *uplinks: claims.ClaimedUplink, uplink_nic: int | None = None
    ) -> steering.Carrier:
        networks = mock.create_autospec(
            port_networks.PortNetworks, instance=True
        )
        networks.of_port.side_effect = lambda port: self.networks.get(
            port.external_ids['attached-mac']
        )
        networks.may_change.side_effect = lambda port: (
            port.external_ids['attached-mac'] in self.unsettled
        )
        networks.unknown_because.return_value = 'ovs-ofctl failed; mend it'
        return steering.Steering(
            binder_base.BinderSet(self.binders),
            'h1',
            lambda: self.read(),
            networks,
            steering.links.Links(self.sysfs),
        ).carrier(
            claims.Claimant(self.domain, uplinks or (uplink(1),), uplink_nic)
        )

    def assert_unsteered(
        self, cause: str, *words: str, uplinks: object = ()
    ) -> None:
        """Assert why nothing steers, and that the host is named."""
        error = self.assertRaises(UnsupportedError, self.carrier, *uplinks)
        self.assertEqual(cause, error.cause)
        self.assertTrue(error.remedy)
        for word in words:
            self.assertIn(word, error.what)

    def plug_nics(self, *nics: str) -> None:
        """Let the domain have these NICs, instead of those of OVS."""
        self.domain.XMLDesc = lambda flags: (
            f'<domain><devices>{"".join(nics)}</devices></domain>'
        )

    def test_tunnels_are_for_a_binder_of_tunnels(self) -> None:
        self.binders.insert(0, self.binder('p', binder_base.PROVIDER))
        self.networks = {MACS[1]: TUNNEL}
        carrier = self.carrier()
        self.assertEqual(('t', True), (carrier.name, carrier.is_certain))

    def test_unknown_network_is_not_taken_for_tunnels(self) -> None:
        error = self.assertRaises(
            steering.UnknownNetworkError, self.carrier, uplink(1)
        )
        self.assertEqual('unknown-network', error.cause)
        for word in ('tap02', 'h1', 'ovs-ofctl failed; mend it'):
            self.assertIn(word, str(error))
        self.networks = {MACS[0]: provider('hpc1')}
        self.assertRaises(
            steering.UnknownNetworkError, self.carrier, uplink(1), uplink(2)
        )

    def test_binder_that_sees_frames_may_have_an_unknown_network(self) -> None:
        self.binders.append(self.binder('p', binder_base.PROVIDER))
        carrier = self.carrier()
        self.assertEqual(('p', False), (carrier.name, carrier.is_certain))

    def test_network_that_may_change_is_for_any_binder(self) -> None:
        """OVN makes the flows to physical networks last."""
        self.networks = {MACS[1]: TUNNEL}
        self.binders = [self.binder('p', binder_base.PROVIDER)]
        self.assert_unsteered('no-binder', MACS[1], 'h1')
        self.unsettled = {MACS[1]}
        carrier = self.carrier()
        self.assertEqual(('p', False), (carrier.name, carrier.is_certain))

    def test_only_uplink_of_a_physnet_needs_no_binder(self) -> None:
        self.networks = {MACS[1]: provider('hpc1')}
        self.assertEqual(
            steering.Carrier('neutron', devices=('tap02',)), self.carrier()
        )
        self.networks = {
            MACS[0]: provider('hpc2'),
            MACS[1]: provider('hpc1'),
        }
        self.assertEqual(
            steering.Carrier('neutron', devices=('tap01', 'tap02')),
            self.carrier(uplink(1), uplink(2)),
        )

    def test_one_of_several_uplinks_of_a_physnet_is_not_steered(self) -> None:
        self.networks = {MACS[1]: provider('hpc1')}
        self.assert_unsteered(
            'provider-network',
            MACS[1],
            'hpc1',
            'h1',
            'n9',
            uplinks=(uplink(1, 'n9'),),
        )
        self.binders.append(self.binder('p', binder_base.PROVIDER))
        self.assertEqual('p', self.carrier(uplink(1, 'n9')).name)

    def test_claim_on_a_physnet_without_a_port_is_not_steered(self) -> None:
        self.networks = {MACS[1]: provider('hpc0')}
        self.assert_unsteered('other-physnet', MACS[1], 'hpc0', 'hpc1', 'h1')

    def test_nics_of_both_kinds_are_not_steered(self) -> None:
        self.networks = {MACS[0]: TUNNEL, MACS[1]: provider('hpc1')}
        self.assert_unsteered(
            'mixed-networks', *MACS, 'h1', uplinks=(uplink(1), uplink(2))
        )

    def test_network_with_a_fault_is_refused(self) -> None:
        for fault, cause in (
            (port_network.Fault.SEVERAL_SEGMENTS, 'several-segments'),
            (port_network.Fault.SAME_VLAN, 'same-vlan'),
        ):
            self.networks = {
                MACS[1]: port_network.PortNetwork(
                    'net', provider('hpc1', 'hpc2').segments, fault
                )
            }
            self.assert_unsteered(cause, 'net', 'hpc1', 'hpc2', 'h1')

    def test_sriov_ports_are_steered_by_hardware(self) -> None:
        self.plug_nics(
            *(
                NIC.format(kind=kind, mac=mac, source='')
                for kind, mac in (('hostdev', 'a'), ('direct', 'b'))
            )
        )
        self.assertEqual(
            steering.Carrier('hardware'), self.carrier(uplink(1), uplink(2))
        )

    def test_function_must_be_of_the_claimed_uplink(self) -> None:
        for number in (1, 2):
            (self.sysfs / f'class/net/n{number}/device').mkdir(parents=True)
        net = self.sysfs / 'bus/pci/devices/0000:08:00.2/physfn/net'
        address = "type='pci' domain='0x0000' bus='0x08' slot='0x00'"
        self.plug_nics(
            NIC.format(
                kind='hostdev',
                mac='fa:16:3e:00:00:07',
                source=f"<source><address {address} function='0x2'/></source>",
            )
        )
        self.assertEqual('hardware', self.carrier().name)
        (net / 'n1').mkdir(parents=True)
        self.assertEqual('hardware', self.carrier().name)
        self.assert_unsteered(
            'other-nic', 'fa:16:3e:00:00:07', 'n1', uplinks=(uplink(2),)
        )

    def test_function_that_open_vswitch_switches_is_a_port(self) -> None:
        self.networks = {MACS[1]: TUNNEL}
        self.plug_nics(NIC.format(kind='hostdev', mac=MACS[1], source=''))
        self.assertEqual('t', self.carrier().name)

    def test_macvtap_device_must_be_on_the_claimed_uplink(self) -> None:
        self.read = lambda: open_vswitch.OpenVswitch()
        net = self.sysfs / 'class/net'
        (net / 'n1.7/lower_n1').mkdir(parents=True)

        def plug(device: str) -> None:
            source = f"<source dev='{device}' mode='bridge'/>"
            self.plug_nics(
                NIC.format(kind='direct', mac=MACS[0], source=source)
            )

        plug('n1.7')
        self.assertEqual(steering.Carrier('macvtap'), self.carrier())
        plug('n2')
        self.assert_unsteered('other-nic', MACS[0], 'n2', 'h1')

    def test_nic_on_the_claimed_linux_bridge_is_steered(self) -> None:
        self.read = lambda: open_vswitch.OpenVswitch()

        def plug(bridge: str) -> None:
            self.plug_nics(
                NIC.format(
                    kind='bridge',
                    mac=MACS[0],
                    source=f"<source bridge='{bridge}'/>",
                )
            )

        plug('br-hpc1')
        self.assertEqual(steering.Carrier('linux_bridge'), self.carrier())
        plug('br-mgmt')
        self.assert_unsteered('linux-bridge', MACS[0], 'br-mgmt', 'h1')

    def test_tap_that_another_agent_has_plugged_is_found(self) -> None:
        """Nova has only made it, and names no bridge."""
        self.read = lambda: open_vswitch.OpenVswitch()
        net = self.sysfs / 'class/net'
        (net / 'br-hpc1/bridge').mkdir(parents=True)
        (net / 'tap02').mkdir()
        (net / 'tap02/master').symlink_to(net / 'br-hpc1')
        self.assertEqual(
            steering.Carrier('linux_bridge', devices=('tap02',)),
            self.carrier(),
        )
        self.assert_unsteered(
            'linux-bridge', MACS[1], 'br-hpc1', uplinks=(uplink(2),)
        )

    def test_port_of_neutron_counts_more_than_the_place_of_the_tap(
        self,
    ) -> None:
        """Hybrid plugging: a Linux bridge of its own for each NIC."""
        self.networks = {MACS[1]: provider('hpc1')}
        self.plug_nics(
            NIC.format(
                kind='bridge',
                mac=MACS[1].upper(),
                source="<source bridge='qbr0'/><target dev='tap0'/>",
            )
        )
        self.assertEqual(
            steering.Carrier('neutron', devices=('tap0',)), self.carrier()
        )
        self.binders = [self.binder('p', binder_base.PROVIDER)]
        self.assertEqual('p', self.carrier(uplink(1, 'n9')).name)

    def test_server_with_too_few_nics_is_not_steered(self) -> None:
        self.assert_unsteered(
            'too-few-nics', '2 NICs', uplinks=[uplink(n) for n in range(3)]
        )
        self.plug_nics()
        self.assert_unsteered('no-nic', 'no NICs')

    def test_members_of_an_open_vswitch_bond_are_not_steered(self) -> None:
        bond = open_vswitch.Port(
            'bond0',
            (open_vswitch.Interface('n1'), open_vswitch.Interface('n9')),
            bond_mode='balance-tcp',
            lacp='active',
        )
        state = open_vswitch.OpenVswitch(
            {}, (open_vswitch.Bridge('br-hpc1', (bond,)),)
        )
        self.read = lambda: state
        self.assert_unsteered('bond', 'bond0', 'balance-tcp', 'n1', 'h1')

    def test_members_of_a_kernel_bond_are_not_steered(self) -> None:
        net = self.sysfs / 'class/net'
        (net / 'bond7/bonding').mkdir(parents=True)
        (net / 'n1').mkdir()
        (net / 'n1/master').symlink_to(net / 'bond7')
        self.assert_unsteered('bond', 'kernel bond bond7', 'n1', 'h1')

    def test_host_without_a_binder_is_named(self) -> None:
        self.binders = []
        self.networks = {MACS[1]: TUNNEL}
        self.assert_unsteered('no-binder', MACS[1], 'h1')
        self.read = lambda: None
        self.assert_unsteered('no-ovsdb', MACS[1], 'h1')
