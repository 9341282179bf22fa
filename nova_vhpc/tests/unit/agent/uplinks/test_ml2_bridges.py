# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bridge mappings in files as Neutron's Open vSwitch agent has them."""

import fixtures
from oslotest import base

from nova_vhpc.agent.uplinks import ml2_bridges


class Ml2BridgesTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = self.useFixture(fixtures.TempDir())
        self.files = [self.folder.join(name) for name in ('a.ini', 'b.ini')]
        self.bridges = ml2_bridges.Ml2Bridges(self.files)

    def write(self, index: int, text: str) -> None:
        with open(self.files[index], 'w') as file:
            file.write(text)

    def test_host_without_the_files_has_no_such_agent(self) -> None:
        self.assertIsNone(self.bridges.read())

    def test_file_without_mappings_says_nothing(self) -> None:
        self.write(0, '[ovs]\nintegration_bridge = br-vm\n')
        self.assertIsNone(self.bridges.read())

    def test_later_file_counts(self) -> None:
        self.write(0, '[ovs]\nbridge_mappings = a:br-a\n')
        self.write(
            1,
            '[ovs]\nbridge_mappings = b:br-b,c:br-c\n'
            'integration_bridge = br-vm\n',
        )
        bridges = self.bridges.read()
        assert bridges is not None
        self.assertEqual({'b': 'br-b', 'c': 'br-c'}, bridges.mappings)
        self.assertEqual('br-vm', bridges.integration)

    def test_changed_file_is_read_again(self) -> None:
        self.write(0, '[ovs]\nbridge_mappings = a:br-a\n')
        self.bridges.read()
        self.write(0, '[ovs]\nbridge_mappings = a:br-other\n')
        bridges = self.bridges.read()
        assert bridges is not None
        self.assertEqual({'a': 'br-other'}, bridges.mappings)

    def test_mappings_are_kept_while_a_file_is_broken(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.write(0, '[ovs]\nbridge_mappings = a:br-a\n')
        self.bridges.read()
        self.write(0, '[ovs\nbridge_mappings = a:br-b\n')
        for _ in range(2):
            bridges = self.bridges.read()
            assert bridges is not None
            self.assertEqual({'a': 'br-a'}, bridges.mappings)
        self.assertEqual(1, log.output.count('Bridge mappings are not read'))
