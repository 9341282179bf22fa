# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Carries the phase exchange's messages over oslo.messaging.

There is one fanout topic per virtual cluster, to which only hosts with
members of that cluster listen; a host listens to all of its topics over one
connection, because tenants choose how many clusters there are. Declaring a
queue waits for the broker, so a thread does that; the tick never calls into
oslo.messaging.
"""

import hashlib
import logging
from collections.abc import Callable, Collection
from typing import Any

from nova_vhpc.agent import periodic
from nova_vhpc.agent.clusters import messages, protocol
from nova_vhpc.agent.rpc import server
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.agent.rpc.transport import broker_error
from nova_vhpc.control.slots.messages import Message as SlotMessage

LOG = logging.getLogger(__name__)

NAMESPACE = 'vhpc.peers'
VERSION = '1.0'

_TOPIC_PREFIX = 'vhpc.peers.'
_MAX_CLUSTER_BYTES = 100
_MAX_BACKOFF_S = 5.0
_CHECK_INTERVAL_S = 60.0
_MIN_INTERVAL_S = 1.0
"""Shortest time between two new connections. A tenant can rename its clusters
at any rate."""


class BusError(Exception):
    """The broker did not accept a message."""


def topic(cluster: str) -> str:
    """Return the fanout topic of a virtual cluster.

    AMQP limits names to 255 bytes, so a long cluster name is hashed.
    """
    # In a groups file, a name may have any code point that JSON can escape.
    raw = cluster.encode(errors='surrogatepass')
    if len(raw) > _MAX_CLUSTER_BYTES:
        cluster = hashlib.sha256(raw).hexdigest()
    return _TOPIC_PREFIX + cluster


class _Endpoint:
    """Receives the messages of other hosts."""

    target = messaging.Target(namespace=NAMESPACE, version=VERSION)

    def __init__(
        self,
        on_message: Callable[[protocol.Message], None],
        on_slots: Callable[[SlotMessage], None] = lambda _: None,
    ) -> None:
        self._on_message = on_message
        self._on_slots = on_slots
        self._logged = False

    def phase(self, context: Any, **fields: Any) -> None:
        """Take one statement of one host.

        ``doc/source/reference/rpc.rst`` describes the fields.
        """
        try:
            message = messages.decode_phase(fields)
        except (KeyError, TypeError, ValueError) as error:
            self._ignore(error)
            return
        self._on_message(message)

    def slots(self, context: Any, **fields: Any) -> None:
        """Take one host's report on the slots of a cluster."""
        try:
            message = messages.decode_slots(fields)
        except (KeyError, TypeError, ValueError) as error:
            self._ignore(error)
            return
        self._on_slots(message)

    def _ignore(self, error: Exception) -> None:
        if not self._logged:
            LOG.warning(
                'Ignoring an invalid message of another agent; further '
                'ones are ignored silently: %r',
                error,
            )
        self._logged = True


class PeerBus:
    """Sends and receives messages, without interpreting them.

    :param transport: oslo.messaging's RPC transport.
    :param host: name of this host, unique on the bus.
    :param on_message: called with each message received, in a thread of
        oslo.messaging.
    :param on_slots: called in the same way with messages about slots.
    :ivar detail: why messages of other hosts are not received, as far as is
        known.
    """

    def __init__(
        self,
        transport: Any,
        host: str,
        on_message: Callable[[protocol.Message], None],
        on_slots: Callable[[SlotMessage], None] = lambda _: None,
    ) -> None:
        self._transport = transport
        self._host = host
        self._endpoint = _Endpoint(on_message, on_slots)
        self._client = messaging.get_rpc_client(
            transport,
            messaging.Target(namespace=NAMESPACE, version=VERSION),
            # The protocol renews and repeats by itself.
            retry=0,
        )
        self._wanted: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._server: Any = None
        self.detail = ''
        self._thread = periodic.PeriodicThread(
            'vhpc-peers-listen',
            self._update_subscriptions,
            lambda: _CHECK_INTERVAL_S,
            _MAX_BACKOFF_S,
            lambda: _MIN_INTERVAL_S,
            on_stop=lambda: self._replace(None, frozenset()),
        )

    def start(self) -> None:
        """Begin to subscribe, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End all subscriptions in the background."""
        self._thread.stop(0.0)

    def subscribe(self, clusters: Collection[str]) -> None:
        """Listen to exactly these clusters from now on. Never blocks."""
        wanted = frozenset(clusters)
        if wanted != self._wanted:
            self._wanted = wanted
            self._thread.wake()

    @property
    def subscribed(self) -> frozenset[str]:
        """Clusters whose messages the broker delivers to this host."""
        return self._subscribed

    def send(self, message: protocol.Message) -> None:
        """Give a message to the broker.

        :raises BusError: the broker did not accept it.
        """
        self._cast('phase', messages.encode_phase(message))

    def send_slots(self, message: SlotMessage) -> None:
        """Give a message about slots to the broker.

        :raises BusError: the broker did not accept it.
        """
        self._cast('slots', messages.encode_slots(message))

    def _cast(self, method: str, fields: dict[str, Any]) -> None:
        try:
            self._client.prepare(
                topic=topic(fields['cluster']), fanout=True
            ).cast({}, method, **fields)
        except Exception as error:
            # Drivers raise more than oslo.messaging's own exceptions.
            raise BusError(broker_error(self._transport, error)) from error

    def _update_subscriptions(self) -> None:
        """Listen to the wanted clusters, and to no others.

        The new connection is made before the old one is ended, so that no
        message is missed. One that arrives over both has the same number
        twice, and counts once.

        :raises RetryLater: the broker refused it.
        """
        wanted = self._wanted
        if wanted == self._subscribed:
            return
        if not wanted:
            self._replace(None, wanted)
            return
        try:
            new_server = self._listen(wanted)
        except Exception as error:
            is_new = not self.detail
            reason = broker_error(self._transport, error)
            self.detail = (
                f'cannot listen to virtual clusters of other hosts: {reason}'
            )
            # Logged once, since a refusal may last for hours.
            if is_new:
                LOG.warning(
                    'Cannot listen to virtual clusters of other hosts; will '
                    'retry: %s',
                    reason,
                )
            raise periodic.RetryLater from error
        self.detail = ''
        self._replace(new_server, wanted)

    def _replace(self, new_server: Any, clusters: frozenset[str]) -> None:
        old_server, self._server = self._server, new_server
        self._subscribed = clusters
        if old_server is not None:
            server.end(old_server)

    def _listen(self, clusters: Collection[str]) -> Any:
        new_server = server.fanout_server(
            self._transport,
            messaging.Target(topic=_TOPIC_PREFIX[:-1], server=self._host),
            sorted(map(topic, clusters)),
            self._endpoint,
        )
        # By default each server grows to 64 threads, and each is new with each
        # renamed cluster. What it hears only changes memory.
        new_server.start(override_pool_size=1)
        return new_server
