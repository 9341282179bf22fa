# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Queues that RabbitMQ deletes together with the agent's connection.

oslo.messaging declares several queues for each server that listens. Most of
them are neither durable nor exclusive, which RabbitMQ 4.3 refuses
(``transient_nonexcl_queues``); the others outlive the agent, or the cluster
that they were made for. What an agent hears is worth nothing to a later
connection: phases are sent again, and control calls time out. So each
connection that listens declares one exclusive queue instead, and binds it to
every exchange that oslo.messaging asks for. Exchanges are unchanged, so agents
that use oslo.messaging's own queues still understand each other.

This builds on classes of oslo.messaging's RabbitMQ driver that it does not
document, because it offers no exclusive queue.
"""

import contextlib
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
        self._leftovers: list[str] = []

    def bind(self, exchange: Any, routing_key: str) -> None:
        """Add a binding; :meth:`declare` tells the broker.

        :param exchange: exchange of kombu; a passive one must exist already.
        """
        self._bindings.append((exchange, routing_key))

    def delete_unused(self, queue: str) -> None:
        """Let the next :meth:`declare` delete a queue without consumers.

        Earlier versions declared queues that outlive the agent, in which
        messages would pile up now.
        """
        self._leftovers.append(queue)

    def declare(self, conn: Any) -> None:
        """Declare queue and bindings, also after a reconnect."""
        # A refused declaration closes its channel, so not that of the queue.
        with contextlib.closing(conn.connection.channel()) as channel:
            while self._leftovers:
                _delete_unused(channel, self._leftovers.pop())
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


def _delete_unused(channel: Any, queue: str) -> None:
    # Not by if-unused, for which quorum queues end the connection.
    with contextlib.suppress(amqp.exceptions.ChannelError):
        if not channel.queue_declare(queue, passive=True).consumer_count:
            channel.queue_delete(queue)


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

        :param queue_name: name of a queue that others could share; given for
            Nova's notifications only, whose exchange is Nova's.
        """
        consumer = self._consumer(queue_name or topic, callback)
        exchange = kombu.Exchange(
            exchange_name,
            type='topic',
            durable=self.durable,
            auto_delete=self.amqp_auto_delete,
            passive=queue_name is not None,
        )
        consumer.bind(exchange, topic)
        consumer.delete_unused(queue_name or topic)
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
            if self.rabbit_stream_fanout:
                # The stream that oslo.messaging would use.
                consumer.delete_unused(exchange.name)
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
