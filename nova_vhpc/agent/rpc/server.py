# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Servers on the message bus.

oslo.messaging waits for a broker that is away, but gives up at once if the
broker refuses the login or the virtual host. Both may be created after the
agent was started, or change while the broker is restarted.
"""

import functools
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from nova_vhpc.agent import periodic
from nova_vhpc.agent.rpc import exclusive_queue
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.agent.rpc.transport import broker_error

_rpc_server: Any = importlib.import_module('oslo_messaging.rpc.server')

LOG = logging.getLogger(__name__)

THREADS = 16
"""Most calls that are answered at a time; some wait for minutes."""

MAX_BACKOFF_S = 5.0
"""Longest time between two attempts to start the server, in seconds."""


class _FanoutServer(_rpc_server.RPCServer):
    """RPC server that hears several fanout topics over one connection."""

    def __init__(self, *args: Any, topics: Sequence[str]) -> None:
        super().__init__(*args)
        self._topics = topics

    def _create_listener(self) -> Any:
        prefix = f'{self._target.topic}.{self._target.server}'
        return exclusive_queue.listen(self.transport, prefix, self._topics)


def fanout_server(
    transport: Any, target: Any, topics: Sequence[str], endpoint: Any
) -> Any:
    """Return an RPC server that hears several fanout topics.

    :param target: topic and server that name the queue; nothing is received
        under them.
    :param topics: the fanout topics.
    """
    return messaging.get_rpc_server(
        transport,
        target,
        [endpoint],
        access_policy=messaging.DefaultRPCAccessPolicy,
        server_cls=functools.partial(_FanoutServer, topics=topics),
    )


def end(server: Any) -> None:
    """Stop a server of oslo.messaging in the background.

    That takes seconds, and waits for the broker.
    """
    threading.Thread(target=_end, args=(server,), daemon=True).start()


class BackgroundServer:
    """Starts one server of oslo.messaging in the background.

    It is started again until that succeeds.

    :param name: name of the thread that waits for the broker.
    :param transport: of oslo.messaging; names the broker in errors.
    :param make: returns a server of oslo.messaging that is not started yet;
        a server that failed to start is not used again.
    :param problem: what does not work until the server listens, for the log.
    :ivar listening: set when the broker has declared the server's queue.
    :ivar detail: why the server does not listen, as far as is known.
    """

    def __init__(
        self,
        name: str,
        transport: Any,
        make: Callable[[], Any],
        problem: str,
    ) -> None:
        self.listening = threading.Event()
        self.detail = ''
        self._transport = transport
        self._make = make
        self._problem = problem
        self._problem_logged = False
        self._lock = threading.Lock()
        self._server: Any = None
        self._thread = periodic.PeriodicThread(
            name, self._start_server, lambda: MAX_BACKOFF_S, MAX_BACKOFF_S
        )

    def start(self) -> None:
        """Begin to start the server. Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, without waiting for the broker."""
        with self._lock:
            self._thread.stop(0.0)
            server, self._server = self._server, None
        if server is not None:
            end(server)

    def _start_server(self) -> None:
        """Start the server once.

        :raises RetryLater: the broker refused it.
        """
        try:
            server = self._make()
            server.start(override_pool_size=THREADS)
        except Exception as error:
            # Drivers raise more than oslo.messaging's own exceptions.
            reason = broker_error(self._transport, error)
            self.detail = f'{self._problem}: {reason}'
            if not self._problem_logged:
                self._problem_logged = True
                LOG.warning('%s; will retry: %s', self._problem, reason)
            raise periodic.RetryLater from error
        with self._lock:
            stopping = self._thread.stopping
            if not stopping:
                self._server = server
                self._thread.stop(0.0)
        if stopping:
            _end(server)
            return
        self.detail = ''
        self.listening.set()
        if self._problem_logged:
            LOG.info('This problem is over: %s', self._problem)


def _end(server: Any) -> None:
    try:
        server.stop()
        server.wait()
    except Exception as error:
        LOG.debug('Ending a server on the message bus: %s', error)
