# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The pages of network configurations say what our programs accept."""

import contextlib
import io
import json
import re
import shlex

from nova.pci import request as pci_request
from oslotest import base

from nova_vhpc.cli import explain, flavor
from nova_vhpc.flavor import validation
from nova_vhpc.scheduler.hosts import network_fit
from nova_vhpc.tests.unit.cli import test_flavor
from nova_vhpc.tests.unit.doc import test_commands
from nova_vhpc.topology import bridge_rules

ADMIN = test_commands.TOP / 'doc/source/admin/network-configurations.rst'

ROW = re.compile(
    r'^   \* -(?: ``(?P<network>[a-z-]+)``)?\n'
    r'     - (?P<ways>[A-Za-z, ]+)\n'
    r'     - ``(?P<words>hpc\.\S+ --network .*)``$',
    re.MULTILINE,
)
"""A row of the table of flavors."""

WAYS = {
    'exported': {'port', 'alias'},
    'shared': {'N', 'T', 'bond'},
    'multiple-shared': {'N', 'T', 'P'},
    'separate': {'N', 'T', 'P'},
    'shared-separate': {'N', 'T', 'P'},
}
"""Ways to each network configuration."""


def set_flavor(words: str) -> dict[str, str]:
    """Return the extra specs that a command would give a new flavor."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = flavor.main(
            ['set', *shlex.split(words), '--dry-run', '--json'],
            test_flavor.Cloud({}),
        )
    assert status == 0, words
    after: dict[str, str] = json.loads(out.getvalue())['after']
    return after


class FlavorsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rows = []
        network = ''
        for row in ROW.finditer(ADMIN.read_text()):
            network = row['network'] or network
            self.rows.append((network, row['ways'].split(', '), row['words']))

    def test_each_configuration_has_its_ways(self) -> None:
        ways: dict[str, set[str]] = {}
        for network, some, _ in self.rows:
            ways.setdefault(network, set()).update(some)
        self.assertEqual(WAYS, ways)

    def test_flavors_are_accepted_and_ask_for_what_the_filter_needs(
        self,
    ) -> None:
        for network, ways, words in self.rows:
            specs = set_flavor(words)
            self.assertEqual(network, specs['vhpc:network'], words)
            by_ports = {'N', 'port'}.issuperset(ways)
            self.assertEqual(
                [],
                validation.problems(
                    specs,
                    sriov_ports='port' in ways,
                    ports=by_ports and network != 'exported',
                ),
                words,
            )
            claims = sum('CUSTOM_VHPC_UPLINK' in key for key in specs)
            self.assertEqual(
                0 if by_ports else network_fit.RULES[network].bridges,
                claims,
                words,
            )


class CommandsTest(base.BaseTestCase):
    def test_flavor_commands_of_all_pages_are_accepted(self) -> None:
        commands = [
            words
            for page in test_commands.pages()
            for block in test_commands.BLOCK.finditer(page.read_text())
            for words in re.findall(
                r'^ *\$ nova-vhpc-flavor set (.*)$',
                block['body'].replace('\\\n', ' '),
                re.MULTILINE,
            )
            if words != '--help'
        ]
        self.assertGreater(len(commands), 4)
        for words in commands:
            set_flavor(words)

    def test_explain_commands_are_accepted(self) -> None:
        found = re.findall(r'\$ nova-vhpc-explain (.*)', ADMIN.read_text())
        self.assertTrue(found)
        for words in found:
            explain.make_parser().parse_args(shlex.split(words))


class OptionsTest(base.BaseTestCase):
    def values(self, option: str) -> list[str]:
        """Return the values of an option on the operator's page."""
        found = re.findall(
            rf'\b{option} = (.*?)(?:``|$)', ADMIN.read_text(), re.M
        )
        self.assertTrue(found, option)
        return found

    def test_rules_of_bridges_are_accepted(self) -> None:
        for rules in self.values('bridges'):
            parsed = bridge_rules.parse_rules(rules.split(','))
            self.assertEqual(rules.count(',') + 1, len(parsed))

    def test_alias_is_accepted_by_nova(self) -> None:
        (alias,) = self.values('alias')
        pci_request.CONF.set_override('alias', [alias], 'pci')
        self.addCleanup(pci_request.CONF.clear_override, 'alias', 'pci')
        ((_, specs),) = pci_request.get_alias_from_config().values()
        for spec in self.values('device_spec'):
            tags = json.loads(spec)
            self.assertTrue({'devname', 'vendor_id'} & tags.keys())
        self.assertEqual(
            [tags['product_id']], [one['product_id'] for one in specs]
        )
