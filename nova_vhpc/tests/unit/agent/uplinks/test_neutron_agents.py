# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.uplinks.neutron_agents`."""

import json
import pathlib
from typing import Any

import fixtures
from keystoneauth1 import adapter, noauth, session
from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent.uplinks import neutron_agents
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.conf import neutron as neutron_conf
from nova_vhpc.conf import topology as topology_conf
from nova_vhpc.tests import served
from nova_vhpc.topology import open_vswitch

BRIDGES = open_vswitch.NeutronBridges({'hpc0': 'br-hpc0'}, 'br-int')


class NeutronAgentsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.folder / neutron_agents.FILE
        self.asked = 0
        self.status = '200 OK'
        self.body: Any = {
            'agents': [
                {'configurations': {'bridge_mappings': BRIDGES.mappings}}
            ]
        }
        self.url = self.useFixture(served.Served(self._neutron)).url

    def _neutron(self, environ: Any, start_response: Any) -> list[bytes]:
        self.asked += 1
        start_response(self.status, [('Content-Type', 'application/json')])
        return [json.dumps(self.body).encode()]

    def make(self, interval_s: float = 0.0) -> neutron_agents.NeutronAgents:
        return neutron_agents.NeutronAgents(
            lambda: adapter.Adapter(
                session.Session(noauth.NoAuth()), endpoint_override=self.url
            ),
            ('h1',),
            lambda: interval_s,
            self.file,
        )

    def test_answer_counts_for_an_interval(self) -> None:
        agents = self.make(1000.0)
        self.assertEqual(BRIDGES, agents.read())
        self.assertEqual(BRIDGES, agents.read())
        self.assertEqual(1, self.asked)

    def test_refusal_says_which_role_is_needed(self) -> None:
        self.status = '403 Forbidden'
        agents = self.make()
        self.assertIsNone(agents.read())
        for word in ('[neutron]', 'admin', 'get_agent', 'ml2_config_files'):
            self.assertIn(word, agents.note)

    def test_last_answer_counts_after_a_restart(self) -> None:
        self.make().read()
        for status in ('503 Service Unavailable', '403 Forbidden'):
            self.status = status
            agents = self.make()
            self.assertEqual(BRIDGES, agents.read())
            self.assertNotEqual('', agents.note)
        self.status = '200 OK'
        self.body = {'agents': []}
        self.assertIsNone(self.make().read())
        self.assertFalse(self.file.exists())

    def test_answer_that_is_none_is_a_failure(self) -> None:
        self.make().read()
        for body in (
            [],
            {},
            {'agents': [{}]},
            {'agents': [{'configurations': 7}]},
            {'agents': [{'configurations': {'bridge_mappings': 'a:b'}}]},
        ):
            self.body = body
            agents = self.make()
            self.assertEqual(BRIDGES, agents.read(), body)
            self.assertIn('not read from Neutron', agents.note)

    def test_damaged_file_is_not_used(self) -> None:
        self.status = '503 Service Unavailable'
        for text in ('{', '7', '{"bridge_mappings": 7}'):
            self.file.write_text(text)
            self.assertIsNone(self.make().read())


class OptionsTest(base.BaseTestCase):
    def make(self, **options: Any) -> neutron_agents.NeutronAgents | None:
        conf = cfg.ConfigOpts()
        for module in (agent_conf, neutron_conf, topology_conf):
            module.register_opts(conf)
        conf([], default_config_files=[])
        for name, value in options.items():
            group, _, option = name.partition('__')
            conf.set_override(option, value, group)
        return neutron_agents.make_neutron_agents(conf, ['h1'])

    def test_credentials_and_option_are_needed(self) -> None:
        self.assertIsNone(self.make())
        self.assertIsNotNone(self.make(neutron__auth_type='none'))
        self.assertIsNone(
            self.make(
                neutron__auth_type='none', vhpc_topology__ask_neutron=False
            )
        )
