# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""The agreement on slots over oslo.messaging's in-memory driver."""

from typing import Any
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent.clusters import slot_exchange
from nova_vhpc.control.model import GangDemand
from nova_vhpc.control.slots import clock_offset, messages, protocol
from nova_vhpc.tests.unit.agent.clusters import peer_agents as agents


class SlotExchangeTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        for module, name, value in (
            (protocol, 'JOIN_US', 400_000),
            # The driver looks for messages every 50 ms only.
            (clock_offset, 'LIMIT_US', 40_000),
            (clock_offset, 'RETURN_US', 20_000),
        ):
            self.useFixture(fixtures.MockPatchObject(module, name, value))

    def start(
        self, host: str, clusters: str, *, silent: bool = False, **options: Any
    ) -> agents.Agent:
        agent = agents.Agent(
            'fake://', host, silent=silent, lease=1.0, **options
        )
        self.addCleanup(agent.stop)
        agent.gangs = tuple(GangDemand(key, 8, 0.25) for key in clusters)
        return agent.start(**dict.fromkeys(clusters, agents.QUIET))

    def slots(self, agent: agents.Agent) -> dict[str, Any]:
        slots: dict[str, Any] = agent.phase_exchange.status()['slots']
        return slots

    def test_hosts_with_different_clusters_agree(self) -> None:
        hosts = [
            self.start('a', 'pq'),
            self.start('b', 'qr'),
            self.start('c', 'rp'),
        ]

        def agree() -> bool:
            tables = [host.phase_exchange.slots.table() for host in hosts]
            a, b, c = tables
            return (
                a.keys() == {*'pq'}
                and b.keys() == {*'qr'}
                and c.keys() == {*'rp'}
                and (a['p'], a['q'], b['r']) == (c['p'], b['q'], c['r'])
                and all(
                    None not in table.values()
                    and sum(slot.slots.bit_count() for slot in table.values())
                    == sum(slot.slots for slot in table.values()).bit_count()
                    for table in tables
                )
            )

        self.assertTrue(agents.wait_for(agree))
        status = self.slots(hosts[1])
        self.assertEqual('agreeing', status['state'])
        self.assertEqual({'a': 'slots'}, status['clusters']['q']['hosts'])
        self.assertTrue(status['clusters']['r']['leads'])

    def test_vm_in_no_cluster_has_slots_of_its_host_alone(self) -> None:
        agent = self.start('a', 'p')
        agent.gangs += (GangDemand('vm', 8, 0.25),)
        other = self.start('b', 'p')

        mine, theirs = (one.phase_exchange.slots for one in (agent, other))
        self.assertTrue(
            agents.wait_for(
                lambda: (
                    mine.table().keys() == {'p', 'vm'}
                    and theirs.table().keys() == {'p'}
                )
            )
        )
        self.assertEqual({'p'}, self.slots(agent)['clusters'].keys())

    def test_cluster_has_no_slots_if_a_clock_is_wrong(self) -> None:
        log = self.useFixture(fixtures.FakeLogger(slot_exchange.__name__))
        self.start('a', 'p')
        self.start('b', 'p')
        wrong = self.start('c', 'p')
        exchange = wrong.phase_exchange.slots
        self.assertTrue(agents.wait_for(lambda: 'p' in exchange.table()))
        heard = exchange._clock.heard

        def heard_late(host: str, sent: int, at: int, *rest: Any) -> None:
            heard(host, sent, at + 300_000, *rest)

        with mock.patch.object(exchange._clock, 'heard', heard_late):
            # The quickest message before the clock was wrong is forgotten.
            exchange._clock._lags.clear()
            self.assertTrue(
                agents.wait_for(lambda: self.slots(wrong)['state'] == 'local')
            )
        self.assertIn('ms ahead', self.slots(wrong)['detail'])
        self.assertIn('have no gang windows', log.output)
        self.assertTrue(agents.wait_for(lambda: not exchange.table()['p']))

    def test_hosts_with_another_slot_length_do_not_agree(self) -> None:
        log = self.useFixture(fixtures.FakeLogger(slot_exchange.__name__))
        hosts = [self.start('a', 'p'), self.start('b', 'p')]
        other = self.start('c', 'p', slot_us=20_000)
        for host in hosts:
            self.assertTrue(
                agents.wait_for(
                    lambda host=host: (
                        'p' in host.phase_exchange.slots.table()
                        and self.slots(host)['clusters']['p']['hosts'].get('c')
                        == 'refuses'
                    )
                )
            )
            self.assertTrue(
                agents.wait_for(
                    lambda host=host: (
                        '20000 on c' in self.slots(host)['detail']
                    )
                )
            )
        self.assertTrue(
            agents.wait_for(
                lambda: (
                    self.slots(other)['clusters']['p']['hosts']
                    == {'a': 'refuses', 'b': 'refuses'}
                )
            )
        )
        self.assertIn('and 20000 on c; other hosts', log.output)
        other.stop()
        for host in hosts:
            self.assertTrue(
                agents.wait_for(
                    lambda host=host: not self.slots(host)['detail']
                )
            )

    def test_hosts_that_refuse_or_rest_are_named(self) -> None:
        agent = self.start('a', 'p')
        exchange = agent.phase_exchange.slots
        self.assertTrue(
            agents.wait_for(lambda: 'p' in self.slots(agent)['clusters'])
        )
        for host, report in (
            ('b', messages.Report(4, 8)),
            ('c', messages.Report(4, 8, plays=False)),
            ('d', messages.Report(4, 8, rests=2)),
        ):
            exchange.receive(
                messages.Message('p', host, 1, 1, 6_000_000, report)
            )
        self.assertEqual(
            {'b': 'slots', 'c': 'refuses', 'd': 'rests'},
            self.slots(agent)['clusters']['p']['hosts'],
        )
        # One that refuses takes the slots from all.
        self.assertTrue(
            agents.wait_for(lambda: exchange.table() == {'p': None})
        )
        self.assertIsNone(self.slots(agent)['clusters']['p']['slot'])

    def test_silent_agent_agrees_on_nothing(self) -> None:
        agent = self.start('a', 'p', silent=True)
        self.assertEqual('off', self.slots(agent)['state'])
        self.assertEqual('', self.slots(agent)['detail'])
        self.assertEqual(0, self.slots(agent)['sent'])

    def test_agent_that_ends_is_forgotten_by_the_others(self) -> None:
        first, second = self.start('a', 'p'), self.start('b', 'p')

        def hosts() -> dict[str, str]:
            clusters = self.slots(second)['clusters']
            found: dict[str, str] = clusters.get('p', {}).get('hosts', {})
            return found

        self.assertTrue(agents.wait_for(lambda: hosts() == {'a': 'slots'}))
        first.stop()
        self.assertTrue(agents.wait_for(lambda: hosts() == {}, 3))
