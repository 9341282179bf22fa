# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The phase exchange over oslo.messaging's in-memory driver."""

import time
import uuid
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent.clusters import names, phase_exchange
from nova_vhpc.agent.metrics import endpoint, host_metrics
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent.clusters import peer_agents as agents
from nova_vhpc.tests.unit.agent.daemon import status_document


class PhaseExchangeTest(base.BaseTestCase):
    def agent(
        self, host: str, *, silent: bool = False, **options: object
    ) -> agents.Agent:
        options.setdefault('lease', 1.0)
        agent = agents.Agent('fake://', host, silent=silent, **options)
        self.addCleanup(agent.stop)
        return agent

    def test_exchange_is_off_without_url_or_if_disabled(self) -> None:
        for url, options in (
            ('rabbit://', {}),
            ('fake://', {'enabled': False}),
        ):
            agent = agents.Agent(url, 'a', **options)
            agent.phase_exchange.start()
            self.assertEqual('off', agent.phase_exchange.status()['state'])
            agent.phase_exchange.publish({'c': agents.IO})
            self.assertEqual({}, agent.phase_exchange.views())
            agent.phase_exchange.stop()

    def test_view_is_computing_without_statements(self) -> None:
        agent = self.agent('a').start(c=agents.IO)
        self.assertTrue(
            agents.wait_for(lambda: 'c' in agent.phase_exchange.views())
        )
        self.assertFalse(agent.phase_exchange.views()['c'].io)

    def test_status_has_the_own_statement(self) -> None:
        agent = self.agent('a').start(c=agents.IO)
        self.assertTrue(
            agents.wait_for(lambda: agent.phase_exchange.status()['sent'] > 0)
        )
        cluster = agent.phase_exchange.status()['clusters']['c']
        self.assertEqual('io', cluster['phase'])
        self.assertEqual('io', cluster['own'])
        self.assertEqual({}, cluster['hosts'])

    def test_silent_agent_receives_and_sends_nothing(self) -> None:
        """A dry run is silent; its withdrawal would move servers, too."""
        other = self.agent('b').start(c=agents.IO)
        silent = self.agent('a', silent=True).start(c=agents.IO)
        self.assertTrue(
            agents.wait_for(
                lambda: any(
                    v.io for v in silent.phase_exchange.views().values()
                )
            )
        )
        self.assertTrue(
            agents.wait_for(
                lambda: silent.phase_exchange.status()['state'] == 'up'
            )
        )
        with mock.patch.object(silent.phase_exchange._bus, 'send') as send:
            silent.stop()
        send.assert_not_called()
        self.assertEqual(0, silent.phase_exchange.status()['sent'])
        self.assertEqual(0, other.phase_exchange.status()['received'])

    def test_other_agent_with_the_same_host_name_is_reported(self) -> None:
        """Each of them would mute what the other one says."""
        log = self.useFixture(fixtures.FakeLogger(phase_exchange.__name__))
        host = uuid.uuid4().hex
        both = [self.agent(host).start(c=agents.QUIET) for _ in range(2)]
        for agent in both:
            self.assertTrue(
                agents.wait_for(
                    lambda agent=agent: (
                        f'uses the name {host} of this host'
                        in agent.phase_exchange.status()['detail']
                    )
                )
            )
        self.assertIn(f'uses the name {host}', log.output)

    def test_project_that_names_too_many_clusters_is_reported(self) -> None:
        agent = self.agent('a')
        most = names.MAX_CLUSTERS
        agent.phase_exchange.start()
        agent.phase_exchange.publish(
            {f'p/c{number}': agents.QUIET for number in range(most + 1)}
        )
        self.assertTrue(
            agents.wait_for(
                lambda: (
                    f'projects p (by vhpc:cluster) have more than {most} '
                    in agent.phase_exchange.status()['detail']
                )
            )
        )
        self.assertEqual(most, len(agent.phase_exchange.views()))

    def test_status_and_metrics_have_the_state_of_the_bus(self) -> None:
        agent = self.agent('a')
        self.assertNotIn('nova_vhpc_bus_up 1.0', self.scrape(agent))
        agent.phase_exchange.start()
        # The agent has no cluster, so it sends only echoes.
        self.assertTrue(
            agents.wait_for(
                lambda: agent.phase_exchange.status()['state'] == 'up'
            )
        )
        page = self.scrape(agent)
        self.assertIn('nova_vhpc_bus_up 1.0', page)
        self.assertIn('nova_vhpc_bus_echo_seconds ', page)
        self.assertIn('nova_vhpc_peer_words_sent_total 0.0', page)

    def scrape(self, agent: agents.Agent) -> str:
        status = {
            'agent': status_document.agent(),
            'peers': agent.phase_exchange.status(),
        }
        return (
            endpoint.Metrics(host_metrics.HostCollector(lambda: status))
            .page()
            .decode()
        )

    def test_agent_with_a_hanging_tick_stops_sending(self) -> None:
        agent = self.agent('a')
        agent.phase_exchange.start()
        agent.phase_exchange.publish({'c': agents.IO})
        self.assertTrue(
            agents.wait_for(lambda: agent.phase_exchange.status()['sent'] > 0)
        )

        def rests() -> bool:
            before = agent.phase_exchange.status()['sent']
            # Else it renews the statement three times in a lease of 1 s.
            time.sleep(0.8)
            return bool(before == agent.phase_exchange.status()['sent'])

        waiting.wait_for(rests)
        agent.start(c=agents.IO)
