# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The hosts of one request, sorted once and grouped by the fabric.

Hosts of a group are sorted by capacity, and their capacities are summed up
cumulatively. Therefore no question of the search needs a loop over hosts.
"""

import dataclasses
import operator
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from nova_vhpc.scheduler.planner.cost_table import PAPER_LINK_MBPS
from nova_vhpc.scheduler.planner.model import NO_LIMIT, PlanRequest, Policy
from nova_vhpc.scheduler.planner.objective import Counts, Objective

_ROOM = operator.attrgetter(
    'total_cpus', 'used_vcpus', 'free_cpus', 'free_ram_mb', 'slots'
)
"""Facts that limit how many members a host can take."""

_BIG = 1 << 20
_LINK_BITS = 30
_LOAD_STEPS = 64


class Group:
    """Hosts of one switch, of one rack, or all hosts.

    :ivar order: positions of the hosts, the largest capacity first.
    :ivar children: smaller groups in this one.
    :ivar most: largest capacity of one host, in members.
    :ivar total: capacity of all hosts, in members.
    """

    __slots__ = (
        '_capacity',
        '_negative',
        '_ranks',
        '_sums',
        'children',
        'most',
        'order',
        'total',
    )

    def __init__(
        self,
        order: list[int],
        capacity: Sequence[int],
        children: 'Sequence[Group]' = (),
    ) -> None:
        self.order = order
        self.children = children
        self.total = sum(map(capacity.__getitem__, order))
        self.most = capacity[order[0]] if order else 0
        # Computed at the first use: most groups are too small for the
        # cluster and are never used.
        self._capacity = capacity
        self._negative: list[int] | None = None
        self._sums: list[int] | None = None
        self._ranks: dict[int, _Ranks] | None = None

    def holds(self, level: int) -> int:
        """Return how many members fit with at most ``level`` per host."""
        if level >= self.most:
            return self.total
        full = self.hosts(level)
        return level * full + self.total - self.holds_on(full)

    def hosts(self, least: int) -> int:
        """Return the number of hosts with a capacity of ``least`` or more."""
        return bisect_right(self._negative or self._negated(), -least)

    def holds_on(self, hosts: int) -> int:
        """Return the capacity of the given number of largest hosts."""
        return (self._sums or self._summed())[hosts]

    def needed(self, level: int, members: int) -> int:
        """Return how many hosts take ``members``, at most ``level`` each.

        :returns: a number above the number of hosts if members do not fit.
        """
        full = bisect_right(self._negative or self._negated(), -level)
        if level * full >= members:
            return -(-members // level)
        rest = members - level * full
        sums = self._sums or self._summed()
        return bisect_right(sums, sums[full] + rest - 1)

    def ranked(self, level: int) -> '_Ranks':
        """Return the children that hold most first, and what each holds.

        :returns: children, and their capacities at ``level``, negated.
        """
        level = min(level, self.most)
        if self._ranks is None:
            self._ranks = {}
        ranks = self._ranks.get(level)
        if ranks is None:
            # Group.holds() inlined: a group may have thousands of children.
            children = self.children
            held = [
                -child.total
                if child.most <= level
                else -level
                if child.most == child.total
                else (child._sums or child._summed())[
                    full := bisect_right(
                        child._negative or child._negated(), -level
                    )
                ]
                - level * full
                - child.total
                for child in children
            ]
            order = sorted(range(len(held)), key=held.__getitem__)
            ranks = (
                [children[index] for index in order],
                [held[index] for index in order],
            )
            self._ranks[level] = ranks
        return ranks

    def _negated(self) -> list[int]:
        """Negate the capacities, so that they ascend as bisect needs it."""
        self._negative = [-self._capacity[index] for index in self.order]
        return self._negative

    def _summed(self) -> list[int]:
        """Sum up the capacities of the 0, 1, 2... largest hosts."""
        ordered = map(self._capacity.__getitem__, self.order)
        self._sums = list(accumulate(ordered, initial=0))
        return self._sums


_Ranks = tuple[list[Group], list[int]]


@dataclasses.dataclass(frozen=True, slots=True)
class HostPool:
    """The hosts that may take new members.

    :ivar capacity: number of new members that each host may get, by
        position, within the policy's limit.
    :ivar everything: all hosts with capacity.
    :ivar switches: hosts with capacity, by switch.
    :ivar racks: hosts with capacity, by rack.
    """

    objective: Objective
    capacity: list[int]
    everything: Group
    switches: dict[str, Group]
    racks: dict[str, Group]


def make_host_pool(objective: Objective, capacity: list[int]) -> HostPool:
    """Sort and group the hosts of a request.

    Larger capacity comes first, then the faster link, then the lower load.

    :param capacity: number of new members that each host may get.
    """
    hosts = objective.hosts
    keys = [
        (free << _LINK_BITS)
        + min(host.link_mbps or PAPER_LINK_MBPS, _BIG) * _LOAD_STEPS
        - _LOAD_STEPS * host.used_vcpus // (host.total_cpus or 1)
        for free, host in zip(capacity, hosts, strict=True)
    ]
    order = sorted(
        (index for index, free in enumerate(capacity) if free),
        key=keys.__getitem__,
        reverse=True,
    )
    return _grouped(objective, capacity, order)


def limit_of(request: PlanRequest) -> int | None:
    """Return how many members per host a hard policy allows; None: any."""
    if request.policy == Policy.ANTI_AFFINITY:
        return request.max_server_per_host or 1
    return None


def cap_members(
    objective: Objective, capacity: list[int], limit: int | None
) -> list[int]:
    """Return capacities under a limit on each host's members.

    :param limit: most members per host, running and new; None for no limit.
    """
    if limit is None:
        return capacity
    capped = [limit if free > limit else free for free in capacity]
    for index, count in objective.existing.items():
        capped[index] = max(0, min(capacity[index], limit - count))
    return capped


def strict_capacities(objective: Objective, limit: int | None) -> list[int]:
    """Return how many members fit on each host without over-commit.

    :param limit: most members per host, running and new; None for no limit.
    """
    request = objective.request
    strict = dataclasses.replace(
        request,
        members=NO_LIMIT,
        max_overcommit=min(1.0, request.max_overcommit),
    )
    return cap_members(objective, capacities(strict, objective), limit)


def capacities(request: PlanRequest, objective: Objective) -> list[int]:
    """Return how many new members each host can take.

    CPUs, RAM, uplinks, devices and disk limit that number. The loop makes
    no calls, because most of the planner's time is spent here.
    """
    vcpus = request.vcpus
    ram_mb = request.ram_mb or 1
    spare = request.spare_cpus
    ratio = request.max_overcommit
    most = request.members
    new_capacities = []
    for total, used, cpus, ram, slots in map(_ROOM, objective.hosts):
        limit = (total - spare) * ratio - used + 1e-9
        if limit > cpus:
            limit = cpus
        free = int(limit // vcpus)
        if free > slots:
            free = slots
        if free > most:
            free = most
        if free > 0:
            by_ram = int(ram // ram_mb)
            if by_ram < free:
                free = max(0, by_ram)
        else:
            free = 0
        new_capacities.append(free)
    return new_capacities


def _grouped(
    objective: Objective, capacity: list[int], order: list[int]
) -> HostPool:
    """Group hosts by switch and by rack, keeping their order."""
    by_switch: dict[str, list[int]] = {}
    by_rack: dict[str, list[int]] = {}
    no_group: list[int] = []
    hosts = objective.hosts
    for index in order:
        host = hosts[index]
        switch = host.switch
        rack = host.rack
        if switch is not None:
            by_switch.setdefault(switch, []).append(index)
        if rack is not None:
            by_rack.setdefault(rack, []).append(index)
        elif switch is None:
            no_group.append(index)
    switches = {name: Group(ids, capacity) for name, ids in by_switch.items()}
    racks = {}
    top = []
    in_racks: set[str] = set()
    for rack, ids in by_rack.items():
        parts: dict[str | None, list[int]] = {}
        for index in ids:
            parts.setdefault(hosts[index].switch, []).append(index)
        inside = []
        whole = []
        for name, part in parts.items():
            if name is None:
                inside.append(Group(part, capacity))
                whole.append(inside[-1])
                continue
            in_racks.add(name)
            whole.append(switches[name])
            # A switch may serve several racks: only its hosts in this rack.
            shared = len(part) < len(by_switch[name])
            inside.append(Group(part, capacity) if shared else switches[name])
        racks[rack] = Group(ids, capacity, inside)
        # A cluster that needs several racks costs less on whole switches.
        top.append(
            racks[rack] if inside == whole else Group(ids, capacity, whole)
        )
    top += [group for name, group in switches.items() if name not in in_racks]
    if no_group:
        top.append(Group(no_group, capacity))
    everything = Group(order, capacity, top if len(top) > 1 else ())
    if len(top) == 1:
        everything = Group(order, capacity, top[0].children)
    return HostPool(objective, capacity, everything, switches, racks)


def fill(
    group: Group,
    level: int,
    members: int,
    capacity: Sequence[int],
    into: Counts,
    least: int = 1,
) -> int:
    """Put members on the hosts of a group, as in best-fit decreasing.

    The largest child is filled first, and the last members go to the
    smallest child that can take all of them. So a cluster uses few
    switches and does not break up large free parts.

    :param level: most members per host.
    :param members: number of members to place.
    :param capacity: number of new members that each host may get.
    :param into: placement to add to; hosts that it has are skipped.
    :param least: smallest capacity of a host that is used.
    :returns: number of members that did not fit.
    """
    if not group.children:
        return fill_hosts(group.order, level, members, capacity, into, least)
    children, negative = group.ranked(level)
    position = 0
    while members > 0 and position < len(negative) and negative[position]:
        taken = position
        if -negative[position] >= members:
            taken = bisect_right(negative, -members) - 1
        child = children[taken]
        remaining = members
        if child.most >= least:
            remaining = fill(child, level, members, capacity, into, least)
        # If the child took no member, it would be chosen again for each
        # position up to its own.
        position = taken + 1 if remaining == members else position + 1
        members = remaining
    # A switch that serves several racks was counted in each of them, so
    # members may remain.
    return fill_hosts(group.order, level, members, capacity, into, least)


def fill_hosts(
    order: Iterable[int],
    level: int,
    members: int,
    capacity: Sequence[int],
    into: Counts,
    least: int = 1,
) -> int:
    """Put members on hosts in the given order, at most ``level`` on each.

    The parameters and the result are those of :func:`fill`.
    """
    for index in order:
        if members <= 0:
            break
        if capacity[index] < least or index in into:
            continue
        new = min(capacity[index], level, members)
        if new > 0:
            into[index] = new
            members -= new
    return members
