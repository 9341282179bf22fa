# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Queues that RabbitMQ deletes together with the agent's connection.

oslo.messaging declares several queues for each server that listens. Most of
them are neither durable nor exclusive, which RabbitMQ 4.3 refuses
(``transient_nonexcl_queues``); the others outlive the agent, or the cluster
that they were made for. What an agent hears is worth nothing to a later
connection: phases are sent again, and control calls time out. So each
connection that listens declares one exclusive queue instead, and binds it to
every exchange that oslo.messaging asks for.

This builds on classes of oslo.messaging's RabbitMQ driver that it does not
document. ``rabbit_transient_queues_ttl`` and topics with the agent's boot in
their names would not do: those queues are not exclusive, have no greatest
length, and take a connection and a thread for each cluster, of which tenants
choose the number.
"""

import contextlib
import functools
import importlib
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nova_vhpc.agent.rpc.native_threads import messaging

# They have no type hints, or the wrong ones.
amqp: Any = importlib.import_module('amqp')
kombu: Any = importlib.import_module('kombu')
amqpdriver: Any = importlib.import_module('oslo_messaging._drivers.amqpdriver')
base: Any = importlib.import_module('oslo_messaging._drivers.base')
driver_common: Any = importlib.import_module('oslo_messaging._drivers.common')
driver_amqp: Any = importlib.import_module('oslo_messaging._drivers.amqp')
impl_fake: Any = importlib.import_module('oslo_messaging._drivers.impl_fake')
impl_rabbit: Any = importlib.import_module(
    'oslo_messaging._drivers.impl_rabbit'
)

LOG = logging.getLogger(__name__)

TRIED = ('17.3', '18.3')
"""Minor versions of oslo.messaging that the functional tests passed with."""

MAX_MESSAGES = 10_000
"""Most messages that wait in one queue; older ones are dropped, so that a
flood cannot fill the broker's memory."""


class _Consumer(impl_rabbit.Consumer):
    """The exclusive queue of one connection, and its bindings.

    The queue gets a new name whenever the connection is made again, because
    the broker may not have noticed yet that the old connection is gone.

    :param prefix: beginning of the queue's name.
    :param callback: called with each message.
    :param suffix: returns the rest of the queue's name.
    """

    def __init__(
        self,
        prefix: str,
        callback: Callable[[Any], None],
        suffix: Callable[[], str] = lambda: f'.{uuid.uuid4().hex}',
    ) -> None:
        # oslo.messaging finds the consumer's tag by this queue name.
        super().__init__(
            '', prefix, '', 'exclusive', False, True, True, callback
        )
        self._suffix = suffix
        self._queue_channel: Any = None
        self._bindings: list[tuple[Any, str]] = []

    def bind(self, exchange: Any, routing_key: str) -> None:
        """Add a binding; :meth:`declare` tells the broker.

        :param exchange: exchange of kombu.
        """
        self._bindings.append((exchange, routing_key))

    def declare(self, conn: Any) -> None:
        """Declare queue and bindings, also after a reconnect."""
        # A refused declaration closes its channel, so not that of the queue.
        with contextlib.closing(conn.connection.channel()) as channel:
            for exchange, _ in self._bindings:
                _declare_exchange(channel, exchange)
        if self._queue_channel is not conn.channel:
            self.queue = kombu.Queue(
                self.queue_name + self._suffix(),
                channel=conn.channel,
                exclusive=True,
                queue_arguments={'x-max-length': MAX_MESSAGES},
            )
            self.queue.queue_declare()
            self._queue_channel = conn.channel
        for exchange, routing_key in self._bindings:
            self.queue.bind_to(exchange.name, routing_key)
        self._declared_on = conn.channel


def _declare_exchange(channel: Any, exchange: Any) -> None:
    try:
        exchange(channel).declare()
    except amqp.exceptions.PreconditionFailed as error:
        # It exists with other properties, of an agent with another
        # configuration; binding to it works all the same.
        LOG.debug('Using exchange %s as it is: %s', exchange.name, error)


