# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Agents as commands call them: over the message bus.

The bus is not an API of the cloud: its address stands in the agents'
configuration, and mostly only hosts of the control plane reach it.
"""

import argparse
import socket
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors
from nova_vhpc.agent.rpc import control, transport
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.cli.cluster_model import MemberState
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.conf import peers as peers_conf
from nova_vhpc.control import model

_CONNECT_S = 2.0

NO_BUS = (
    'transport_url is not set, so no agent can be asked; run this where the '
    "agents' configuration is, or name it by --config-file"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how agents are reached."""
    parser.add_argument(
        '--config-file',
        action='append',
        metavar='<file>',
        help="the agents' configuration, for transport_url; without it the "
        'usual places, such as /etc/nova-vhpc/nova-vhpc.conf',
    )
    parser.add_argument(
        '--timeout',
        metavar='<seconds>',
        help='how long to wait for an agent, from 0.1, such as 5; without it '
        '[vhpc_peers]call_timeout',
    )


class UnreachableError(errors.ConfigError):
    """The agents cannot be asked from here; the text says why."""


class Agents:
    """Calls the agents of hosts, as a context.

    :param args: options of :func:`add_arguments`.
    :ivar conf: the agents' configuration.
    :raises UnreachableError: the bus is not configured.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        try:
            self.conf = _conf(args)
            self._client = control.ControlClient(self.conf)
        except (cfg.Error, ValueError, OSError, errors.AgentError) as error:
            raise UnreachableError(conf_package.reason(error)) from None
        if getattr(self.conf, 'transport_url', None) == transport.NO_URL:
            self._client.close()
            raise UnreachableError(NO_BUS)
        if refusals := _refusals(self.conf):
            self._client.close()
            raise UnreachableError(
                f'no message broker answers at {", ".join(refusals)}; is it '
                'running, and is transport_url right?'
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def call(
        self, hosts: Iterable[str], method: str, **arguments: Any
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Call the agents of hosts in parallel.

        :param method: ``status``, ``pause``, ``resume`` or ``restore``.
        :returns: answers, and reasons for failures, by host.
        """
        return control.call_all(
            list(dict.fromkeys(hosts)),
            lambda host: self._client.call(host, method, **arguments),
        )

    def statuses(
        self, hosts: Collection[str]
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """Return the status documents of hosts, and reasons for failures."""
        return self.call(hosts, 'status')


def _conf(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Read the agents' configuration.

    :raises cfg.Error: a file cannot be read, or a value is invalid.
    :raises ValueError: ``--timeout`` is invalid.
    """
    conf = cfg.ConfigOpts()
    agent_conf.register_opts(conf)
    peers_conf.register_opts(conf)
    conf(
        [],
        project='nova-vhpc',
        prog='nova-vhpc-ctl',
        default_config_files=args.config_file or None,
    )
    if args.timeout is not None:
        try:
            conf.set_override('call_timeout', args.timeout, group='vhpc_peers')
        except ValueError as error:
            raise ValueError(f'--timeout: {error}') from None
    return conf


def _refusals(conf: cfg.ConfigOpts) -> list[str]:
    """Return the brokers with their refusals, if all refuse to connect.

    oslo.messaging tries again until the time is over, and then does not say
    of which address. A broker that is only slow is left to it.
    """
    found = []
    url = messaging.TransportURL.parse(conf)
    if url.transport not in ('rabbit', 'kombu'):
        return []
    tls = conf.oslo_messaging_rabbit.ssl
    for broker in url.hosts:
        port = broker.port or (5671 if tls else 5672)
        name = broker.hostname or 'localhost'
        try:
            with socket.create_connection((name, port), _CONNECT_S):
                return []
        except (ConnectionRefusedError, socket.gaierror) as error:
            shown = f'[{name}]' if ':' in name else name
            found.append(f'{shown}:{port} ({error.strerror or error})')
        except OSError:
            return []
    return found


def state(answer: Mapping[str, Any]) -> str:
    """Return the state of an agent in a word or two, by its own judgement.

    :param answer: its status document.
    :raises errors.UNREADABLE: the document is not that of this release.
    """
    agent = answer['agent']
    if agent['paused']:
        return 'paused'
    if not answer['health']['healthy']:
        return 'not healthy'
    return 'dry run' if agent['dry_run'] else 'ok'


def member_states(
    answers: Mapping[str, Any],
) -> tuple[dict[tuple[str, str], MemberState], dict[str, str]]:
    """Return what agents say of servers, and which answers are unreadable.

    Two agents may have one server, as after an evacuation of a host that
    still runs.

    :param answers: answers to ``status``, by host.
    :returns: states by host and UUID of the server; reasons by host.
    """
    states: dict[tuple[str, str], MemberState] = {}
    failures: dict[str, str] = {}
    for host, answer in answers.items():
        try:
            paused = bool(answer['agent']['paused'])
            for vm in answer['vms']:
                states[host, vm['uuid']] = _member_state(vm, paused)
        except errors.UNREADABLE as error:
            failures[host] = unreadable(host, error)
    return states, failures


def unreadable(host: str, error: Exception) -> str:
    """Return what to say of an answer that cannot be read."""
    return f'host {host}: {errors.unreadable(error)}'


def _member_state(vm: Mapping[str, Any], paused: bool) -> MemberState:
    received, latency = vm.get('received'), vm.get('sync_latency_us')
    waiting = vm.get('waiting') or {}
    problem = str(vm.get('problem') or '')
    if paused:
        problem = 'its agent is paused, until openstack vhpc host resume'
    elif vm.get('external') and not problem:
        problem = 'somebody else set its cputune, which the agent leaves alone'
    return MemberState(
        received=None if received is None else float(received),
        latency_us=None if latency is None else float(latency),
        problem=problem,
        waiting=waiting.get('finding'),
        remedy=str(waiting.get('remedy') or ''),
        held_up=waiting.get('state') == model.WaitState.HELD_UP,
    )
