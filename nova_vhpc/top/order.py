# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Groups servers by cluster, sorts and filters them. Pure."""

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nova_vhpc.top.model import Cluster, Server


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


def clusters(
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
        (server for server in servers if matches(server, words)),
        key=lambda server: (natural(server.name), server.host, server.uuid),
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


def natural(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts ``wn-2`` before ``wn-10``."""
    parts = re.findall(r'(\D*)(\d*)', name)
    return [(word, int(digits or -1)) for word, digits in parts]


def matches(server: Server, words: str) -> bool:
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
