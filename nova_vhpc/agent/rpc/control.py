# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Control calls to agents over the message bus: server and client.

``nova-vhpc-ctl`` is the client; ``doc/source/reference/rpc.rst`` documents the
calls.
"""

import contextlib
import logging
import queue
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from oslo_config import cfg

from nova_vhpc.agent.rpc import server
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.agent.rpc.transport import (
    broker_error,
    brokers,
    format_address,
    get_transport,
    hush,
)

LOG = logging.getLogger(__name__)

TOPIC = 'vhpc.control'
NAMESPACE = 'vhpc.control'
VERSION = '1.0'

WAIT_S = 5.0
"""``wait_s`` of a call that does not give it."""

MAX_WAIT_S = 600.0
"""Longest time that a call may wait for servers to be restored."""

_DONE = {'pause': 'restored', 'restore': 'restored', 'resume': 'resumed'}
"""Key of the servers in an answer for which a call succeeded."""

_MAX_CALLS = 32
"""Agents that :func:`call_all` calls at a time."""

_GRACE_S = 2.0
_CONNECT_S = 3.0
_WAIT_FRACTION = 0.8
"""Part of the call's timeout that the agent may wait; the rest is for the
messages."""


class Control(Protocol):
    """What an agent can be asked to do. Answers can be encoded as JSON."""

    def status(self) -> dict[str, Any]:
        """Return what the agent knows and does."""

    def pause(self, wait_s: float) -> dict[str, Any]:
        """Restore every server and write nothing until :meth:`resume`."""

    def resume(self, server: str | None) -> dict[str, Any] | None:
        """Manage servers again after a pause, or one that was handed back."""

    def restore(self, server: str | None, wait_s: float) -> dict[str, Any]:
        """Restore the original cputune of one server, or of all (None)."""


class ControlError(Exception):
    """A host did not do what it was asked to; the text says why."""


class _Endpoint:
    """Receives control calls."""

    target = messaging.Target(namespace=NAMESPACE, version=VERSION)

    def __init__(self, control: Control) -> None:
        self._control = control

    def status(self, context: Any) -> dict[str, Any]:
        return self._answer(self._control.status)

    def pause(self, context: Any, wait_s: float = WAIT_S) -> dict[str, Any]:
        return self._answer(lambda: self._control.pause(_bounded(wait_s)))

    def resume(
        self, context: Any, server: str | None = None
    ) -> dict[str, Any]:
        return self._answer(lambda: self._control.resume(_checked(server)))

    def restore(
        self, context: Any, server: str | None = None, wait_s: float = WAIT_S
    ) -> dict[str, Any]:
        return self._answer(
            lambda: self._control.restore(_checked(server), _bounded(wait_s))
        )

    @staticmethod
    def _answer(
        call: Callable[[], dict[str, Any] | None],
    ) -> dict[str, Any]:
        try:
            return {'answer': call() or {}}
        except Exception as error:
            LOG.warning('A control call failed: %r', error)
            return {'error': f'{type(error).__name__}: {error}'}


def _bounded(wait_s: Any) -> float:
    return min(max(0.0, float(wait_s)), MAX_WAIT_S)


def _checked(server: Any) -> str | None:
    """Return a server's UUID, or None for all servers.

    :raises TypeError: it is neither, so that it is unclear which server is
        meant.
    """
    if server is not None and not isinstance(server, str):
        raise TypeError(f'server must be a text, not {server!r}')
    return server


class ControlServer:
    """Answers control calls; waits for the broker in the background.

    :param transport: oslo.messaging's RPC transport.
    :param host: name of this host, unique on the bus.
    :param control: handler of the calls.
    :param more_endpoints: endpoints of other namespaces on the same queue.
    """

    def __init__(
        self, transport: Any, host: str, control: Control, *more_endpoints: Any
    ) -> None:
        self._server = server.BackgroundServer(
            'vhpc-control',
            transport,
            lambda: messaging.get_rpc_server(
                transport,
                messaging.Target(topic=TOPIC, server=host),
                [_Endpoint(control), *more_endpoints],
                access_policy=messaging.DefaultRPCAccessPolicy,
            ),
            'Control calls are not answered',
        )

    @property
    def detail(self) -> str:
        """Why calls are not answered, as far as is known."""
        return self._server.detail

    def start(self) -> None:
        """Start answering as soon as there is a broker."""
        self._server.start()

    def stop(self) -> None:
        """Stop answering, without waiting for the broker."""
        self._server.stop()


class ControlClient:
    """Calls agents; used by ``nova-vhpc-ctl``.

    :param conf: with the group ``vhpc_peers`` and oslo.messaging's own.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        hush()
        self._timeout_s = conf.vhpc_peers.call_timeout
        self._lock = threading.Lock()
        self._calls_under_way = 0
        self._is_reached = False
        self._transport = get_transport(conf)
        self._client = messaging.get_rpc_client(
            self._transport,
            messaging.Target(
                topic=TOPIC, namespace=NAMESPACE, version=VERSION
            ),
            retry=1,
            # The broker then reports at once that no agent listens under a
            # host's name.
            transport_options=messaging.TransportOptions(at_least_once=True),
        )

    def call(self, host: str, method: str, **arguments: Any) -> Any:
        """Call the agent of one host and return its answer.

        :param host: name of the agent's host.
        :param method: ``status``, ``pause``, ``resume`` or ``restore``.
        :raises ControlError: the agent did not answer, or reports an error.
        """
        if not host:
            # With an empty name, the broker would choose any agent.
            raise ControlError('no host is named')
        if method in ('pause', 'restore'):
            arguments['wait_s'] = self._timeout_s * _WAIT_FRACTION
        unknown_version = ControlError(
            f'host {host}: its agent does not know {NAMESPACE} {VERSION}; '
            f'ask it by the nova-vhpc of its release'
        )
        try:
            answer = self._call_with_timeout(host, method, arguments)
        except messaging.MessageUndeliverable:
            raise ControlError(
                f'host {host}: no agent listens under this name; is '
                f'nova-vhpc-agent running there, with this transport_url '
                f'and [vhpc_peers] enabled?'
            ) from None
        except messaging.MessagingTimeout:
            raise ControlError(
                f'host {host}: no answer within {self._timeout_s:g} s; is '
                f'nova-vhpc-agent running there, with this transport_url?'
            ) from None
        except messaging.MessageDeliveryFailure as error:
            raise ControlError(
                f'the message bus cannot be reached: '
                f'{broker_error(self._transport, error)}; is the broker up?'
            ) from None
        except messaging.UnsupportedVersion:
            raise unknown_version from None
        except messaging.RemoteError as error:
            if error.exc_type == 'UnsupportedVersion':
                raise unknown_version from None
            raise ControlError(f'host {host}: {error.value}') from None
        if 'error' in answer:
            raise ControlError(f'host {host}: {answer["error"]}')
        return answer['answer']

    def _call_with_timeout(
        self, host: str, method: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Call in a thread, and wait for it with a time limit.

        A driver of oslo.messaging may wait for its broker without a limit.

        :raises Exception: what the call raised.
        """
        self._check_broker()
        client = self._client.prepare(server=host, timeout=self._timeout_s)
        done: queue.SimpleQueue[tuple[Any, Exception | None]] = (
            queue.SimpleQueue()
        )

        def call() -> None:
            try:
                done.put((client.call({}, method, **arguments), None))
            except Exception as error:
                done.put((None, error))
            finally:
                with self._lock:
                    self._calls_under_way -= 1

        with self._lock:
            self._calls_under_way += 1
        threading.Thread(target=call, daemon=True).start()
        try:
            answer, error = done.get(timeout=self._timeout_s + _GRACE_S)
        except queue.Empty:
            raise ControlError(
                f'host {host}: the message bus did not answer within '
                f'{self._timeout_s + _GRACE_S:g} s; check '
                f'{", ".join(map(format_address, brokers(self._transport)))}, '
                'the broker by transport_url'
            ) from None
        if error is not None:
            raise error
        return dict(answer)

    def _check_broker(self) -> None:
        """Try to connect, because the driver would wait for its broker.

        :raises ControlError: no broker accepts a connection.
        """
        if self._is_reached:
            return
        failures = []
        for host, port in brokers(self._transport):
            try:
                socket.create_connection((host, port), _CONNECT_S).close()
            except OSError as error:
                failures.append(f'{format_address((host, port))}: {error}')
            else:
                break
        else:
            if failures:
                raise ControlError(
                    'the message bus cannot be reached: '
                    f'{"; ".join(failures)}; is the broker up, and '
                    'transport_url right?'
                )
        self._is_reached = True

    def close(self) -> None:
        """Disconnect from the bus, unless a call is under way."""
        if not self._calls_under_way:
            # A driver that waits for its broker would block here.
            self._transport.cleanup()


def call_all(
    hosts: Sequence[str], call: Callable[[str], Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Call the agents of several hosts in parallel.

    A program that ends meanwhile does not wait for the answers.

    :param call: calls the agent of one host, and returns its answer.
    :returns: answers, and reasons for failures, by host.
    """
    pending: queue.SimpleQueue[str] = queue.SimpleQueue()
    for host in hosts:
        pending.put(host)
    done: queue.SimpleQueue[tuple[str, Any, Exception | None]] = (
        queue.SimpleQueue()
    )

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                host = pending.get_nowait()
                try:
                    done.put((host, call(host), None))
                except Exception as error:
                    done.put((host, None, error))

    for _ in range(min(_MAX_CALLS, len(hosts))):
        threading.Thread(target=work, name='call', daemon=True).start()
    results = {}
    for _ in hosts:
        host, answer, error = done.get()
        if error is not None and not isinstance(error, ControlError):
            raise error
        results[host] = answer, error
    return (
        {host: results[host][0] for host in hosts if results[host][1] is None},
        {
            host: str(results[host][1])
            for host in hosts
            if results[host][1] is not None
        },
    )


def find_failures(
    method: str, server: str | None, answers: Mapping[str, Any]
) -> list[str]:
    """Return what hosts that answered could not do, one line per server.

    :param method: the call that they answered.
    :param server: UUID of the only server that was meant, or None.
    :param answers: answers by host.
    """
    done = _DONE.get(method)
    if done is None:
        return []
    problems = [
        f'host {host}: server {uuid} is not {done}: {reason}'
        for host, answer in answers.items()
        for uuid, reason in sorted((answer.get('failed') or {}).items())
    ]
    if (
        server is not None
        and answers
        and not any(
            server in answer.get(done, ())
            or server in (answer.get('failed') or {})
            for answer in answers.values()
        )
    ):
        problems.append(
            f'server {server} is not known to the agent of '
            f'{", ".join(answers)}; on which host does it run, and has its '
            f'flavor vhpc: extra specs?'
        )
    return problems
