# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.libvirt.interfaces`."""

from oslotest import base

from nova_vhpc.agent.libvirt import interfaces

NIC = """
<interface type='{kind}'><mac address='{mac}'/>
<source bridge='{bridge}' portid='x'/>{more}<target dev='tap{mac}'/>
</interface>"""


def domain(*bridges: str, kind: str = 'bridge', more: str = '') -> str:
    interfaces = ''.join(
        NIC.format(kind=kind, mac=f'm{number}', bridge=bridge, more=more)
        for number, bridge in enumerate(bridges)
    )
    return f'<domain><devices>{interfaces}</devices></domain>'


class ChosenTest(base.BaseTestCase):
    def test_claims_concern_the_last_nics_or_those_from_an_index(self) -> None:
        nics = interfaces.read(domain('a', 'b', 'c'))
        for uplink_nic, claims, expected in (
            (None, 1, ['m2']),
            (None, 2, ['m1', 'm2']),
            (0, 1, ['m0']),
            (1, 2, ['m1', 'm2']),
        ):
            chosen = interfaces.chosen(nics, claims, uplink_nic)
            self.assertEqual(expected, [nic.mac for nic in chosen])

    def test_fewer_nics_than_claims_raise_an_error(self) -> None:
        nics = interfaces.read(domain('s', 's'))
        for uplink_nic, claims in ((2, 1), (None, 3), (1, 2)):
            error = self.assertRaises(
                interfaces.UnsupportedError,
                interfaces.chosen,
                nics,
                claims,
                uplink_nic,
            )
            self.assertIn('NICs', str(error))


class AssignTest(base.BaseTestCase):
    def test_as_few_nics_as_possible_change(self) -> None:
        for present, wanted, changes in (
            (('s',), 'o', {'0': 'o'}),
            (('o',), 'o', {}),
            (('x', 'x'), 'ab', {'0': 'a', '1': 'b'}),
            (('b', 'x'), 'ab', {'1': 'a'}),
            ((None, 'x'), 'aa', {'0': 'a', '1': 'a'}),
        ):
            by_mac = {str(n): value for n, value in enumerate(present)}
            self.assertEqual(
                changes, dict(interfaces.assign(by_mac, list(wanted)))
            )


class ReadTest(base.BaseTestCase):
    def test_only_a_nic_on_a_linux_bridge_has_one(self) -> None:
        port = "<virtualport type='openvswitch'/>"
        for xml, kind, bridge in (
            (domain('s'), 'bridge', 's'),
            (domain('s', more=port), 'openvswitch', None),
            (domain('s', kind='ethernet'), 'ethernet', None),
        ):
            (nic,) = interfaces.read(xml)
            self.assertEqual(('m0', kind), (nic.mac, nic.kind))
            self.assertEqual(bridge, nic.bridge)

    def test_invalid_xml_raises_value_error(self) -> None:
        self.assertRaises(ValueError, interfaces.read, '<domain')
