# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Choose between placements of the same cost: equal rails, then nesting.

Hosts are exchanged for hosts on which the members cost the same.

**Rails.** On tenant networks of OVN, routing chooses the uplink by which a
frame leaves its host: the one on the rail of the *receiver's* uplink. Frames
that leave by uplinks on which the cluster has no claim for them are *stray*;
the fewer, the better the placement.

A claim on an uplink pays for as many frames as arrive by it. Let every member
talk to every other, and a host have ``m`` of ``M`` members, ``m_r`` of ``M_r``
on rail ``r``. Then ``m (M_r - m_r)`` frames leave it by rail ``r``, and
``m_r (M - m)`` arrive there; what leaves beyond that is stray. Nothing is if
all members are on one rail, or if every host has the same part of its members
on each rail. Both come from one rule: all hosts fill the same rails in the
same order.

**Nesting.** All hosts of a cluster can have the same free time slot most
easily if they have the same other clusters. So the sets of clusters of two
hosts should be equal or disjoint, or one of them part of the other. As with a
buddy allocator, a cluster therefore takes hosts of one set, the one with the
fewest hosts that are enough, before it takes hosts of another.
"""

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nova_vhpc.scheduler.planner.group_policies import most_own_overcommit
from nova_vhpc.scheduler.planner.host_groups import capacities
from nova_vhpc.scheduler.planner.model import HostFacts, Rail
from nova_vhpc.scheduler.planner.objective import Counts, Objective

MOST_PLANS = 4
"""Most plans on chosen rails. Hosts seldom have more rails than that."""

_COST = (
    'total_cpus',
    'used_vcpus',
    'free_cpus',
    'link_mbps',
    'switch',
    'rack',
)
"""Facts that decide what members cost on a host."""

Rails = Mapping[int, tuple[str, ...]]
"""Rail of each new member of a host, by position of the host."""

_Set = frozenset[str]
_Buckets = dict[_Set, list[int]]
"""Positions of interchangeable hosts by their clusters."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Alike:
    """Hosts that differ in no fact that counts.

    :ivar used: positions of those that get members, in the placement's order.
    :ivar hosts: positions of all of them, those of running members left out.
    :ivar room: number of new members that each can take.
    """

    used: list[int]
    hosts: list[int]
    room: Mapping[int, int]


def _alike(
    objective: Objective, counts: Counts, *facts: str
) -> Iterator[_Alike]:
    """Yield the used hosts in groups, each with all hosts that are alike.

    :param facts: names of the facts in which alike hosts are equal.
    """
    key: Callable[[HostFacts], object] = operator.attrgetter(*facts)
    hosts = objective.hosts
    groups: dict[object, list[int]] = {}
    for index in counts:
        if index not in objective.existing:
            groups.setdefault(key(hosts[index]), []).append(index)
    alike: dict[object, list[int]] = {values: [] for values in groups}
    for index, host in enumerate(hosts):
        same = alike.get(key(host))
        if same is not None and index not in objective.existing:
            same.append(index)
    for values, used in groups.items():
        same = alike[values]
        request = dataclasses.replace(
            objective.request,
            hosts=[hosts[index] for index in same],
            existing={},
        )
        room = capacities(request, Objective(request))
        yield _Alike(used, same, dict(zip(same, room, strict=True)))


def _exchange(counts: Counts, exchange: Mapping[int, int]) -> Counts:
    """Return a placement with some of its hosts exchanged."""
    return {exchange.get(index, index): new for index, new in counts.items()}


