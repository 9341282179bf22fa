# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Agents agree on slots over a RabbitMQ that dies meanwhile."""

from typing import Any

import fixtures
from oslotest import base

from nova_vhpc.control.model import GangDemand
from nova_vhpc.tests.functional import rabbitmq
from nova_vhpc.tests.unit.agent.clusters import peer_agents as agents
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class SlotsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.broker = self.useFixture(rabbitmq.RabbitMQFixture()).broker
        self.useFixture(fixtures.FakeLogger('nova_vhpc'))

    def start(self, host: str, clusters: str) -> agents.Agent:
        agent = agents.Agent(self.broker.url, host, lease=6.0)
        self.addCleanup(agent.stop)
        self.demand(agent, clusters)
        return agent.start(**dict.fromkeys(clusters, agents.QUIET))

    def demand(self, agent: agents.Agent, clusters: str) -> None:
        agent.gangs = tuple(GangDemand(key, 8, 0.25) for key in clusters)
        agent.statements = dict.fromkeys(clusters, agents.QUIET)

    def slots(self, agent: agents.Agent) -> dict[str, Any]:
        slots: dict[str, Any] = agent.phase_exchange.status()['slots']
        return slots

    def agree(self, *hosts: agents.Agent) -> bool:
        """Return whether the hosts have the same slots, all disjoint."""
        places: dict[str, set[object]] = {}
        for host in hosts:
            table = host.phase_exchange.slots.table()
            if table.keys() != host.statements.keys():
                return False
            used = 0
            for key, slot in table.items():
                places.setdefault(key, set()).add(slot)
                if slot is None or used & slot.slots:
                    return False
                used |= slot.slots
        return all(len(found) == 1 for found in places.values())

    def test_hosts_agree_and_a_dead_broker_changes_nothing(self) -> None:
        a, b = self.start('a', 'pq'), self.start('b', 'qr')
        self.assertTrue(agents.wait_for(lambda: self.agree(a, b)))
        both = {**a.phase_exchange.slots.table()}
        cluster = self.slots(b)['clusters']['q']
        self.assertEqual({'a': 'slots'}, cluster['hosts'])
        self.broker.kill()
        self.assertTrue(
            agents.wait_for(
                lambda: a.phase_exchange.status()['state'] == 'down', 60
            )
        )
        self.assertEqual(both, {**a.phase_exchange.slots.table()})
        self.broker.start()
        self.demand(a, 'prs')
        self.assertTrue(agents.wait_for(lambda: self.agree(a, b), PATIENCE_S))
        # One machine has one clock. Messages of a busy one may be late.
        self.assertTrue(
            agents.wait_for(
                lambda: (
                    (offset_us := self.slots(a)['clock_offset_us']) is not None
                    and abs(offset_us) < 10_000
                ),
                60,
            )
        )
        self.assertEqual('agreeing', self.slots(a)['state'])
