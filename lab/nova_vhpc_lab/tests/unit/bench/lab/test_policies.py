# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Tests of the agents that carry out the lab's policies."""

import configparser
from pathlib import Path

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import policies


class AgentTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)

    def agent(self, **options):
        return policies.Agent(self.root, 'test:///default', options, (0, 1))

    def test_actuators_are_an_option_of_the_agent(self):
        names = 'libvirt,kernel_slice'
        agent = self.agent(slice_policy='atc', actuators=names)
        config = configparser.ConfigParser()
        config.read_string(agent._config(self.root))
        self.assertEqual(names, config['vhpc_agent']['actuators'])
        self.assertEqual({'slice_policy': 'atc'}, dict(config['vhpc_control']))

    def test_agent_without_a_chosen_actuator_is_an_error(self):
        agent = self.agent(actuators='libvirt,kernel_slice')
        log = self.root / 'agent.log'
        log.write_text('Actuator kernel_slice is not used: an earlier agent')
        offset = log.stat().st_size
        agent._check_actuators(offset)
        with open(log, 'a') as file:
            file.write('Actuator kernel_slice is not used: too old\n')
        error = self.assertRaises(
            policies.AgentError, agent._check_actuators, offset
        )
        self.assertIn('too old', str(error))
