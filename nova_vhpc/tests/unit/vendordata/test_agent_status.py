# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import threading

from nova_vhpc.agent.rpc import control
from nova_vhpc.conf import vendordata as vendordata_conf
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.agent.clusters import peer_agents
from nova_vhpc.tests.unit.cli import bus
from nova_vhpc.tests.unit.vendordata import fakes, test_live
from nova_vhpc.vendordata import agent_status

PATIENCE_S = 60.0


def cluster():
    """Member 1 on cn-0042, member 2 on cn-0043."""
    return dataclasses.replace(
        fakes.cluster([fakes.member(1, 'h1'), fakes.member(2, 'h2')]),
        host_names={fakes.uuid(1): 'cn-0042', fakes.uuid(2): 'cn-0043'},
    )


class AgentStatusesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.hang = threading.Event()
        self.addCleanup(self.hang.set)
        self.calls = []

    def call(self, host):
        self.calls.append(host)
        if host == 'cn-0043':
            self.hang.wait(PATIENCE_S)
            raise control.ControlError('no answer')
        return test_live.status()

    def test_agent_that_does_not_answer_leaves_its_member_unknown(self):
        # The second agent hangs until the test ends.
        statuses = agent_status.AgentStatuses(self.call, 2.0, 60.0)
        found = statuses.of_members(cluster())
        self.assertFalse(self.hang.is_set())
        self.assertEqual({fakes.uuid(1)}, found.keys())
        self.assertEqual(10.0, found[fakes.uuid(1)].held_up_s)

    def test_agent_that_hangs_is_not_asked_again(self):
        statuses = agent_status.AgentStatuses(self.call, 0.1, 0.0)
        for _again in range(3):
            statuses.of_members(cluster())
        self.assertEqual(1, self.calls.count('cn-0043'))

    def test_answer_serves_all_members_for_a_while(self):
        self.hang.set()
        statuses = agent_status.AgentStatuses(self.call, PATIENCE_S, 600.0)
        for _again in range(3):
            self.assertEqual(
                {fakes.uuid(1)}, statuses.of_members(cluster()).keys()
            )
        self.assertEqual({'cn-0042', 'cn-0043'}, set(self.calls))
        self.assertEqual(2, len(self.calls))

    def test_member_that_does_not_run_is_unknown(self):
        self.hang.set()
        one = cluster()
        members = [dataclasses.replace(m, running=False) for m in one.members]
        statuses = agent_status.AgentStatuses(self.call, PATIENCE_S, 60.0)
        self.assertEqual(
            {},
            statuses.of_members(
                dataclasses.replace(one, members=tuple(members))
            ),
        )


class BusTest(base.TestCase):
    """Agents answer over oslo.messaging's own RPC."""

    def conf(self, url, **options):
        conf = peer_agents.make_conf(url)
        vendordata_conf.register_opts(conf)
        for name, value in options.items():
            conf.set_override(name, value, 'vhpc_vendordata')
        return conf

    def test_agents_are_asked_by_the_call_of_the_operators_tools(self):
        agents = self.useFixture(bus.Bus())
        agents.agent('cn-0042', **test_live.status())
        statuses = agent_status.make(self.conf('fake://'))
        found = statuses.of_members(cluster())
        # No agent listens on the other host.
        self.assertEqual({fakes.uuid(1)}, found.keys())

    def test_option_turns_asking_off(self):
        conf = self.conf('fake://', ask_agents=False)
        self.assertIsNone(agent_status.make(conf))

    def test_without_transport_url_agents_are_not_asked(self):
        self.assertIsNone(agent_status.make(self.conf('rabbit://')))

    def test_wrong_transport_url_is_refused_and_named(self):
        conf = self.conf('fake://')
        conf.set_override('transport_url', 'rabit://u:hunter2@h:5672/')
        error = self.assertRaises(ValueError, agent_status.make, conf)
        self.assertIn('transport_url', str(error))
        self.assertNotIn('hunter2', str(error))
