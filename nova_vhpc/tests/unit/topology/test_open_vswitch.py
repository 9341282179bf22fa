# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What options of ovn-controller mean."""

from typing import Any

from oslotest import base

from nova_vhpc.topology import open_vswitch


def ovs(**external_ids: str) -> open_vswitch.OpenVswitch:
    return open_vswitch.OpenVswitch(
        {name.replace('_', '-'): text for name, text in external_ids.items()}
    )


class OvnOptionsTest(base.BaseTestCase):
    def test_mappings_without_bridge_or_physnet_are_left_out(self) -> None:
        self.assertEqual(
            {'hpc0': 'br-hpc0', 'hpc1': 'br-hpc1'},
            ovs(
                ovn_bridge_mappings='hpc0:br-hpc0, hpc1:br-hpc1,x,:y,z:,'
            ).neutron_bridges.mappings,
        )

    def test_guests_are_on_the_bridge_that_ovn_is_told(self) -> None:
        self.assertEqual('br-int', ovs().neutron_bridges.integration)
        self.assertEqual(
            'br-vm', ovs(ovn_bridge='br-vm').neutron_bridges.integration
        )

    def test_option_of_the_chassis_comes_first(self) -> None:
        own = open_vswitch.OpenVswitch(
            {
                'system-id': 'cn1',
                'ovn-encap-ip': '10.1.0.1',
                'ovn-encap-ip-cn1': '10.2.0.1',
                'ovn-encap-ip-cn2': '10.3.0.1',
            }
        )
        self.assertEqual(('10.2.0.1',), own.encap_ips)

    def test_order_of_encap_ips_is_kept(self) -> None:
        self.assertEqual(
            ('10.2.0.1', '10.1.0.1'),
            ovs(ovn_encap_ip='10.2.0.1, 10.1.0.1,10.2.0.1').encap_ips,
        )

    def test_default_encap_ip_is_one_of_them(self) -> None:
        both = '10.1.0.1,10.2.0.1'
        for encap_ip, default, expected in (
            (both, '10.2.0.1', '10.2.0.1'),
            (both, '10.9.0.1', None),
            (both, '', None),
            ('10.1.0.1', '', '10.1.0.1'),
            ('', '10.1.0.1', None),
        ):
            self.assertEqual(
                expected,
                ovs(
                    ovn_encap_ip=encap_ip, ovn_encap_ip_default=default
                ).encap_ip_default,
            )

    def test_addresses_are_compared_and_texts_are_kept(self) -> None:
        state = ovs(
            ovn_encap_ip='FD00:0::0001,fd00:1:0:0::1',
            ovn_encap_ip_default='fd00::1%eth1',
        )
        self.assertEqual('FD00:0::0001', state.encap_ip_default)
        self.assertEqual('fd00:1:0:0::1', state.encap_ip('fd00:1::1'))
        self.assertIsNone(state.encap_ip('fd00:2::1'))
        self.assertIsNone(state.encap_ip(None))

    def test_host_without_ovn_controller_is_recognised(self) -> None:
        self.assertFalse(ovs(hostname='cn1').has_ovn)
        self.assertTrue(ovs(ovn_remote='tcp:10.0.0.1:6642').has_ovn)


class BondTest(base.BaseTestCase):
    def port(self, **columns: Any) -> open_vswitch.Port:
        return open_vswitch.Port('bond0', (), **columns)

    def test_basis_is_read_as_open_vswitch_reads_it(self) -> None:
        for text, expected in (('7', 7), ('-1', 0), ('x', 0), ('', 0)):
            port = self.port(other_config={'bond-hash-basis': text})
            self.assertEqual(expected, port.hash_basis)
        self.assertEqual(0, self.port().hash_basis)

    def test_frames_leave_with_the_tag_that_the_port_lets_them(self) -> None:
        for tag, mode, on_wire in (
            (None, '', {0: 0, 100: 100, 200: 200}),
            (None, 'trunk', {100: 100}),
            (100, '', {100: 0}),
            (100, 'access', {100: 0}),
            (100, 'native-untagged', {100: 0, 200: 200}),
            (100, 'native-tagged', {100: 100, 200: 200}),
            (100, 'dot1q-tunnel', {100: 100}),
        ):
            port = self.port(tag=tag, vlan_mode=mode)
            for vlan, expected in on_wire.items():
                self.assertEqual(
                    expected, port.vlan_on_wire(vlan), (tag, mode, vlan)
                )
