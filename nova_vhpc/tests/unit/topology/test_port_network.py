# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.topology.port_network`."""

from oslotest import base

from nova_vhpc.topology import open_vswitch, port_network

# Printed by ovs-ofctl 3.5.0 for OVN 25.03.0.
WIRED = """
 cookie=0x94c526d5, priority=150,in_port=6,dl_vlan=100 actions=strip_vlan,\
load:0x7->NXM_NX_REG13[0..15],load:0x2->OXM_OF_METADATA[],resubmit(,8)
 cookie=0x85470e07, priority=150,in_port=8,dl_vlan=200 actions=strip_vlan,\
load:0xb->NXM_NX_REG13[0..15],load:0x3->OXM_OF_METADATA[],resubmit(,8)
 cookie=0x35e35871, priority=150,in_port=9,dl_vlan=200 actions=strip_vlan,\
load:0xc->NXM_NX_REG13[0..15],load:0x3->OXM_OF_METADATA[],resubmit(,8)
 priority=100,in_port=3 actions=move:NXM_NX_TUN_ID[0..23]->\
OXM_OF_METADATA[0..23],resubmit(,43)
 cookie=0x46696ed, priority=100,in_port=4 actions=load:0x1->\
NXM_NX_REG13[0..15],load:0x1->OXM_OF_METADATA[],resubmit(,8)
 cookie=0xbf21b861, priority=100,in_port=5 actions=load:0x4->\
NXM_NX_REG13[0..15],load:0x2->OXM_OF_METADATA[],resubmit(,8)
 cookie=0x85a8f7b2, priority=100,in_port=7 actions=load:0x9->\
NXM_NX_REG13[0..15],load:0x3->OXM_OF_METADATA[],resubmit(,8)
 cookie=0x1, priority=150,in_port=4,dl_vlan=5 actions=strip_vlan,\
load:0x9->OXM_OF_METADATA[],resubmit(,8)
 priority=0 actions=drop
"""


def port(
    name: str, ofport: int, kind: str = '', **options: str
) -> open_vswitch.Port:
    return open_vswitch.Port(
        name,
        (
            open_vswitch.Interface(
                name, type=kind, options=options, ofport=ofport
            ),
        ),
    )


def patch(name: str, ofport: int) -> open_vswitch.Port:
    return port(
        f'patch-br-int-to-{name}',
        ofport,
        'patch',
        peer=f'patch-{name}-to-br-int',
    )


OVN = open_vswitch.OpenVswitch(
    {'ovn-bridge-mappings': 'hpc0:br-n0,hpc1:br-n1'},
    (
        open_vswitch.Bridge(
            'br-int',
            (
                *(port(f'tap{number}', number) for number in (4, 5, 7)),
                port('ovn-h2-0', 3, 'geneve'),
                patch('provnet-a', 6),
                patch('provnet-b', 9),
                patch('provnet-c', 8),
            ),
        ),
        open_vswitch.Bridge(
            'br-n0',
            (
                port('patch-provnet-a-to-br-int', 2, 'patch'),
                port('patch-provnet-b-to-br-int', 3, 'patch'),
            ),
        ),
        open_vswitch.Bridge(
            'br-n1', (port('patch-provnet-c-to-br-int', 2, 'patch'),)
        ),
    ),
)


class OvnTest(base.BaseTestCase):
    def test_flows_tell_tunnels_from_provider_networks(self) -> None:
        networks = port_network.of_ovn(OVN, WIRED)
        self.assertEqual({4, 5, 7}, set(networks))
        self.assertTrue(networks[4].tunneled)
        self.assertEqual(
            port_network.PortNetwork(
                'datapath 2', (port_network.Segment('hpc0', 'provnet-a'),)
            ),
            networks[5],
        )

    def test_two_mapped_segments_are_a_fault(self) -> None:
        network = port_network.of_ovn(OVN, WIRED)[7]
        self.assertEqual({'hpc0', 'hpc1'}, network.physnets)
        self.assertIs(
            port_network.Fault.SEVERAL_SEGMENTS,
            network.fault,
        )

    def test_newer_notation_is_read(self) -> None:
        text = WIRED.replace('load:', 'set_field:').replace(
            'OXM_OF_METADATA[]', 'metadata'
        )
        self.assertEqual(
            port_network.of_ovn(OVN, WIRED), port_network.of_ovn(OVN, text)
        )

    def test_encap_ip_is_told_by_each_version_of_openflow(self) -> None:
        state = open_vswitch.OpenVswitch(
            {'ovn-encap-ip': '10.2.0.1,10.1.0.1'}, OVN.bridges
        )
        for actions, expected in (
            ('load:0x1->NXM_NX_REG13[16..31]', '10.2.0.1'),
            ('load:0->NXM_NX_REG13[16..31]', '10.1.0.1'),
            ('set_field:0x10000/0xffff0000->reg13', '10.2.0.1'),
            ('set_field:0/0xffff0000->reg13', '10.1.0.1'),
            ('load:0x7->NXM_NX_REG13[16..31]', None),
            ('load:0x1->NXM_NX_REG13[0..15]', None),
        ):
            with self.subTest(actions):
                (network,) = port_network.of_ovn(
                    state, f'in_port=4 actions=set_field:1->metadata,{actions}'
                ).values()
                self.assertEqual(expected, network.encap_ip)

    def test_port_without_a_flow_is_unknown(self) -> None:
        self.assertEqual({}, port_network.of_ovn(OVN, ' actions=drop'))
        self.assertEqual(
            {}, port_network.of_ovn(open_vswitch.OpenVswitch(), WIRED)
        )


class Ml2Test(base.BaseTestCase):
    def ports(self, *records: str) -> list[open_vswitch.Port]:
        """Return ports with what Neutron's agent writes.

        :param records: network, type, physical network and VLAN.
        """
        made = []
        for number, words in enumerate(records):
            net, kind, physnet, vlan = words.split()
            other_config = {
                'net_uuid': net,
                'network_type': kind,
                'physical_network': physnet,
                'tag': '1',
            }
            if vlan != '-':
                other_config['segmentation_id'] = vlan
            made.append(
                open_vswitch.Port(
                    f'tap{number}', (), other_config=other_config
                )
            )
        return made

    def test_agent_records_tunnels_and_provider_networks(self) -> None:
        networks = port_network.of_ml2(
            [
                *self.ports(
                    'a vxlan None 7', 'b vlan hpc0 100', 'c flat hpc1 -'
                ),
                open_vswitch.Port('int-br-hpc0', ()),
            ]
        )
        self.assertEqual({'tap0', 'tap1', 'tap2'}, set(networks))
        self.assertTrue(networks['tap0'].tunneled)
        self.assertEqual(
            (port_network.Segment('hpc0', 'VLAN 100'),),
            networks['tap1'].segments,
        )
        self.assertEqual({'hpc1'}, networks['tap2'].physnets)
        self.assertEqual({None}, {one.fault for one in networks.values()})

    def test_one_vlan_on_two_physnets_of_a_network_is_a_fault(self) -> None:
        networks = port_network.of_ml2(
            self.ports(
                'a vlan hpc0 100',
                'a vlan hpc1 100',
                'a vlan hpc0 200',
                'b vlan hpc1 100',
            )
        )
        same = port_network.Fault.SAME_VLAN
        self.assertEqual(
            [same, same, None, None], [one.fault for one in networks.values()]
        )
        self.assertEqual({'hpc0', 'hpc1'}, networks['tap0'].physnets)
