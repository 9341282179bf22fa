# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import threading

from nova_vhpc.agent.clusters import bus
from nova_vhpc.agent.rpc import transport
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.tests.functional.phase_exchange import test_rabbitmq
from nova_vhpc.tests.unit.agent.clusters import peer_agents as agents

SENDING_S = 90
"""RabbitMQ closes a connection on which a publish hangs after 180 s."""


class GoneExchangeTest(test_rabbitmq.RabbitMQTestCase):
    def test_message_after_one_to_nobody_is_sent(self) -> None:
        member = self.agent('a').start(c1=test_rabbitmq.QUIET)
        self.wait_for(lambda: member.listens('c1'))
        rpc = transport.get_transport(agents.make_conf(self.url))
        self.addCleanup(rpc.cleanup)
        sender = threading.Thread(target=self.send, args=(rpc,), daemon=True)
        sender.start()
        sender.join(SENDING_S)
        self.assertFalse(sender.is_alive(), 'a message is stuck')

    @staticmethod
    def send(rpc: messaging.Transport) -> None:
        for cluster in ('nobody', 'c1', 'nobody', 'c1'):
            target = messaging.Target(topic=bus.topic(cluster), fanout=True)
            messaging.get_rpc_client(rpc, target).cast({}, 'phase')
