# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.rpc.server`: a broker that refuses."""

import threading

import fixtures
from oslotest import base

from nova_vhpc.agent.rpc import server, transport
from nova_vhpc.tests.unit.agent.clusters import peer_agents

PATIENCE_S = 60.0


class Server:
    """A server that starts once the bus accepts it."""

    def __init__(self, bus: 'Bus') -> None:
        self.bus = bus
        self.ended = threading.Event()

    def start(self, override_pool_size: int) -> None:
        self.bus.tries += 1
        if self.bus.tries > 3:
            self.bus.tried.set()
        self.bus.wait()
        if self.bus.refuses:
            raise RuntimeError('ACCESS_REFUSED -\n Login was refused')

    def stop(self) -> None:
        """Do nothing; :meth:`wait` ends the server."""

    def wait(self) -> None:
        self.ended.set()


class Bus:
    """A broker that refuses servers while ``refuses`` is set."""

    def __init__(self) -> None:
        self.refuses = True
        self.tries = 0
        self.tried = threading.Event()
        self.free = threading.Event()
        self.free.set()
        self.made: list[Server] = []

    def wait(self) -> None:
        self.free.wait(PATIENCE_S)

    def make(self) -> Server:
        self.made.append(Server(self))
        return self.made[-1]


class BackgroundServerTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.useFixture(
            fixtures.MockPatchObject(server, 'MAX_BACKOFF_S', 0.001)
        )
        self.log = self.useFixture(fixtures.FakeLogger(server.__name__))
        self.bus = Bus()
        bus = transport.get_transport(peer_agents.make_conf('rabbit://h/'))
        self.addCleanup(bus.cleanup)
        self.made = server.BackgroundServer(
            't', bus, self.bus.make, 'Nobody listens'
        )
        self.addCleanup(self.made.stop)

    def test_start_is_retried_until_the_broker_accepts(self) -> None:
        self.made.start()
        self.assertTrue(self.bus.tried.wait(PATIENCE_S))
        self.assertFalse(self.made.listening.is_set())
        self.assertEqual(
            'Nobody listens: ACCESS_REFUSED - Login was refused '
            '(transport_url: h:5672)',
            self.made.detail,
        )
        self.bus.refuses = False
        self.assertTrue(self.made.listening.wait(PATIENCE_S))
        self.assertEqual('', self.made.detail)
        first, last = self.log.output.splitlines()
        self.assertEqual(
            'Nobody listens; will retry: ACCESS_REFUSED - Login was refused '
            '(transport_url: h:5672)',
            first,
        )
        self.assertEqual('This problem is over: Nobody listens', last)
        self.made.stop()
        self.assertTrue(self.bus.made[-1].ended.wait(PATIENCE_S))

    def test_server_stopped_while_it_waits_is_ended(
        self,
    ) -> None:
        self.bus.free.clear()
        self.bus.refuses = False
        self.made.start()
        self.made.stop()
        self.bus.free.set()
        for made in self.bus.made:
            self.assertTrue(made.ended.wait(PATIENCE_S))
        self.assertFalse(self.made.listening.is_set())
