# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How members run right now, as a tenant may know it.

What agents say has names of the operator's (NICs, bridges, other servers), in
sentences, too: nothing is passed on but numbers, and sentences of this module.
An agent that does not answer in time leaves its members unknown; the answer to
the tenant never waits for it.
"""

import concurrent.futures
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors
from nova_vhpc.agent.rpc import control, transport
from nova_vhpc.control.slots import frame
from nova_vhpc.vendordata import model

LOG = logging.getLogger(__name__)

PAUSED = 'the agent of its host is paused, so nothing coordinates its vCPUs'
EXTERNAL = 'somebody set its CPU settings by hand; the agent leaves them alone'
FAILING = 'its CPU settings cannot be written at the moment'
NOT_STEERED = (
    'its packets do not take the uplink that it has claimed, but the default '
    'one of its host; ask your operator'
)

HELD_UP = 0.05
"""Part of a control period from which on a vCPU counts as held up."""

_NEVER_SLEEPS: dict[str | None, bool] = {
    'waits': False,
    'spins': True,
    'held-up': True,
}
"""By how an agent says that a program waits."""

_MAX_CALLS = 32
"""Agents that are asked at a time."""

_Call = Callable[[str], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Live:
    """How a member runs. A field is None if it is unknown.

    :ivar run_s: CPU time of its vCPUs since it was started, in seconds.
    :ivar held_up_s: time in which its vCPUs wanted to run and did not, in
        seconds.
    :ivar held_up_now: whether its vCPUs were held up for more than a twentieth
        of the last control period, on average.
    :ivar never_sleeps: whether its vCPUs want to run all the time, so that its
        programs spin while they wait, or only compute.
    :ivar in_windows_s: time for which gang windows favoured it, in seconds.
    :ivar received: CPU time received lately, as a part of what stock Linux
        would give.
    :ivar slot_share: part of all time slots that its cluster has.
    :ivar overcommit: vCPUs of all servers of its host per CPU, to a tenth.
    :ivar network: network configuration that really holds.
    :ivar problem: why the agent does not do for it what it should.
    """

    run_s: float | None = None
    held_up_s: float | None = None
    held_up_now: bool | None = None
    never_sleeps: bool | None = None
    in_windows_s: float | None = None
    received: float | None = None
    slot_share: float | None = None
    overcommit: float | None = None
    network: str | None = None
    problem: str | None = None


def live_of(
    status: Any, server_uuid: str, cluster_uuid: str, network: str | None
) -> Live | None:
    """Return how a member runs.

    :param status: what the agent of its host answered to ``status``; agents
        of other versions may answer otherwise.
    :param network: network configuration of the member's flavor.
    :returns: None if the agent does not know the member, or its answer cannot
        be read.
    """
    try:
        for vm in status['vms']:
            if vm['uuid'] == server_uuid:
                return _live(status, vm, cluster_uuid, network)
    except (AttributeError, LookupError, TypeError, ValueError):
        pass
    return None


def _live(
    status: Mapping[str, Any],
    vm: Mapping[str, Any],
    cluster_uuid: str,
    network: str | None,
) -> Live:
    steered = _is_steered(status.get('binding') or {}, vm['uuid'])
    overcommit = _number(status['agent'].get('overcommit'))
    return Live(
        run_s=_number(vm.get('run_s'), 3),
        held_up_s=_number(vm.get('delay_s'), 3),
        held_up_now=_is_held_up(
            _number(vm.get('sync_latency_us')),
            _number(status['agent'].get('period_us')),
        ),
        never_sleeps=_NEVER_SLEEPS.get((vm.get('waiting') or {}).get('state')),
        in_windows_s=_number(vm.get('window_s'), 3),
        received=_number(vm.get('received'), 2),
        slot_share=_slot_share(status, cluster_uuid),
        overcommit=None if overcommit is None else round(overcommit, 1),
        network={True: network, False: 'default uplink', None: None}[steered],
        problem=_problem(status, vm, steered),
    )


def _is_held_up(
    latency_us: float | None, period_us: float | None
) -> bool | None:
    """Return whether vCPUs are held up; None if it was not measured.

    :param latency_us: synchronisation latency in the last control period.
    :param period_us: length of that, in microseconds.
    """
    if latency_us is None or not period_us:
        return None
    return latency_us > HELD_UP * period_us


def _is_steered(binding: Mapping[str, Any], uuid: str) -> bool | None:
    """Return whether a member's packets take the uplinks that it claimed.

    :returns: None if it has claimed none.
    """
    if uuid in (binding.get('problems') or {}):
        return False
    return True if uuid in (binding.get('bound') or ()) else None


def _slot_share(status: Mapping[str, Any], cluster_uuid: str) -> float | None:
    slots = (status.get('peers') or {}).get('slots') or {}
    cluster = (slots.get('clusters') or {}).get(cluster_uuid) or {}
    numbers = (cluster.get('slot') or {}).get('slots')
    return None if numbers is None else _number(frame.part(numbers), 3)


def _problem(
    status: Mapping[str, Any], vm: Mapping[str, Any], steered: bool | None
) -> str | None:
    if status['agent']['paused']:
        return PAUSED
    if vm.get('problem'):
        return FAILING
    if vm.get('external'):
        return EXTERNAL
    return NOT_STEERED if steered is False else None


def _number(value: Any, digits: int | None = None) -> float | None:
    """Return a finite number; None for None.

    :raises ValueError: it is not finite, and would be no JSON.
    """
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number if digits is None else round(number, digits)


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

    def of_members(self, cluster: model.Cluster) -> dict[str, Live]:
        """Return how members run, by UUID; those unknown are missing."""
        statuses = self._statuses(cluster.host_names.values())
        found = {}
        for member in cluster.members:
            host = cluster.host_names.get(member.uuid, '')
            if host in statuses and member.running:
                one = live_of(
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
