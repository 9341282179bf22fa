# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Construct seeds, the placements that the local search starts from.

There are three kinds:

* *By level*: at most a given number of members per host (the level), within
  one part of the fabric. All sensible levels are tried, each in the few
  switches and racks that promise the least cost.
* *Without small hosts*: a few members alone on a host talk to all others over
  the network, and the whole cluster waits for them. A cluster that nearly
  fills a rack often costs less with a host elsewhere than with the rack's
  last small capacities.
* *Near slow members*: the whole cluster waits for its slowest member. If
  several running members are equally slow, no single move pays, because the
  next one is then the slowest. Therefore new members go near each of them in
  turn.
"""

import heapq
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence

from nova_vhpc.scheduler.planner.cost_table import PAPER_LINK_MBPS
from nova_vhpc.scheduler.planner.host_groups import (
    Group,
    HostPool,
    fill,
    fill_hosts,
    make_host_pool,
)
from nova_vhpc.scheduler.planner.objective import Counts, Value

MOST_LEVELS = 16
"""Most levels that are tried; clusters of up to 64 members have no more."""

MOST_GROUPS = 4
"""Most switches, and most racks, in which a level is tried."""

MOST_WHOLE_GROUPS = 2
"""Most switches, and most racks, that are filled without small hosts."""

MOST_SPEEDS = 2
"""Most link speeds for which slower hosts are left out in turn."""

MOST_SLOW = 12
"""Most hosts of running members that are considered slow."""

MOST_NEAR_SLOW = 32
"""Most new members that are placed near slow running members."""


def seeds(pool: HostPool) -> Iterator[Counts]:
    """Yield seeds; each places all members."""
    members = pool.objective.request.members
    if not pool.objective.existing:
        single = one_host(pool, members)
        if single:
            yield single
    for part in (pool, *_fast_pools(pool)):
        large = [
            [group for group in groups.values() if group.total >= members]
            for groups in (part.switches, part.racks)
        ]
        yield from _seeds_by_level(part, large)
        yield from _seeds_without_small_hosts(part)
    yield from seeds_near_slow_members(pool)


def _fast_pools(pool: HostPool) -> Iterator[HostPool]:
    """Yield pools that hold the cluster, without the hosts of slow links.

    A single host with a slow link would make all members wait.
    """
    # An unknown link counts as in the cost model.
    links = [
        host.link_mbps or PAPER_LINK_MBPS for host in pool.objective.hosts
    ]
    speeds = sorted({links[index] for index in pool.everything.order})
    for speed in speeds[1:][-MOST_SPEEDS:]:
        capacity = [
            free if link >= speed else 0
            for free, link in zip(pool.capacity, links, strict=True)
        ]
        if sum(capacity) >= pool.objective.request.members:
            yield make_host_pool(pool.objective, capacity)


def _seeds_by_level(
    pool: HostPool, large: Sequence[Sequence[Group]]
) -> Iterator[Counts]:
    """Yield seeds with an even limit on the members of a host.

    :param large: switches and racks that hold the cluster.
    """
    members = pool.objective.request.members
    for level in dict.fromkeys(
        min(level, pool.everything.most) for level in levels(members)
    ):
        each_us: dict[int, float] = {}
        groups = [
            group
            for part in large
            for group in _cheapest_groups(pool, part, level, each_us)
        ]
        if pool.everything.holds(level) >= members:
            groups.append(pool.everything)
        for group in groups:
            counts: Counts = {}
            if not fill(group, level, members, pool.capacity, counts):
                yield counts


def one_host(pool: HostPool, members: int) -> Counts | None:
    """Choose the best single host for all new members, if there is one.

    Among equally good hosts it is the fullest, which keeps large hosts free.
    """
    best: tuple[Value, float] | None = None
    counts: Counts | None = None
    # Most hosts are alike: four members on 1,000 hosts take 2.9 ms with
    # this memo, and 4.7 without.
    tried: dict[tuple[int, int, int], Value] = {}
    objective = pool.objective
    plain = not objective.existing
    for index in pool.everything.order:
        if pool.capacity[index] < members:
            break
        host = objective.hosts[index]
        key = (host.total_cpus, host.used_vcpus, host.link_mbps)
        value = tried.get(key) if plain else None
        if value is None:
            value = objective.value({index: members})
            tried[key] = value
        if best is None or (value, host.free_cpus) < best:
            best = (value, host.free_cpus)
            counts = {index: members}
    return counts


def levels(members: int) -> list[int]:
    """Return the levels to try: an even spread over 1, 2, 3... hosts.

    :returns: most members per host, falling; at most :data:`MOST_LEVELS`
        numbers, thinned out evenly, with the first and the last kept.
    """
    all_levels = []
    hosts = 1
    while hosts <= members:
        level = -(-members // hosts)
        all_levels.append(level)
        # Skip numbers of hosts that give the same level: a loop over all
        # would take minutes for an absurd number of members.
        hosts = (members - 1) // (level - 1) + 1 if level > 1 else members + 1
    if len(all_levels) <= MOST_LEVELS:
        return all_levels
    step = (len(all_levels) - 1) / (MOST_LEVELS - 1)
    return [all_levels[round(step * number)] for number in range(MOST_LEVELS)]


def balanced(counts: Counts, capacity: Sequence[int]) -> Counts:
    """Spread the members evenly over the hosts of a placement.

    A seed leaves the remainder to its last host, whose few members would be
    far from all others.

    :returns: the given placement itself if it is even already.
    """
    if max(counts.values()) - min(counts.values()) <= 1:
        return counts
    remaining = sum(counts.values())
    evened: Counts = {}
    ordered = sorted(counts, key=capacity.__getitem__)
    for number, index in enumerate(ordered):
        evened[index] = min(
            capacity[index], remaining // (len(ordered) - number)
        )
        remaining -= evened[index]
    return evened


def _cheapest_groups(
    pool: HostPool,
    groups: Sequence[Group],
    level: int,
    each_us: dict[int, float],
) -> list[Group]:
    """Return the few groups in which a level looks cheapest.

    A group is judged by the cost of a member on its first and on its last
    used host, then by how many hosts the members need.

    :param each_us: cost of a member at this level, by host; filled in here.
        It is shared by the switches and racks of a level, which saves 3% of
        a plan.
    """
    objective = pool.objective
    members = objective.request.members
    judged = []
    for number, group in enumerate(groups):
        # Cheap test first: at a low level most groups have too few hosts.
        hosts = len(group.order)
        if level * hosts < members:
            continue
        needed = group.needed(level, members)
        if needed > hosts:
            continue
        order = group.order
        total = 0.0
        for index in (order[0], order[needed - 1]):
            member_us = each_us.get(index)
            if member_us is None:
                new = min(pool.capacity[index], level)
                here = new + objective.existing.get(index, 0)
                host = objective.hosts[index]
                member_us = sum(objective.term(host, here, new))
                each_us[index] = member_us
            total += member_us
        judged.append((total, needed, number))
    return [groups[item[2]] for item in heapq.nsmallest(MOST_GROUPS, judged)]


def _seeds_without_small_hosts(pool: HostPool) -> Iterator[Counts]:
    """Yield seeds that use only hosts with a minimum capacity."""
    capacity = pool.capacity
    members = pool.objective.request.members
    everything = pool.everything
    first = [
        *_largest_groups(pool, pool.racks.values()),
        *_largest_groups(pool, pool.switches.values()),
        everything,
    ]
    for least in _leasts(everything, members):
        for group in first:
            counts: Counts = {}
            remaining = fill(group, members, members, capacity, counts, least)
            if not remaining:
                yield counts
                continue
            if remaining == members or group is everything:
                continue
            rest = dict(counts)
            if not fill(everything, members, remaining, capacity, rest, least):
                yield rest
            if not fill_hosts(
                everything.order, members, remaining, capacity, counts
            ):
                yield counts


def _leasts(hosts: Group, members: int) -> Iterator[int]:
    """Yield minimum capacities, rising by a third, while all members fit."""
    least = 1
    kept = -1
    while hosts.holds_on(hosts.hosts(least)) >= members:
        if kept != (kept := hosts.hosts(least)):
            yield least
        least += max(1, least // 3)


def _largest_groups(pool: HostPool, groups: Iterable[Group]) -> list[Group]:
    """Return the largest groups, without those that hold the whole cluster."""
    largest = heapq.nlargest(
        MOST_WHOLE_GROUPS, groups, key=operator.attrgetter('total')
    )
    members = pool.objective.request.members
    return [group for group in largest if group.total < members]


def seeds_near_slow_members(pool: HostPool) -> Iterator[Counts]:
    """Yield seeds that place new members near the slowest running ones.

    The remaining new members go to hosts where others run, then to other
    hosts of the same switches and racks, then anywhere. The first seeds only
    do that.
    """
    objective = pool.objective
    if not objective.existing:
        return
    capacity = pool.capacity
    members = objective.request.members
    order = sorted(
        (index for index in objective.existing if capacity[index]),
        key=lambda index: (-objective.existing[index], index),
    )
    nearest = _groups_with_members(pool)
    ways: list[tuple[Counts, Sequence[Group]]] = [({}, nearest), ({}, ())]
    ways += [(counts, nearest) for counts in _placed_near_slow(pool)]
    for near_slow, near in ways:
        rest = members - sum(near_slow.values())
        for most in (members, 0) if rest else (0,):
            counts = dict(near_slow)
            remaining = fill_hosts(order, most, rest, capacity, counts)
            for group in near:
                if remaining <= 0:
                    break
                remaining = fill(group, members, remaining, capacity, counts)
            if not fill_hosts(
                pool.everything.order, members, remaining, capacity, counts
            ):
                yield counts


def _groups_with_members(pool: HostPool) -> list[Group]:
    """Return switches, then racks, with running members, most first."""
    switches, racks = pool.objective.spread({})
    return [
        groups[name]
        for running, groups in ((switches, pool.switches), (racks, pool.racks))
        for name in sorted(running, key=running.__getitem__, reverse=True)
        if name in groups
    ]


def _placed_near_slow(pool: HostPool) -> Iterator[Counts]:
    """Yield placements of 1, 2, 4... members near the slowest running ones.

    Each new member goes where it helps the slowest running member most.
    """
    objective = pool.objective
    hosts = objective.hosts
    capacity = pool.capacity
    counts: Counts = {}
    switches, racks = objective.spread(counts)

    def each_us(index: int) -> float:
        """Return the cost of a running member on a host, in us."""
        here = {index: objective.existing[index] + counts.get(index, 0)}
        return objective.walk(here, counts, switches, racks)[1]

    def near(index: int) -> int | None:
        """Return the host where a new member helps a host's members most."""
        groups = (
            pool.switches.get(hosts[index].switch or ''),
            pool.racks.get(hosts[index].rack or ''),
        )
        orders = [group.order for group in groups if group is not None]
        for other in itertools.chain((index,), *orders):
            if capacity[other] > counts.get(other, 0):
                return other
        return None

    slow = heapq.nlargest(MOST_SLOW, objective.existing, key=each_us)
    members = objective.request.members
    for number in range(1, min(members, MOST_NEAR_SLOW) + 1):
        for index in sorted(slow, key=each_us, reverse=True):
            target = near(index)
            if target is not None:
                break
        else:
            return
        counts[target] = counts.get(target, 0) + 1
        switches, racks = objective.spread(counts)
        if number == members or number.bit_count() == 1:
            yield dict(counts)
