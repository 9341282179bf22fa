# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Construct seeds, the placements that the local search starts from.

A seed has at most a given number of members per host (its *level*), within
one part of the fabric. All sensible levels are tried, each in the few
switches and racks that promise the least cost.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

from nova_vhpc.scheduler.planner.cost_table import PAPER_LINK_MBPS
from nova_vhpc.scheduler.planner.host_groups import (
    Group,
    HostPool,
    fill,
    fill_hosts,
)
from nova_vhpc.scheduler.planner.lower_bound import Bound
from nova_vhpc.scheduler.planner.objective import Counts, Value
from nova_vhpc.scheduler.planner.seed_variants import (
    relieving,
    without_small_hosts,
)

MOST_LEVELS = 16
"""Most levels that are tried; jobs of up to 64 members have no more."""

MOST_GROUPS = 4
"""Most switches, and most racks, in which a level is tried."""

MOST_SPEEDS = 2
"""Most link speeds for which slower hosts are left out in turn."""


def seeds(
    pool: HostPool, hopeless: Callable[[Value], bool] = lambda _: False
) -> Iterator[Counts]:
    """Yield seeds; each places all members.

    :param hopeless: function that returns whether placements are useless if
        their value is not below the given one; called before each level.
    """
    objective = pool.objective
    members = objective.request.members
    capacity = pool.capacity
    if not objective.existing:
        single = one_host(pool, members)
        if single:
            yield single
    orders = _by_speed(pool)
    large = [
        [group for group in groups.values() if group.total >= members]
        for groups in (pool.switches, pool.racks)
    ]
    whole = [pool.everything]
    for order in orders[1:]:
        fast = _Fast(pool, order)
        large += [fast.groups(groups) for groups in large[:2]]
        whole += fast.groups(whole[:1])
    around = _surroundings(pool)
    # Near running members, these groups may be best although their hosts
    # alone do not promise the least cost.
    near = [
        group
        for groups in around
        for group in groups[:MOST_GROUPS]
        if group.total >= members
    ]
    nearest = [group for groups in around for group in groups]
    running = sorted(
        (index for index in objective.existing if capacity[index]),
        key=lambda index: (-objective.existing[index], index),
    )
    # All hosts of the last order have the fastest links.
    bound = Bound(pool, orders[-1][0])
    for level in dict.fromkeys(
        min(level, pool.everything.most) for level in levels(members)
    ):
        # The bound never falls as the level falls.
        if hopeless(bound.least(level)):
            break
        yield from _near(pool, level, running, orders, nearest)
        each_us: dict[int, float] = {}
        groups = [
            group
            for part in large
            for group in _promising(pool, part, level, each_us)
        ]
        groups += [group for group in near if group.holds(level) >= members]
        groups += [group for group in whole if group.holds(level) >= members]
        for group in groups:
            counts: Counts = {}
            remaining = fill(group, level, members, capacity, counts)
            if not remaining:
                yield counts
    yield from without_small_hosts(pool, large, whole, nearest)
    yield from relieving(pool, nearest)


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


class _Fast:
    """Groups without their hosts of slow links.

    Groups list hosts by capacity first, whatever their links. A single host
    with a slow link would make all members of the job wait.
    """

    def __init__(self, pool: HostPool, order: Iterable[int]) -> None:
        """Remember which hosts to keep.

        :param order: positions of the hosts with fast links.
        """
        self._members = pool.objective.request.members
        self._capacity = pool.capacity
        self._kept = set(order)
        self._made: dict[int, Group] = {}

    def groups(self, groups: Iterable[Group]) -> list[Group]:
        """Return the reduced groups that still hold the job.

        Groups that have no slow host are left out.
        """
        return [
            fast
            for group in groups
            if (fast := self._fast(group)).total >= self._members
            and len(fast.order) < len(group.order)
        ]

    def _fast(self, group: Group) -> Group:
        # A rack is used on its own and as part of the whole.
        fast = self._made.get(id(group))
        if fast is None:
            kept = self._kept
            order = [index for index in group.order if index in kept]
            if not group.children and len(order) == len(group.order):
                # Reuse the group with the sums it has computed. Not so for a
                # rack: its switches may have hosts in other racks.
                fast = group
            else:
                fast = Group(order, self._capacity, lambda: self._parts(group))
            self._made[id(group)] = fast
        return fast

    def _parts(self, group: Group) -> list[Group]:
        fast = map(self._fast, group.children)
        return [one for one in fast if one.order]


def _promising(
    pool: HostPool,
    groups: Sequence[Group],
    level: int,
    each_us: dict[int, float],
) -> list[Group]:
    """Return the few groups in which a level looks cheapest.

    A group is judged by the cost of a member on its first and on its last
    used host, then by how many hosts the job needs.

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


def _near(
    pool: HostPool,
    level: int,
    running: list[int],
    orders: list[list[int]],
    nearest: list[Group],
) -> Iterator[Counts]:
    """Yield seeds around running members.

    New members go to hosts with running members first, or to other hosts of
    their switches and racks. Without running members, the hosts with the
    largest capacity are used, wherever they are.

    :param running: hosts with running members and capacity, most running
        members first.
    :param orders: lists of hosts for members that do not fit near by.
    :param nearest: switches, then racks, with running members.
    """
    objective = pool.objective
    members = objective.request.members
    capacity = pool.capacity
    for grow in (members, level, 0) if running else (0,):
        for near in (nearest, []) if nearest else ([],):
            for anywhere in orders:
                counts: Counts = {}
                remaining = fill_hosts(
                    running, grow, members, capacity, counts
                )
                for group in near:
                    if remaining <= 0:
                        break
                    remaining = fill(group, level, remaining, capacity, counts)
                if not fill_hosts(
                    anywhere, level, remaining, capacity, counts
                ):
                    yield counts


def _by_speed(pool: HostPool) -> list[list[int]]:
    """Return all hosts with capacity, then lists without the slower links."""
    hosts = pool.objective.hosts
    order = pool.everything.order
    # An unknown link counts as in the cost model.
    links = [hosts[index].link_mbps or PAPER_LINK_MBPS for index in order]
    speeds = sorted(set(links))
    return [order] + [
        [
            index
            for index, link in zip(order, links, strict=True)
            if link >= speed
        ]
        for speed in speeds[-MOST_SPEEDS:]
        if speed > speeds[0]
    ]


def _surroundings(pool: HostPool) -> tuple[list[Group], list[Group]]:
    """Return the switches and racks with running members, most first."""
    objective = pool.objective
    if not objective.existing:
        return [], []
    hosts = objective.hosts
    switches: dict[str | None, int] = {}
    racks: dict[str | None, int] = {}
    for index, count in objective.existing.items():
        host = hosts[index]
        switches[host.switch] = switches.get(host.switch, 0) + count
        racks[host.rack] = racks.get(host.rack, 0) + count

    def chosen(
        weights: dict[str | None, int], groups: dict[str, Group]
    ) -> list[Group]:
        weighted = [
            (weights[name], group)
            for name, group in groups.items()
            if name in weights
        ]
        weighted.sort(key=lambda item: item[0], reverse=True)
        return [group for _, group in weighted]

    return chosen(switches, pool.switches), chosen(racks, pool.racks)
