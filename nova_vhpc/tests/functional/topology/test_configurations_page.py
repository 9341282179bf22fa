# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Open vSwitch takes the commands of the page of network configurations.

They are run on a real one, with veth pairs as NICs, and the agent's discovery
must find what the page's rules are for.
"""

import pathlib
import re
import shlex

from oslotest import base

from nova_vhpc.tests.functional.topology import ovs_lab
from nova_vhpc.topology import bridge_rules, discovery, model, open_vswitch

PAGE = (
    pathlib.Path(__file__).parents[4]
    / 'doc/source/admin/network-configurations.rst'
)


def section(title: str) -> str:
    """Return the text of a section of the page."""
    after = PAGE.read_text().partition(f'\n{title}\n---')[2]
    assert after, title
    return re.split(r'\n.+\n[-=]{5,}\n', after)[0]


class ConfigurationsPageTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.lab = self.useFixture(ovs_lab.OvsLab())
        self.ovsdb = self.lab.connect()
        self.nics = [self.lab.veth(f'eth{number}') for number in range(3)]

    def here(self, text: str) -> str:
        """Return a text with the names and addresses of this lab."""
        prefix = self.lab.links.prefix
        text = re.sub(r'\b(eth\d|br-[a-z]+\d?)\b', rf'{prefix}\1', text)
        return re.sub(r'\b10\.(\d)\.0\.1\b', r'198.18.\1.1', text)

    def run_commands(self, text: str) -> None:
        """Run the commands of ovs-vsctl, and set addresses."""
        for line in text.replace('\\\n', ' ').splitlines():
            _, root, command = self.here(line).partition('   # ')
            if not root:
                continue
            program, *words = shlex.split(command)
            if program == 'ovs-vsctl':
                self.lab.switch.vsctl(*self._in_user_space(words))
            else:
                self.assertEqual(['address', 'add'], words[:2])
                self.lab.address(words[4], words[2].partition('/')[0])

    def _in_user_space(self, words: list[str]) -> list[str]:
        """Return a command whose bridges need no kernel module."""
        if 'add-br' not in words:
            return words
        bridge = words[words.index('add-br') + 1]
        at = words.index('--') if '--' in words else len(words)
        kind = ['--', 'set', 'Bridge', bridge, 'datapath_type=netdev']
        return [*words[:at], *kind, *words[at:]]

    def uplinks(
        self, text: str, mappings: str = ''
    ) -> dict[tuple[str, str], model.Uplink]:
        """Return what the agent publishes by the rules of a section.

        :param mappings: bridge mappings of Neutron's own agent.
        """
        rules = re.search(r'bridges = (.*)', text)
        found = discovery.Discovery(
            bridge_rules.parse_rules(
                self.here(rules[1]).split(',') if rules else ()
            ),
            nic_patterns=[f'{self.lab.links.prefix}eth?'],
            open_vswitch=self.read,
            ml2_bridges=lambda: (
                open_vswitch.NeutronBridges(
                    open_vswitch.parse_bridge_mappings(self.here(mappings))
                )
                if mappings
                else None
            ),
        ).discover('node')
        prefix = self.lab.links.prefix
        return {
            (
                uplink.bridge.removeprefix(prefix),
                uplink.nic.removeprefix(prefix),
            ): uplink
            for uplink in found.topology.uplinks
        }

    def read(self) -> open_vswitch.OpenVswitch | None:
        self.lab.settle(self.ovsdb)
        return self.ovsdb.read()

    def test_tunnels_have_an_encap_ip_for_each_nic(self) -> None:
        text = section('T: an address for each NIC')
        self.run_commands(text)
        uplinks = self.uplinks(text)
        self.assertEqual(
            {
                ('eth0', 'eth0'): ('shared', 16, '198.18.1.1'),
                ('eth1', 'eth1'): ('separate', 1, '198.18.2.1'),
                ('eth2', 'eth2'): ('separate', 1, '198.18.3.1'),
            },
            {k: (u.kind, u.slots, u.encap_ip) for k, u in uplinks.items()},
        )
        state = self.read()
        assert state is not None
        self.assertEqual('198.18.1.1', state.encap_ip_default)

    def test_networks_have_a_bridge_for_each_nic(self) -> None:
        text = section('N: a bridge and a physical network for each NIC')
        self.run_commands(text)
        want = {
            (f'br-hpc{number}', f'eth{number}'): (f'hpc{number}',)
            for number in range(3)
        }
        uplinks = self.uplinks(text)
        self.assertEqual(want, {k: u.physnets for k, u in uplinks.items()})
        options = self.lab.switch.vsctl(
            'get', 'Open_vSwitch', '.', 'external_ids:ovn-cms-options'
        )
        bandwidths, hypervisors = options.strip(' \n"').split(',')
        for text in (bandwidths, hypervisors):
            self.assertEqual(3, len(text.partition('=')[2].split(';')), text)

    def test_neutrons_own_agent_has_the_same_bridges(self) -> None:
        text = section('N: a bridge and a physical network for each NIC')
        for line in text.splitlines():
            if 'add-br' in line:
                self.run_commands(line)
        (mappings,) = re.findall(r'^ +bridge_mappings = (.*)$', text, re.M)
        uplinks = self.uplinks(text, mappings)
        self.assertEqual(
            [('hpc0',), ('hpc1',), ('hpc2',)],
            [uplink.physnets for uplink in uplinks.values()],
        )

    def test_members_of_a_bond_are_uplinks_of_their_own(self) -> None:
        text = section('P: a bond')
        self.run_commands(text)
        uplinks = self.uplinks(text)
        self.assertEqual(
            {
                ('br-hpc', 'eth1'): ('separate', 'bond0', ('hpc',)),
                ('br-hpc', 'eth2'): ('separate', 'bond0', ('hpc',)),
            },
            {k: (u.kind, u.bond, u.physnets) for k, u in uplinks.items()},
        )
