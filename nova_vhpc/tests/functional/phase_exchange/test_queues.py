# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""What agents declare on a real RabbitMQ, and what they leave there."""

import collections
import gc
import importlib
import time
from typing import Any

import fixtures

from nova_vhpc.agent.clusters import bus
from nova_vhpc.agent.rpc import control
from nova_vhpc.tests.functional.phase_exchange import test_rabbitmq
from nova_vhpc.tests.unit.agent.clusters import peer_agents as agents
from nova_vhpc_lab.testbed import rabbitmq

kombu: Any = importlib.import_module('kombu')
server: Any = importlib.import_module('oslo_messaging.rpc.server')

IO, QUIET = agents.IO, agents.QUIET
DEFAULT: dict[str, object] = {}
DURABLE = {'amqp_durable_queues': True}
QUORUM = {'rabbit_quorum_queue': True}
KOLLA = {
    'rabbit_quorum_queue': True,
    'rabbit_transient_quorum_queue': True,
    'rabbit_stream_fanout': True,
    'rabbit_qos_prefetch_count': 1,
}


CTL_S = 2 * rabbitmq.CTL_S
"""Longest time until ``rabbitmqctl`` shows what has happened."""


class QueueTest(test_rabbitmq.OwnBrokerTestCase):
    """Starting a broker takes most of the time, so one serves all."""

    def agent_with(
        self, host: str, rabbit: dict[str, object], **options: object
    ) -> agents.Agent:
        agent = self.agent(host, **options)
        for name, value in rabbit.items():
            agent.phase_exchange._conf.set_override(
                name, value, 'oslo_messaging_rabbit'
            )
        return agent

    def queues(self) -> list[list[str]]:
        """Name, durable and exclusive of each queue."""
        rows = self.broker.ctl(
            'list_queues', 'name', 'durable', 'exclusive', '--no-table-headers'
        )
        return [row.split('\t') for row in rows.splitlines()]

    def exchanges(self) -> set[str]:
        """Names of the exchanges that are not RabbitMQ's own."""
        names = self.broker.ctl('list_exchanges', 'name', '--no-table-headers')
        return {
            name
            for name in names.splitlines()
            if name and not name.startswith('amq.')
        }

    def test_settings(self) -> None:
        """With no more rights than ``doc/source/admin/peers.rst`` names."""
        names = r'nova_vhpc|vhpc\..*|reply_.*'
        self.broker.ctl(
            'set_permissions',
            'guest',
            f'^({names})$',
            rf'^({names}|amq\.default)$',
            f'^({names})$',
        )
        for rabbit, left in (
            (DEFAULT, set()),
            (DURABLE, {'nova_vhpc'}),
            (QUORUM, {'nova_vhpc'}),
            (KOLLA, {'nova_vhpc'}),
        ):
            with self.subTest(rabbit=rabbit):
                self.check_setting(rabbit, left)

    def test_any_number_of_clusters_takes_one_connection(self) -> None:
        """A tenant decides how many there are, and for how long."""
        agent = self.agent('a').start(c1=QUIET)
        self.wait_for(lambda: agent.listens('c1'))
        self.wait_for_state('up', agent)
        one = self.connections()
        many = {f'c{number}': QUIET for number in range(200)}
        agent.say(**many)
        self.wait_for(lambda: agent.listens('c199'))
        listening = agent.phase_exchange.status()['listening']
        self.assertEqual(sorted(many), listening)
        # The connection that was replaced ends after some seconds.
        self.wait_for(lambda: self.connections() <= one, CTL_S)

        agent.say(new=QUIET)
        self.wait_for(lambda: agent.listens('new'))
        self.wait_for(
            lambda: 'vhpc.peers.c199_fanout' not in self.exchanges(), CTL_S
        )
        self.assertIn('vhpc.peers.new_fanout', self.exchanges())
        self.wait_for(lambda: self.connections() <= one, CTL_S)

    def test_renamed_clusters_leave_nothing_in_memory(self) -> None:
        """Tenants rename clusters as often as they like."""
        self.useFixture(fixtures.MockPatchObject(bus, '_MIN_INTERVAL_S', 0.0))
        hosts = [self.agent(host, lease=1.0).start(c=IO) for host in 'ab']

        def rename(*names: str) -> None:
            for name in names:
                for host in hosts:
                    host.say(**{name: IO})
                for host in hosts:
                    self.wait_for(
                        lambda host=host, name=name: (
                            host.phase_exchange.status()['listening'] == [name]
                            and host.phase_exchange.views()[name].io
                        )
                    )

        rename('first', 'second', 'third')
        # The servers that were replaced end after some seconds.
        time.sleep(5)
        before = self.objects()
        rename(*(f'name{number}' for number in range(10)))
        self.wait_for(lambda: self.objects() <= before, 30)

    @staticmethod
    def objects() -> collections.Counter[str]:
        """Return numbers of what each listener has."""
        gc.collect()
        return collections.Counter(
            type(one).__qualname__
            for one in gc.get_objects()
            if isinstance(
                one, (server.RPCServer, kombu.Queue, kombu.Connection)
            )
        )

    def connections(self) -> int:
        rows = self.broker.ctl('list_connections', 'pid', '--no-table-headers')
        return len(rows.splitlines())

    def test_refused_setting_is_named_in_the_status(self) -> None:
        agent = self.agent_with('a', {'rabbit_stream_fanout': True}).start()
        self.wait_for(
            lambda: (
                'rabbit_transient_quorum_queue'
                in agent.phase_exchange.status()['detail']
            ),
        )

    def check_setting(self, rabbit: dict[str, object], left: set[str]) -> None:
        """Phases and calls arrive over exclusive queues, which all vanish."""
        a = self.agent_with('a', rabbit).start(c1=QUIET, c2=QUIET)
        b = self.agent_with('b', rabbit).start(c1=QUIET)
        for agent in (a, b):
            self.wait_for(lambda agent=agent: agent.listens('c1'))
            self.wait_for_state('up', agent)
        a.say(c1=IO, c2=QUIET)
        self.wait_for(lambda: b.io('c1'))
        conf = agents.make_conf(self.url, call_timeout=60.0)
        for name, value in rabbit.items():
            conf.set_override(name, value, 'oslo_messaging_rabbit')
        client = control.ControlClient(conf)
        self.addCleanup(client.close)
        self.assertEqual({'vms': [{'uuid': 'x'}]}, client.call('b', 'status'))
        queues = self.queues()
        # Of each host one for control calls and one for all clusters, and
        # one for answers.
        self.assertEqual(5, len(queues), queues)
        self.assertEqual({'true'}, {exclusive for _, _, exclusive in queues})

        # A cluster that is gone.
        a.say(c1=IO)
        self.wait_for(
            lambda: 'vhpc.peers.c2_fanout' not in self.exchanges(), CTL_S
        )
        # An agent that is gone, and the product.
        a.stop()
        self.wait_for(lambda: not b.io('c1'))
        b.stop()
        client.close()
        self.wait_for(lambda: not self.queues(), CTL_S)
        self.wait_for(lambda: self.exchanges() <= left, CTL_S)
        self.forget_exchange()

    def forget_exchange(self) -> None:
        """Delete the exchange, which has other properties the next time."""
        with self.connection() as connection:
            connection.channel().exchange_delete('nova_vhpc')

    def connection(self) -> Any:
        return kombu.Connection(self.url.replace('rabbit://', 'amqp://') + '/')
