# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


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


class ChooseTest(base.BaseTestCase):
    def choose(
        self, nic: int | None, plugged: str, claimed: str
    ) -> dict[str, str]:
        nics = interfaces.read(domain(*plugged.split()))
        return dict(interfaces.choose(nics, tuple(claimed.split()), nic))

    def test_nics_that_must_move_are_chosen(self) -> None:
        for nic, plugged, claimed, moves in (
            (None, 's s', 'o', {'m1': 'o'}),
            (0, 's s', 'o', {'m0': 'o'}),
            (None, 's o', 'o', {}),
            (None, 's', 's', {}),
            (None, 'x x', 'a b', {'m0': 'a', 'm1': 'b'}),
            (None, 'b x', 'a b', {'m1': 'a'}),
            (1, 's x x', 'a b', {'m1': 'a', 'm2': 'b'}),
            (None, 'x x', 'a a', {'m0': 'a', 'm1': 'a'}),
        ):
            self.assertEqual(
                moves,
                self.choose(nic, plugged, claimed),
                (nic, plugged, claimed),
            )

    def test_fewer_nics_than_claims_raise_an_error(self) -> None:
        for nic, plugged, claimed in ((2, 's s', 'o'), (None, 's', 'a b')):
            error = self.assertRaises(
                interfaces.UnsupportedError, self.choose, nic, plugged, claimed
            )
            self.assertIn('NICs', str(error))


class NicTest(base.BaseTestCase):
    def test_plugged_nic_differs_in_its_source_only(self) -> None:
        nic = interfaces.read(domain('s'))[0]
        other = interfaces.read(
            f'<d><devices>{nic.plugged_into("o")}</devices></d>'
        )[0]
        self.assertEqual(('m0', 'o'), (other.mac, other.bridge))
        self.assertEqual('s', nic.bridge)
        self.assertNotIn('portid', nic.plugged_into('o'))
        self.assertIn('tapm0', nic.plugged_into('o'))

    def test_nic_that_is_on_no_linux_bridge_is_refused(self) -> None:
        port = "<virtualport type='openvswitch'/>"
        for xml, kind in (
            (domain('s', more=port), 'openvswitch'),
            (domain('s', kind='ethernet'), 'ethernet'),
        ):
            nic = interfaces.read(xml)[0]
            error = self.assertRaises(
                interfaces.UnsupportedError, nic.plugged_into, 'o'
            )
            self.assertIn(kind, str(error))
            self.assertIn('bind_uplinks', str(error))

    def test_invalid_xml_raises_value_error(self) -> None:
        self.assertRaises(ValueError, interfaces.read, '<domain')
