# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.clusters.bus`."""

import threading
import uuid
from typing import Any
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent import periodic
from nova_vhpc.agent.clusters import bus, protocol
from nova_vhpc.agent.rpc import transport
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.tests.unit.agent.clusters import peer_agents

FIELDS = {
    'cluster': 'c',
    'host': 'h',
    'boot': 1,
    'seq': 2,
    'phase': 'io',
    'lease_ms': 6000,
}


class SubscriptionTest(base.BaseTestCase):
    def test_refusal_is_logged_once_until_the_broker_accepts(self) -> None:
        """A refusal may last for hours, for instance after a new password."""
        log = self.useFixture(fixtures.FakeLogger(bus.__name__))
        rabbit = transport.get_transport(
            peer_agents.make_conf('rabbit://u:secret@broker/')
        )
        self.addCleanup(rabbit.cleanup)
        peer_bus = bus.PeerBus(rabbit, 'h', lambda message: None)
        peer_bus.subscribe({'c'})
        self.addCleanup(peer_bus.stop)
        for refusals, clusters in ((3, {'c'}), (2, {'c', 'd'})):
            peer_bus.subscribe(clusters)
            answers = [RuntimeError('refused')] * refusals + [mock.Mock()]
            with mock.patch.object(peer_bus, '_listen', side_effect=answers):
                for _ in range(refusals):
                    self.assertRaises(
                        periodic.RetryLater, peer_bus._update_subscriptions
                    )
                self.assertIn('refused', peer_bus.detail)
                peer_bus._update_subscriptions()
            self.assertEqual(clusters, peer_bus.subscribed)
            self.assertEqual('', peer_bus.detail)
        self.assertEqual(
            [
                'Cannot listen to virtual clusters of other hosts; will '
                'retry: refused (transport_url: broker:5672)'
            ]
            * 2,
            log.output.splitlines(),
        )


class TopicTest(base.BaseTestCase):
    def test_topic_is_unique_and_short_enough_for_amqp(self) -> None:
        self.assertEqual('vhpc.peers.g1', bus.topic('g1'))
        names = {bus.topic('x' * 500 + str(n)) for n in range(2)}
        self.assertEqual(2, len(names))
        # A groups file may have nearly any text, and the limit is in bytes.
        names |= {bus.topic('\u540d' * 90), bus.topic('\ud800' * 90)}
        self.assertEqual(4, len(names))
        self.assertLess(max(len(name.encode()) for name in names), 128)


class OtherVersionsTest(base.BaseTestCase):
    """Agents of several versions on one bus, in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(
            fixtures.FakeLogger(format='%(levelname)s %(name)s %(message)s')
        )
        self.transport = transport.get_transport(
            peer_agents.make_conf('fake://')
        )
        self.addCleanup(self.transport.cleanup)
        self.cluster = uuid.uuid4().hex

    def listen(self) -> None:
        """Start an agent of today's version that hears the cluster."""
        self.received: list[protocol.Message] = []
        peer_bus = bus.PeerBus(self.transport, 'here', self.received.append)
        peer_bus.subscribe({self.cluster})
        peer_bus.start()
        self.addCleanup(peer_bus.stop)
        self.assertTrue(peer_agents.wait_for(lambda: peer_bus.subscribed))

    def cast(self, version: str, method: str, **fields: Any) -> None:
        """Send a message as an agent of any version would."""
        messaging.get_rpc_client(
            self.transport,
            messaging.Target(
                topic=bus.topic(self.cluster),
                namespace=bus.NAMESPACE,
                version=version,
                fanout=True,
            ),
        ).cast({}, method, **{**FIELDS, 'cluster': self.cluster, **fields})

    def test_newer_messages_are_refused_with_one_line(self) -> None:
        transport.hush()
        self.useFixture(
            fixtures.MockPatchObject(transport._once, '_logged', False)
        )
        self.listen()
        for version in ('1.9', '2.0') * 3:
            self.cast(version, 'phase', host='newer')
        self.cast('1.0', 'phase', host='older')
        self.assertTrue(peer_agents.wait_for(lambda: self.received))
        self.assertEqual(['older'], [m.host for m in self.received])
        (line,) = [
            line
            for line in self.log.output.splitlines()
            if not line.startswith('DEBUG')
        ]
        self.assertIn('Ignoring a message', line)
        self.assertIn('does not support RPC version 1.9', line)

    def test_flood_of_messages_takes_one_thread(self) -> None:
        """oslo.messaging would start 64, anew for each renamed cluster."""
        self.listen()
        before = threading.active_count()
        most = 200
        for number in range(most):
            self.cast('1.0', 'phase', seq=number)
        self.assertTrue(
            peer_agents.wait_for(lambda: len(self.received) == most)
        )
        self.assertLessEqual(threading.active_count(), before + 2)

    def test_fields_of_a_newer_minor_version_are_ignored(self) -> None:
        self.listen()
        self.cast('1.0', 'phase', mood='good')
        self.assertTrue(peer_agents.wait_for(lambda: self.received))
        self.assertNotIn('Ignoring', self.log.output)
