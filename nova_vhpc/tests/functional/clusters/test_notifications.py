# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Nova's notifications reach the agents and another consumer alike."""

import threading
from typing import Any

from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent.clusters import notifications
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.agent.rpc.transport import register_unregistered_opts
from nova_vhpc.conf import nova_api
from nova_vhpc.tests.functional import rabbitmq
from nova_vhpc.tests.unit.agent.clusters import peer_agents
from nova_vhpc_lab.testbed.patience import PATIENCE_S
from nova_vhpc_lab.testbed.rabbitmq import CTL_S


class OtherConsumer:
    """A service beside the agents that reads Nova's notifications."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.event = threading.Event()

    def info(
        self, context: Any, source: str, kind: str, payload: Any, meta: Any
    ) -> None:
        self.kinds.append(kind)
        self.event.set()


class GroupNotificationsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.broker = self.useFixture(rabbitmq.VirtualHostFixture())
        self.conf = cfg.ConfigOpts()
        nova_api.register_opts(self.conf)
        register_unregistered_opts(self.conf)
        self.conf([], project='nova-vhpc', default_config_files=[])
        # nova does the same at its start.
        messaging.set_transport_defaults('nova')
        self.transport = messaging.get_notification_transport(
            self.conf, url=self.broker.url
        )
        self.addCleanup(self.transport.cleanup)
        self.conf.set_override('transport_url', self.broker.url)

    def test_agent_waits_for_novas_exchange_and_leaves_no_queue(self) -> None:
        made = notifications.GroupNotifications(
            self.conf, 'host0', lambda: None
        )
        made.start()
        self.addCleanup(made.stop)
        wait_for = peer_agents.wait_for
        self.assertTrue(
            wait_for(lambda: "no exchange 'nova'" in made.detail, PATIENCE_S)
        )
        self.assertNotIn('nova', self.broker.names('exchanges'))
        # Nova, and an agent of the version before, whose queue is named so.
        for pool in (None, 'nova-vhpc-agent.host0'):
            listener = messaging.get_notification_listener(
                self.transport,
                [messaging.Target(topic=notifications.TOPIC, exchange='nova')],
                [OtherConsumer()],
                pool=pool,
            )
            listener.start()
            if pool is None:
                self.assertTrue(made.listening.wait(PATIENCE_S))
                made.stop()
            listener.stop()
            listener.wait()
        self.assertTrue(
            wait_for(
                lambda: (
                    [f'{notifications.TOPIC}.info', 'nova-vhpc-agent.host0']
                    == sorted(self.broker.names('queues'), reverse=True)
                ),
                2 * CTL_S,
            )
        )
        again = notifications.GroupNotifications(
            self.conf, 'host0', lambda: None
        )
        again.start()
        self.addCleanup(again.stop)
        self.assertTrue(again.listening.wait(PATIENCE_S))
        self.assertNotIn('nova-vhpc-agent.host0', self.broker.names('queues'))

    def test_each_agent_and_the_other_consumer_get_each_notification(
        self,
    ) -> None:
        other = OtherConsumer()
        listener = messaging.get_notification_listener(
            self.transport,
            [messaging.Target(topic=notifications.TOPIC, exchange='nova')],
            [other],
        )
        listener.start()
        self.addCleanup(listener.stop)
        hinted = [threading.Event(), threading.Event()]
        for number, event in enumerate(hinted):
            listener_of_agent = notifications.GroupNotifications(
                self.conf, f'host{number}', event.set
            )
            listener_of_agent.start()
            self.addCleanup(listener_of_agent.stop)
            self.assertTrue(listener_of_agent.listening.wait(PATIENCE_S))
        notifier = messaging.Notifier(
            self.transport,
            'nova-api:controller',
            driver='messaging',
            topics=[notifications.TOPIC],
        )
        # This one cannot change a group, so the agents ignore it.
        notifier.info({}, 'instance.exists', {})
        self.assertTrue(other.event.wait(PATIENCE_S))
        other.event.clear()
        self.assertFalse(any(event.is_set() for event in hinted))

        notifier.info({}, 'server_group.add_member', {})
        for event in (*hinted, other.event):
            self.assertTrue(event.wait(PATIENCE_S))
        self.assertEqual(
            ['instance.exists', 'server_group.add_member'], other.kinds
        )
