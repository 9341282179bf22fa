# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What ``nova-vhpc-top`` shows: servers by cluster, sorted and filtered.

What is not known is None, never 0.
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

RECEIVED_ENOUGH = 0.95
"""Part of stock Linux's CPU time below which a server is called slow: what
the agent itself holds every VM at."""

RECEIVED_LITTLE = 0.8
"""Part of stock Linux's CPU time below which a program is slow to the eye."""


class State(enum.Enum):
    """State of a server, best first; the value is the word that is shown.

    WAITING: the agent has decided nothing yet. ALONE: the agent leaves the
    server alone for now, for instance after an external change. SPINNING: its
    vCPUs never sleep, and are held up. SHORT: it gets less CPU time than stock
    Linux would give. FAILING: it cannot be written to.
    """

    OK = 'ok'
    WAITING = 'wait'
    SPINNING = 'spins'
    ALONE = 'alone'
    SHORT = 'short'
    FAILING = 'FAIL'

    @property
    def rank(self) -> int:
        """Place in the order, from 0 for the best."""
        return _RANKS[self]


_RANKS = {state: rank for rank, state in enumerate(State)}


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """One VM, as the agent of its host sees it.

    :ivar host: name of the agent's host.
    :ivar uuid: UUID of the server.
    :ivar name: name of the server; that of the domain if unknown.
    :ivar domain: libvirt's name of the domain.
    :ivar cluster: ID of its virtual cluster; None without one.
    :ivar phase: ``io`` or ``computing``; None before the first decision.
    :ivar cpu: CPU time of all vCPUs, as a part of one CPU.
    :ivar received: CPU time received, as a part of what stock Linux would
        give.
    :ivar latency_us: synchronisation latency in the last control period.
    :ivar io_events: I/O events per 100 ms.
    :ivar window_us: length of its gang window, in microseconds.
    :ivar pins: CPU set of each vCPU.
    :ivar note: why it is as it is, in one line.
    """

    host: str
    uuid: str
    name: str
    domain: str
    cluster: str | None
    workload: str
    phase: str | None
    state: State
    vcpus: int
    cpu: float | None
    received: float | None
    latency_us: float | None
    io_events: float | None
    slice_us: float | None
    period_us: float | None
    quota_us: float | None
    shares: int | None
    window_us: float | None
    pins: tuple[str, ...]
    writes: int
    moves: int
    note: str


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """One host whose agent answered.

    :ivar marks: what is out of the ordinary, in capitals.
    :ivar tick_us: duration of the last tick; None before it.
    :ivar ticks: control periods since the agent started.
    :ivar missed: further control periods, which were missed.
    :ivar uplinks: state of the uplinks' publication.
    :ivar windows: the gang windows, in words.
    :ivar bus: state of the message bus, in words.
    :ivar problems: what is wrong, a sentence each.
    """

    name: str
    cpus: str
    marks: tuple[str, ...]
    tick_us: float | None
    period_us: float
    ticks: int
    missed: int
    uplinks: str
    windows: str
    bus: str
    problems: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """All hosts at one time.

    :ivar cluster: ID of the only cluster that was asked for; None for all.
    :ivar missing: why hosts did not answer, by host.
    :ivar remarks: what else is not shown, a sentence each.
    """

    hosts: Sequence[Host]
    servers: Sequence[Server]
    cluster: str | None = None
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    remarks: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """Servers of one virtual cluster, as far as they are shown.

    :ivar uuid: its ID; None for the servers without a cluster.
    :ivar servers: its servers, in the order in which they are shown.
    """

    uuid: str | None
    servers: tuple[Server, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts of its servers."""
        return tuple(sorted({server.host for server in self.servers}))

    @property
    def state(self) -> State:
        """State of the server that is worst off."""
        states = (server.state for server in self.servers)
        return max(states, key=lambda state: state.rank)

    @property
    def phase(self) -> str | None:
        """Phase of all servers; ``mixed`` if they differ."""
        phases = {server.phase for server in self.servers} - {None}
        return 'mixed' if len(phases) > 1 else next(iter(phases), None)

    @property
    def received(self) -> float | None:
        """CPU time of the server that received least.

        The whole program waits for that server.
        """
        return min(self.known('received'), default=None)

    def known(self, key: str) -> list[float]:
        """Return the values of an attribute that are known."""
        values = (getattr(server, key) for server in self.servers)
        return [value for value in values if value is not None]


class Order(enum.StrEnum):
    """What clusters, and servers inside of clusters, are sorted by."""

    NAME = 'name'
    STATE = 'state'
    RECEIVED = 'received'
    CPU = 'cpu'
    LATENCY = 'latency'
    IO = 'io'
    WRITES = 'writes'

    def next(self) -> 'Order':
        """Return the order after this one, the first after the last."""
        orders = list(Order)
        return orders[(orders.index(self) + 1) % len(orders)]


_KEYS: dict[Order, Callable[[Server], float | None]] = {
    Order.STATE: lambda server: -server.state.rank,
    Order.RECEIVED: lambda server: server.received,
    Order.CPU: lambda server: _down(server.cpu),
    Order.LATENCY: lambda server: _down(server.latency_us),
    Order.IO: lambda server: _down(server.io_events),
    Order.WRITES: lambda server: _down(server.writes),
}
"""What comes first is what deserves a look: the smallest of these values."""


def _down(value: float | None) -> float | None:
    return None if value is None else -value


def group(
    servers: Iterable[Server],
    order: Order = Order.NAME,
    backwards: bool = False,
    words: str = '',
) -> list[Cluster]:
    """Return the servers by cluster, sorted.

    Clusters are in the order of their first servers. Servers without a
    cluster come last, and servers with an unknown value after those with one.

    :param backwards: whether the order is reversed.
    :param words: only servers that have all these words, see
        :func:`matches`.
    """
    shown = sorted(
        (server for server in servers if _matches(server, words)),
        key=lambda server: (_natural(server.name), server.host, server.uuid),
        reverse=backwards,
    )
    key = _KEYS.get(order)
    if key is not None:
        known = [server for server in shown if key(server) is not None]
        unknown = [server for server in shown if key(server) is None]
        # Sorted stably, so that equal ones stay by name.
        known.sort(key=key, reverse=backwards)  # type: ignore[arg-type]
        shown = known + unknown
    by_cluster: dict[str | None, list[Server]] = {}
    for server in shown:
        by_cluster.setdefault(server.cluster, []).append(server)
    ids: Sequence[str | None] = list(by_cluster)
    if order is Order.NAME:
        ids = sorted(ids, key=lambda one: one or '', reverse=backwards)
    return [
        Cluster(one, tuple(by_cluster[one]))
        for one in sorted(ids, key=lambda one: one is None)
    ]


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts ``wn-2`` before ``wn-10``."""
    parts = re.findall(r'(\D*)(\d*)', name)
    return [(word, int(digits or -1)) for word, digits in parts]


def _matches(server: Server, words: str) -> bool:
    """Return whether a server has all words, whatever their case.

    Searched are its names, UUIDs, host, workload, phase, state and note.
    """
    if not words.strip():
        return True
    text = ' '.join(map(str, _searched(server))).casefold()
    return all(word in text for word in words.casefold().split())


def _searched(server: Server) -> tuple[Any, ...]:
    return (
        server.name,
        server.domain,
        server.uuid,
        server.cluster or '',
        server.host,
        server.workload,
        server.phase or '',
        server.state.value,
        server.note,
    )