def prefer_same_rails(
    objective: Objective,
    counts: Counts,
    place: Callable[[Objective], Counts | None],
) -> Counts:
    """Return the placement, or one that costs no more and has fewer strays.

    :param counts: placement of the least cost.
    :param place: finds a placement of the least cost.
    """
    least = stray_share(objective, rails_of_members(objective, counts))
    if not counts or not least:
        return counts
    policy_count, cost_us = objective.value(counts)
    most = most_own_overcommit(objective, counts)
    best = counts
    exchanged = _exchange_for_rails(objective, counts)
    stray = stray_share(objective, rails_of_members(objective, exchanged))
    if stray < least:
        best, least = exchanged, stray
    if not least:
        return best
    for names in _rails_to_try(objective, max(counts.values())):
        other = place(_restricted(objective, frozenset(names)))
        if other is None:
            continue
        value = objective.value(other)
        if (
            value[0] > policy_count
            or value[1] > cost_us * (1 + 1e-9)
            or most_own_overcommit(objective, other) > most
        ):
            continue
        stray = stray_share(objective, rails_of_members(objective, other))
        if stray < least:
            best, least = other, stray
        if not least:
            break
    return best


def rails_of_members(objective: Objective, counts: Counts) -> Rails:
    """Return the rail of each new member; empty if hosts have no rails."""
    hosts = objective.hosts
    used = {i: new for i, new in counts.items() if new and hosts[i].rails}
    if not used:
        return {}
    order = _order(
        objective, ((hosts[i].rails, new) for i, new in used.items())
    )
    packed = objective.request.network == 'shared'
    return {
        i: tuple(_filled(hosts[i].rails, order, new, packed))
        for i, new in used.items()
    }


def stray_share(objective: Objective, rails: Rails) -> float:
    """Return the part of the frames between hosts that is stray, 0.0 to 1.0.

    Members whose rail is unknown do not count.

    :param rails: rails of the new members, by :func:`rails_of_members`.
    """
    here: dict[str, Counter[str]] = {
        name: Counter(running)
        for name, running in objective.request.running_rails.items()
    }
    for index, names in rails.items():
        here.setdefault(objective.hosts[index].name, Counter()).update(names)
    everywhere: Counter[str] = Counter()
    for members in here.values():
        everywhere.update(members)
    total = everywhere.total()
    between = stray = 0
    for members in here.values():
        count = members.total()
        between += count * (total - count)
        for rail, in_all in everywhere.items():
            leaving = count * (in_all - members[rail])
            arriving = members[rail] * (total - count)
            stray += max(0, leaving - arriving)
    return stray / between if between else 0.0


def _order(
    objective: Objective, hosts: Iterable[tuple[Sequence[Rail], int]]
) -> list[str]:
    """Return the names of rails, the one with the most bandwidth first.

    That is what the cluster's members get there, running ones included; among
    equal rails, the one with the most free slots is first.

    :param hosts: rails of hosts, and for how many members.
    """
    mbps: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    fastest: Counter[str] = Counter()
    for rails, members in hosts:
        for rail in rails:
            mbps[rail.name] += min(rail.slots, members) * rail.mbps
            slots[rail.name] += rail.slots
            fastest[rail.name] = max(fastest[rail.name], rail.mbps)
    for running in objective.request.running_rails.values():
        for name, members in running.items():
            mbps[name] += members * fastest[name]
    return sorted(mbps, key=lambda name: (-mbps[name], -slots[name], name))


def _filled(
    rails: Sequence[Rail], order: Sequence[str], members: int, packed: bool
) -> Iterator[str]:
    """Yield the rail of each member on one host.

    :param packed: whether a rail is filled before the next one is used: the
        configuration ``shared`` has all guests on one uplink.
    """
    free = {rail.name: rail.slots for rail in rails}
    while members:
        with_slots = [name for name in order if free.get(name, 0) > 0]
        if not with_slots:
            # More members than slots: they are not all to be placed now.
            return
        for name in with_slots[:1] if packed else with_slots[:members]:
            count = min(members, free[name]) if packed else 1
            free[name] -= count
            members -= count
            yield from (name for _ in range(count))


