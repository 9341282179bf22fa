# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Detect whether the message bus works, by messages to this host itself.

A broker that is gone refuses messages. One that is frozen, flooded or blocked
by an alarm keeps the sender waiting, and one that lost this host's queue
accepts everything and delivers nothing. So the bus counts as working only
while what this host sends to itself (an echo) comes back. Echoes go to the
queue of this host's control calls: one small message per lease, to no other
host.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from nova_vhpc.agent.clusters.bus import BusError
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.agent.rpc.transport import broker_error

LOG = logging.getLogger(__name__)

NAMESPACE = 'vhpc.echo'
VERSION = '1.0'

_ECHO_INTERVAL_DOWN_US = 1_000_000


class EchoEndpoint:
    """Receives the echoes that this run of the agent has sent.

    :param boot: number of this start of the agent; another one is that of
        another agent with the same host name.
    :param on_echo: called with the time at which the echo was sent.
    :param on_other_agent: called when another agent's echo arrives.
    """

    target = messaging.Target(namespace=NAMESPACE, version=VERSION)

    def __init__(
        self,
        boot: int,
        on_echo: Callable[[int], None],
        on_other_agent: Callable[[], None],
    ) -> None:
        self._boot = boot
        self._on_echo = on_echo
        self._on_other_agent = on_other_agent

    def echo(self, context: Any, boot: Any, asked_us: Any) -> None:
        """Receive an echo of :meth:`EchoSender.send`."""
        if boot != self._boot:
            self._on_other_agent()
        elif isinstance(asked_us, int):
            self._on_echo(asked_us)


class EchoSender:
    """Sends echoes.

    :param topic: topic of the server that has the :class:`EchoEndpoint`.
    :param host: name of this host.
    :param boot: number of this start of the agent.
    """

    def __init__(
        self, transport: Any, topic: str, host: str, boot: int
    ) -> None:
        self._transport = transport
        self._boot = boot
        self._client = messaging.get_rpc_client(
            transport,
            messaging.Target(
                topic=topic, server=host, namespace=NAMESPACE, version=VERSION
            ),
            retry=0,
        )

    def send(self, now_us: int) -> None:
        """Send an echo, which returns to the endpoint if the bus works.

        :raises BusError: the broker did not accept it.
        """
        try:
            self._client.cast({}, 'echo', boot=self._boot, asked_us=now_us)
        except Exception as error:
            # Drivers raise more than oslo.messaging's own exceptions.
            raise BusError(broker_error(self._transport, error)) from error


class BusHealth:
    """State of the message bus; a change is logged once.

    Has neither socket nor thread: its methods are called with what happens
    and when. Times are microseconds of the monotonic clock.

    :param send_timeout_us: longest time for the broker to accept a message.
    :param echo_timeout_us: longest time for an echo to come back, and the
        time between two echoes while the bus works.
    :ivar state: off, starting, up or down.
    :ivar detail: why the bus is down.
    :ivar echo_us: travel time of the last echo; None before the first.
    """

    def __init__(self, send_timeout_us: int, echo_timeout_us: int) -> None:
        self._send_timeout_us = send_timeout_us
        self._echo_timeout_us = echo_timeout_us
        self._lock = threading.Lock()
        # Start of the send that the broker has not accepted yet.
        self._sending_us: int | None = None
        # Send time of the last echo, of the first one that has not come back
        # yet, and of the newest one that has.
        self._echo_sent_us: int | None = None
        self._awaited_us: int | None = None
        self._received_us = 0
        self._trouble_us = 0
        self.state = 'off'
        self.detail = ''
        self.echo_us: int | None = None

    def start(self) -> None:
        """Enter the state "starting", which lasts until the first echo."""
        with self._lock:
            self._sending_us = self._echo_sent_us = self._awaited_us = None
            self._enter('starting', '')

    def stop(self) -> None:
        """Enter the state "off": nothing is sent any more."""
        with self._lock:
            self._enter('off', '')

    def is_echo_due(self, now_us: int) -> bool:
        """Return whether it is time to send an echo."""
        with self._lock:
            last_us = max(self._received_us, self._echo_sent_us or 0)
            interval_us = self._echo_timeout_us
            if self.state != 'up':
                interval_us = min(interval_us, _ECHO_INTERVAL_DOWN_US)
            return not last_us or now_us - last_us >= interval_us

    def sending(self, now_us: int) -> None:
        """Take note that a message is about to be given to the broker."""
        self._sending_us = now_us

    def sent(self, echo_us: int | None = None) -> None:
        """Take note that the broker has accepted the message.

        :param echo_us: time at which the echo was sent; None for another
            message.
        """
        with self._lock:
            self._sending_us = None
            if echo_us is not None:
                self._echo_sent_us = echo_us
                # The echo may have come back before this call.
                if self._awaited_us is None and echo_us > self._received_us:
                    self._awaited_us = echo_us

    def failed(self, now_us: int, detail: str) -> None:
        """Take note that the broker did not accept the message."""
        with self._lock:
            self._sending_us = None
            self._trouble(now_us, detail)

    def received(self, echo_us: int, now_us: int) -> None:
        """Take note that an echo came back.

        :param echo_us: time at which the echo was sent.
        """
        with self._lock:
            if not self._trouble_us < echo_us <= now_us or self.state == 'off':
                # Sent before the trouble began, it proves nothing about now.
                # One of the future is forged, and no other would be sent
                # until then.
                return
            self.echo_us = now_us - echo_us
            self._received_us = max(self._received_us, echo_us)
            self._awaited_us = None
            if self._enter('up', ''):
                LOG.info('The message bus carries phases to other hosts')

    def watch(self, now_us: int) -> None:
        """Enter the state "down" if the broker or an echo is too late.

        The limits are ``send_timeout_us`` and ``echo_timeout_us``.
        """
        with self._lock:
            sending_us, awaited_us = self._sending_us, self._awaited_us
            if (
                sending_us is not None
                and now_us - sending_us > self._send_timeout_us
            ):
                self._trouble(
                    now_us,
                    'the broker accepts no messages; is it frozen, '
                    'overloaded, or blocked by an alarm for memory or disk?',
                )
            elif (
                awaited_us is not None
                and now_us - awaited_us > self._echo_timeout_us
            ):
                self._awaited_us = None
                self._trouble(
                    now_us,
                    'messages to this host itself do not come back; is the '
                    'broker overloaded, or another agent using this host '
                    'name?',
                )

    def _trouble(self, now_us: int, detail: str) -> None:
        if self.state == 'off':
            # The message was on its way when this host stopped sending.
            return
        self._trouble_us = now_us
        if self._enter('down', detail):
            LOG.warning(
                'The message bus is away; each host decides by itself '
                'until it is back: %s',
                detail,
            )

    def _enter(self, state: str, detail: str) -> bool:
        changed = state != self.state
        self.state, self.detail = state, detail
        return changed
