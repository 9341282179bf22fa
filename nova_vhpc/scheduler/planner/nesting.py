# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Nest clusters like buddies: choose between hosts that cost the same.

All hosts of a cluster can have the same free time slot most easily if they
have the same other clusters. So the sets of clusters of two hosts should be
equal or disjoint, or one of them part of the other. As with a buddy
allocator, a cluster therefore takes hosts of one set, the one with the fewest
hosts that are enough, before it takes hosts of another.

Only hosts that the planner cannot tell apart are exchanged, so the cost of
the plan stays the same.
"""

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Sequence

from nova_vhpc.scheduler.planner.host_groups import capacities
from nova_vhpc.scheduler.planner.objective import Counts, Objective

_Set = frozenset[str]
_Buckets = dict[_Set, list[int]]
"""Positions of interchangeable hosts by their clusters."""

_cost_facts = operator.itemgetter(1, 2, 3, 6, 7, 8, 10)
"""Facts of a host without name, RAM, slots and clusters."""

_all_facts = operator.itemgetter(1, 2, 3, 4, 5, 6, 7, 8, 10)
"""Facts of a host without name and clusters."""


def nested(objective: Objective, counts: Counts) -> Counts:
    """Return a placement of the same cost on hosts whose clusters nest.

    :param counts: placement; hosts with running members are kept.
    """
    request = objective.request
    alone = request.members == 1 and not objective.existing
    if alone and request.policy is None:
        # A server without a group is no cluster.
        return counts
    hosts = objective.hosts
    if not any(host.clusters for host in hosts):
        return counts
    # In the order in which sets are to be used.
    taken: dict[_Set, None] = {}
    for index in sorted(
        objective.existing, key=lambda i: (-objective.existing[i], i)
    ):
        # It is unknown which clusters are on a host that is not offered.
        if hosts[index].clusters:
            taken[hosts[index].clusters] = None
    exchange: dict[int, int] = {}
    for used, buckets in _interchangeable(objective, counts):
        chosen = list(_chosen(buckets, len(used), taken, alone))
        exchange.update(zip(used, chosen, strict=True))
        taken.update((hosts[index].clusters, None) for index in chosen)
    return {exchange.get(index, index): new for index, new in counts.items()}


def _interchangeable(
    objective: Objective, counts: Counts
) -> list[tuple[list[int], _Buckets]]:
    """Return the used hosts in groups, each with all hosts that are alike.

    The group with the most used hosts comes first.
    """
    request = objective.request
    hosts = objective.hosts
    existing = objective.existing
    # The first of members that are requested one at a time went where most
    # others can follow, so its host is kept apart by RAM and uplinks, too.
    facts = _all_facts if request.members == 1 else _cost_facts
    used = [index for index in counts if index not in existing]
    wanted = {facts(hosts[index]) for index in used}
    alike = [
        index
        for index, host in enumerate(hosts)
        if facts(host) in wanted and index not in existing
    ]
    room = _room(objective, alike)
    by_facts: dict[object, _Buckets] = {}
    for index in alike:
        buckets = by_facts.setdefault((facts(hosts[index]), room[index]), {})
        buckets.setdefault(hosts[index].clusters, []).append(index)
    groups: dict[object, list[int]] = {}
    for index in used:
        key = (facts(hosts[index]), room[index])
        groups.setdefault(key, []).append(index)
    return sorted(
        ((group, by_facts[key]) for key, group in groups.items()),
        key=lambda item: -len(item[0]),
    )


def _room(objective: Objective, indices: Sequence[int]) -> dict[int, int]:
    """Return how many new members each of some hosts can take."""
    request = dataclasses.replace(
        objective.request,
        hosts=[objective.hosts[index] for index in indices],
        existing={},
    )
    room = capacities(request, Objective(request))
    return dict(zip(indices, room, strict=True))


def _chosen(
    buckets: _Buckets, count: int, taken: Iterable[_Set], alone: bool
) -> Iterator[int]:
    """Yield hosts of as few sets of clusters as possible.

    :param count: number of hosts.
    :param taken: sets of the cluster's other hosts, the best first.
    :param alone: whether an unknown number of members follows, so that the
        set with the most hosts is best.
    """
    left = dict(buckets)
    first = [clusters for clusters in taken if clusters in left]
    while count:
        clusters = first.pop(0) if first else _best(left, count, alone)
        hosts = left.pop(clusters)[:count]
        yield from hosts
        count -= len(hosts)


def _best(buckets: _Buckets, count: int, alone: bool) -> _Set:
    """Return the smallest set of hosts that is enough, or the largest.

    Among equally large ones, it is one of hosts with few clusters.
    """
    if not alone:
        enough = [c for c, hosts in buckets.items() if len(hosts) >= count]
        if enough:
            return min(enough, key=lambda c: (len(buckets[c]), len(c)))
    return min(buckets, key=lambda c: (-len(buckets[c]), len(c)))