class _Connection(impl_rabbit.Connection):
    """Connection whose consumers share one exclusive queue.

    It creates exchanges only for its own bindings: an exchange that is
    created for a message that nobody listens to would stay for good.
    """

    def declare_topic_consumer(
        self,
        exchange_name: str,
        topic: str,
        callback: Any = None,
        queue_name: str | None = None,
    ) -> None:
        """Bind the queue to a topic.

        :param queue_name: name that oslo.messaging would give the queue.
        """
        consumer = self._consumer(topic, callback)
        exchange = kombu.Exchange(
            exchange_name,
            type='topic',
            durable=self.durable,
            auto_delete=self.amqp_auto_delete,
        )
        consumer.bind(exchange, topic)
        self.declare_consumer(consumer)

    def declare_fanout_consumer(self, topic: str, callback: Any) -> None:
        """Bind the queue to a fanout topic."""
        self.declare_fanout_consumers(topic, [topic], callback)

    def declare_fanout_consumers(
        self, prefix: str, topics: Iterable[str], callback: Any
    ) -> None:
        """Bind the queue to several fanout topics.

        :param prefix: beginning of the queue's name.
        """
        consumer = self._consumer(prefix, callback)
        for topic in topics:
            exchange = kombu.Exchange(
                f'{topic}_fanout',
                type='fanout',
                durable=self.rabbit_transient_quorum_queue,
                auto_delete=True,
            )
            consumer.bind(exchange, topic)
        self.declare_consumer(consumer)

    def declare_direct_consumer(self, topic: str, callback: Any) -> None:
        """Declare the queue for answers to this process's calls."""
        # Answers are sent to the queue's name.
        self.declare_consumer(_Consumer(topic, callback, suffix=lambda: ''))

    def topic_send(
        self,
        exchange_name: str,
        topic: str,
        msg: Any,
        timeout: float | None = None,
        retry: int | None = None,
        transport_options: Any = None,
    ) -> None:
        """Send to those who listen to a topic."""
        exchange = kombu.Exchange(exchange_name, type='topic', passive=True)
        with _no_exchange(exchange_name, topic, msg, transport_options):
            self._ensure_publishing(
                self._publish_and_raises_on_missing_exchange,
                exchange,
                msg,
                routing_key=topic,
                timeout=timeout,
                retry=retry,
                transport_options=transport_options,
            )

    def fanout_send(
        self, topic: str, msg: Any, retry: int | None = None
    ) -> None:
        """Send to all who listen to a fanout topic."""
        name = f'{topic}_fanout'
        exchange = kombu.Exchange(name, type='fanout', passive=True)
        with _no_exchange(name, '', msg, None):
            self._ensure_publishing(
                self._publish_and_raises_on_missing_exchange,
                exchange,
                msg,
                retry=retry,
            )

    def _consumer(self, prefix: str, callback: Any) -> _Consumer:
        consumer: _Consumer
        for consumer in self._consumers:
            return consumer
        return _Consumer(prefix, callback)


@contextlib.contextmanager
def _no_exchange(
    exchange: str, routing_key: str, msg: Any, transport_options: Any
) -> Iterator[None]:
    """Drop a message whose exchange is missing: nobody listens.

    :raises MessageUndeliverable: the sender wants to know.
    """
    try:
        yield
    except driver_amqp.AMQPDestinationNotFound as error:
        if transport_options is not None and transport_options.at_least_once:
            raise messaging.MessageUndeliverable(
                error, exchange, routing_key, msg
            ) from error


def use(transport: Any) -> None:
    """Make a transport of RabbitMQ's driver declare exclusive queues only."""
    transport._driver._connection_pool.connection_cls = _Connection
    confirm_again()


def confirm_again(channel: Any = amqp.Channel) -> None:
    """Have channels that are opened again ask for confirms again.

    If an exchange is gone, as that of a cluster to which no other host
    listens, RabbitMQ closes the channel on which one publishes to it. amqp
    opens it again, but before 5.4 takes it for one that still confirms. The
    next publish that succeeds then waits for a confirmation that never comes,
    and holds the connection until RabbitMQ closes it, after three minutes
    without a heartbeat. OpenStack 2026.1 has amqp 5.3.1.

    :param channel: class of the channels; changed once.
    """
    revive = channel._do_revive
    if hasattr(revive, '__wrapped__'):
        return

    @functools.wraps(revive)
    def do_revive(self: Any) -> None:
        # As amqp does from 5.4 on.
        self._confirm_selected = False
        revive(self)

    channel._do_revive = do_revive


def listen(transport: Any, prefix: str, topics: Iterable[str]) -> Any:
    """Return a listener of oslo.messaging that hears several fanout topics.

    :param transport: a transport after :func:`use`, or of oslo.messaging's
        in-memory driver.
    :param prefix: beginning of the queue's name.
    """
    driver = transport._driver
    if isinstance(driver, impl_fake.FakeDriver):
        targets = [
            messaging.Target(topic=topic, server=prefix) for topic in topics
        ]
        return base.PollStyleListenerAdapter(
            impl_fake.FakeListener(driver._exchange_manager, targets), 1, None
        )
    connection = driver._get_connection(driver_common.PURPOSE_LISTEN)
    try:
        listener = amqpdriver.RpcAMQPListener(driver, connection)
        connection.declare_fanout_consumers(prefix, topics, listener)
    except Exception:
        connection.close()
        raise
    return base.PollStyleListenerAdapter(listener, 1, None)