def _exchange_for_rails(objective: Objective, counts: Counts) -> Counts:
    """Return the placement, on hosts that cost the same and have more rails.

    A host is exchanged for an unused one that differs in rails, RAM and
    clusters only, if the rails that most others have are free there.
    """
    request = objective.request
    hosts = objective.hosts
    if request.members == 1:
        # Its host was chosen for the room around it.
        return counts
    groups = list(_alike(objective, counts, *_COST))
    order = _order(
        objective,
        [(hosts[i].rails, new) for i, new in counts.items()]
        + [
            (hosts[i].rails, group.room[i])
            for group in groups
            for i in group.hosts
            if i not in counts
        ],
    )
    packed = request.network == 'shared'
    exchange: dict[int, int] = {}
    taken = set(counts)
    for start in range(len(order)):
        first = order[start:]
        for group in groups:
            free: dict[int, Iterator[int]] = {}
            for index in group.used:
                if index in exchange:
                    continue
                new = counts[index]
                if _suits(hosts[index].rails, first, new, packed):
                    exchange[index] = index
                    continue
                if new not in free:
                    free[new] = (
                        other
                        for other in group.hosts
                        if other not in taken
                        and group.room[other] >= new
                        and _suits(hosts[other].rails, first, new, packed)
                    )
                other = next(free[new], index)
                if other != index:
                    taken.add(other)
                    exchange[index] = other
    return _exchange(counts, exchange)


def _suits(
    rails: Sequence[Rail], order: Sequence[str], members: int, packed: bool
) -> bool:
    """Return whether the first rails are free for members of one host."""
    names = list(_filled(rails, order, members, packed))
    first = order[: 1 if packed else members]
    return len(names) == members and set(names) <= set(first)


def _rails_to_try(objective: Objective, most: int) -> Iterator[Sequence[str]]:
    """Yield sets of rails on which all members may be placed, the best first.

    :param most: most members of one host.
    """
    request = objective.request
    order = _order(
        objective, ((host.rails, request.members) for host in request.hosts)
    )
    size = 1 if request.network == 'shared' else most
    for start in range(min(MOST_PLANS, len(order) - size + 1)):
        yield order[start : start + size]


def _restricted(objective: Objective, names: frozenset[str]) -> Objective:
    """Return the objective with members on some rails only."""
    request = objective.request
    hosts = [
        host._replace(
            slots=min(
                host.slots,
                sum(rail.slots for rail in host.rails if rail.name in names),
            )
        )
        for host in request.hosts
    ]
    return Objective(dataclasses.replace(request, hosts=hosts))


def exchange_for_nesting(objective: Objective, counts: Counts) -> Counts:
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
    # The first of members that are requested one at a time went where most
    # others can follow, so its host is kept apart by RAM and uplinks, too.
    single = ('free_ram_mb', 'slots') if request.members == 1 else ()
    groups: list[tuple[list[int], _Buckets]] = []
    for group in _alike(objective, counts, *_COST, 'rails', *single):
        for room in dict.fromkeys(group.room[index] for index in group.used):
            buckets: _Buckets = {}
            for index in group.hosts:
                if group.room[index] == room:
                    buckets.setdefault(hosts[index].clusters, []).append(index)
            used = [i for i in group.used if group.room[i] == room]
            groups.append((used, buckets))
    # The group with the most used hosts chooses first.
    groups.sort(key=lambda item: -len(item[0]))
    exchange: dict[int, int] = {}
    for used, buckets in groups:
        chosen = list(_nesting_hosts(buckets, len(used), taken, alone))
        exchange.update(zip(used, chosen, strict=True))
        taken.update((hosts[index].clusters, None) for index in chosen)
    return _exchange(counts, exchange)


def _nesting_hosts(
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
        clusters = first.pop(0) if first else _best_set(left, count, alone)
        hosts = left.pop(clusters)[:count]
        yield from hosts
        count -= len(hosts)


def _best_set(buckets: _Buckets, count: int, alone: bool) -> _Set:
    """Return the smallest set of hosts that is enough, or the largest.

    Among equally large ones, it is one of hosts with few clusters.
    """
    if not alone:
        enough = [c for c, hosts in buckets.items() if len(hosts) >= count]
        if enough:
            return min(enough, key=lambda c: (len(buckets[c]), len(c)))
    return min(buckets, key=lambda c: (-len(buckets[c]), len(c)))
