# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Seeds that the planner's search starts from.

A seed is "at most so many members per host, within this part of the
fabric". All sensible levels are tried in the few switches and racks that
promise most.
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
"""Seeds per part of the fabric; jobs to 64 members have no more."""

MOST_GROUPS = 4
"""Switches, and racks, in which a level is tried."""

MOST_SPEEDS = 2
"""Link speeds that are tried without the slower hosts."""


def seeds(
    pool: HostPool, hopeless: Callable[[Value], bool] = lambda _: False
) -> Iterator[Counts]:
    """Placements to start from, each complete.

    :param hopeless: whether placements of no less than a value are of no
        use; asked for each level before it is tried.
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
    # Judged by who runs there they may be best, though not by their hosts.
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
    # All of the last have the fastest links.
    bound = Bound(pool, orders[-1][0])
    for level in dict.fromkeys(
        min(level, pool.everything.most) for level in levels(members)
    ):
        # Fewer members per host are never of a lower bound.
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
    """The best single host for all new members, or None.

    Of equally good ones the fullest: big holes are kept whole.
    """
    best: tuple[Value, float] | None = None
    found: Counts | None = None
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
            found = {index: members}
    return found


def levels(members: int) -> list[int]:
    """Members per host worth trying: an even spread over 1, 2, 3 hosts...

    At most :data:`MOST_LEVELS`, thinned out evenly, both ends kept.
    """
    found = []
    hosts = 1
    while hosts <= members:
        level = -(-members // hosts)
        found.append(level)
        # Not host by host: an absurd number of members is to end, too.
        hosts = (members - 1) // (level - 1) + 1 if level > 1 else members + 1
    if len(found) <= MOST_LEVELS:
        return found
    step = (len(found) - 1) / (MOST_LEVELS - 1)
    return [found[round(step * number)] for number in range(MOST_LEVELS)]


def balanced(counts: Counts, capacity: Sequence[int]) -> Counts:
    """The same hosts with the members spread as evenly as they have capacity.

    Seeds leave the last host with the rest, whose few members would
    be far from all others.
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
    """Groups without their slower links, where these are not needed.

    The hosts with most room come first, however slow their links are; one
    of them makes all members of the job wait.
    """

    def __init__(self, pool: HostPool, order: Iterable[int]) -> None:
        """Keep the hosts of fast links.

        :param order: these hosts.
        """
        self._members = pool.objective.request.members
        self._capacity = pool.capacity
        self._kept = set(order)
        self._made: dict[int, Group] = {}

    def groups(self, groups: Iterable[Group]) -> list[Group]:
        """Of these, what holds the job still and has fewer hosts."""
        return [
            found
            for group in groups
            if (found := self._fast(group)).total >= self._members
            and len(found.order) < len(group.order)
        ]

    def _fast(self, group: Group) -> Group:
        # Racks are asked for on their own and as parts of the whole.
        found = self._made.get(id(group))
        if found is None:
            kept = self._kept
            order = [index for index in group.order if index in kept]
            if not group.children and len(order) == len(group.order):
                # With all that it has been asked before. The switches of a
                # rack may have hosts elsewhere.
                found = group
            else:
                found = Group(
                    order, self._capacity, lambda: self._parts(group)
                )
            self._made[id(group)] = found
        return found

    def _parts(self, group: Group) -> list[Group]:
        fast = map(self._fast, group.children)
        return [one for one in fast if one.order]


def _promising(
    pool: HostPool,
    groups: Sequence[Group],
    level: int,
    each_us: dict[int, float],
) -> list[Group]:
    """The few groups in which a level looks cheapest.

    Judged by how many hosts it takes, and by the cost of a member on the
    first and on the last of them.

    :param each_us: that cost by host at this level, as far as it is known.
    """
    objective = pool.objective
    members = objective.request.members
    judged = []
    for number, group in enumerate(groups):
        # Most have too few hosts at a low level, and are not asked then.
        hosts = len(group.order)
        if level * hosts < members:
            continue
        needed = group.needed(level, members)
        if needed > hosts:
            continue
        order = group.order
        total = 0.0
        for index in (order[0], order[needed - 1]):
            found = each_us.get(index)
            if found is None:
                new = min(pool.capacity[index], level)
                here = new + objective.existing.get(index, 0)
                host = objective.hosts[index]
                found = sum(objective.term(host, here, new))
                each_us[index] = found
            total += found
        judged.append((total, needed, number))
    return [groups[item[2]] for item in heapq.nsmallest(MOST_GROUPS, judged)]


def _near(
    pool: HostPool,
    level: int,
    running: list[int],
    orders: list[list[int]],
    nearest: list[Group],
) -> Iterator[Counts]:
    """Seeds around the members that run already, if any.

    On their hosts first; or on other hosts of their switches and racks.
    Without any, the roomiest hosts wherever they are.

    :param running: their hosts that have capacity, most of them first.
    :param orders: hosts for those that find no room near by.
    :param nearest: their switches and racks, in this order.
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
    """All hosts with capacity, and those without the slowest links."""
    hosts = pool.objective.hosts
    order = pool.everything.order
    # An unknown one counts as the cost model takes it.
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
    """Switches and racks of the running members, fullest of them first."""
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
        found = [
            (weights[name], group)
            for name, group in groups.items()
            if name in weights
        ]
        found.sort(key=lambda item: item[0], reverse=True)
        return [group for _, group in found]

    return chosen(switches, pool.switches), chosen(racks, pool.racks)
