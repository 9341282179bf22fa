# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ask the agents of members' hosts over the message bus, within a time limit.

An agent that does not answer in time leaves its members unknown; the answer to
the tenant never waits for it.
"""

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors
from nova_vhpc.agent.rpc import control, transport
from nova_vhpc.vendordata import live, model

LOG = logging.getLogger(__name__)

_MAX_CALLS = 32
"""Agents that are asked at a time."""

_Call = Callable[[str], Any]


class AgentStatuses:
    """Asks agents for their status, and keeps the answers for a while.

    :param call: asks the agent of a host.
    :param timeout_s: longest time to wait for all agents, in seconds.
    :param ttl_s: time for which an answer, or none, is kept, in seconds,
        because all members of a cluster ask at the same time.
    """

    def __init__(self, call: _Call, timeout_s: float, ttl_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(
            _MAX_CALLS, 'vhpc-agent-status'
        )
        self._asked: dict[
            str, tuple[float, concurrent.futures.Future[Any]]
        ] = {}

    def of_members(self, cluster: model.Cluster) -> dict[str, live.Live]:
        """Return how members run, by UUID; those unknown are missing."""
        statuses = self._statuses(cluster.host_names.values())
        found = {}
        for member in cluster.members:
            host = cluster.host_names.get(member.uuid, '')
            if host in statuses and member.running:
                one = live.live_of(
                    statuses[host], member.uuid, cluster.uuid, member.network
                )
                if one is not None:
                    found[member.uuid] = one
        return found

    def _statuses(self, hosts: Iterable[str]) -> Mapping[str, Any]:
        """Return the answers of those agents that answer in time, by host."""
        futures = {host: self._ask(host) for host in set(hosts)}
        done, _late = concurrent.futures.wait(
            futures.values(), self._timeout_s
        )
        return {
            host: future.result()
            for host, future in futures.items()
            if future in done and future.exception() is None
        }

    def _ask(self, host: str) -> 'concurrent.futures.Future[Any]':
        """Return the call of an agent: one that is kept, or a new one."""
        now = time.monotonic()
        with self._lock:
            self._asked = {
                name: (expiry, future)
                for name, (expiry, future) in self._asked.items()
                # One that hangs is not asked again meanwhile.
                if expiry > now or not future.done()
            }
            if host not in self._asked:
                self._asked[host] = (
                    now + self._ttl_s,
                    self._pool.submit(self._status, host),
                )
            return self._asked[host][1]

    def _status(self, host: str) -> Any:
        try:
            return self._call(host)
        except control.ControlError as error:
            LOG.debug('No live data of members: %s', error)
            raise


def make(conf: cfg.ConfigOpts) -> AgentStatuses | None:
    """Return what asks agents; None if they are not to be asked.

    :param conf: with ``[vhpc_vendordata]`` and ``[vhpc_peers]``.
    :raises ValueError: ``transport_url`` or another option of the message bus
        is wrong.
    """
    options = conf.vhpc_vendordata
    if not options.ask_agents:
        return None
    conf.set_override('call_timeout', options.agent_timeout, 'vhpc_peers')
    try:
        client = control.ControlClient(conf)
    except (cfg.Error, errors.AgentError, OSError) as error:
        raise ValueError(conf_package.reason(error)) from None
    if conf.transport_url == transport.NO_URL:
        client.close()
        LOG.info(
            'Members are not told how they run: [vhpc_vendordata]ask_agents '
            'is on, and transport_url is not set'
        )
        return None
    return AgentStatuses(
        lambda host: client.call(host, 'status'),
        options.agent_timeout,
        options.cache_seconds,
    )
