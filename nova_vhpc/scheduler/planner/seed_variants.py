# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Two further kinds of seeds.

:func:`without_small_hosts`: a few members alone on a host talk to all others
over the network, and the whole job waits for them. A job that nearly fills a
rack often costs less with a host elsewhere than with the rack's last small
capacities.

:func:`relieving`: the whole cluster waits for its slowest member. If several
running members are equally slow, no single move pays, because the next one
is then the slowest. Therefore new members go near each of them in turn.
"""

import heapq
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence

from nova_vhpc.scheduler.planner.host_groups import (
    Group,
    HostPool,
    fill,
    fill_hosts,
)
from nova_vhpc.scheduler.planner.objective import Counts

MOST_GROUPS = 2
"""Most switches, and most racks, that are filled without small hosts."""

MOST_SLOW = 12
"""Most hosts of running members that are considered."""

MOST_EASING = 32
"""Most new members that are placed near slow running members."""


def without_small_hosts(
    pool: HostPool,
    large: Sequence[Iterable[Group]],
    whole: Sequence[Group],
    nearest: Sequence[Group],
) -> Iterator[Counts]:
    """Yield seeds that use only hosts with a minimum capacity.

    :param large: groups that hold the job: switches, racks, and both without
        slow links.
    :param whole: groups of all hosts, with and without slow links.
    :param nearest: switches and racks with running members.
    """
    capacity = pool.capacity
    members = pool.objective.request.members
    everything = pool.everything
    first = [
        *nearest[:MOST_GROUPS],
        *_roomiest(pool, pool.racks.values()),
        *_roomiest(pool, pool.switches.values()),
        *whole,
    ]
    for groups in large:
        first += _fewest_hosts(pool, groups)
    first = list({id(group): group for group in first}.values())
    for least in _leasts(everything, members):
        for group in first:
            counts: Counts = {}
            remaining = fill(group, members, members, capacity, counts, least)
            if not remaining:
                yield counts
                continue
            if remaining == members or group in whole:
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


def _roomiest(pool: HostPool, groups: Iterable[Group]) -> list[Group]:
    """Return the largest groups, without those that hold the whole job."""
    largest = heapq.nlargest(
        MOST_GROUPS, groups, key=operator.attrgetter('total')
    )
    members = pool.objective.request.members
    return [group for group in largest if group.total < members]


def _fewest_hosts(pool: HostPool, groups: Iterable[Group]) -> list[Group]:
    """Return groups that hold the job on the fewest and largest hosts."""
    capacity = pool.capacity
    members = pool.objective.request.members
    largest = pool.everything.most

    def hosts(group: Group) -> tuple[int, int]:
        needed = group.needed(largest, members)
        return needed, -capacity[group.order[needed - 1]]

    return heapq.nsmallest(MOST_GROUPS, groups, key=hosts)


def relieving(pool: HostPool, nearest: Sequence[Group]) -> Iterator[Counts]:
    """Yield seeds that place new members near the slowest running ones.

    :param nearest: switches and racks with running members, for the new
        members that remain.
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
    for eased in _eased(pool):
        rest = members - sum(eased.values())
        for grow in (members, 0) if rest else (0,):
            counts = dict(eased)
            remaining = fill_hosts(order, grow, rest, capacity, counts)
            for group in nearest:
                if remaining <= 0:
                    break
                remaining = fill(group, members, remaining, capacity, counts)
            if not fill_hosts(
                pool.everything.order, members, remaining, capacity, counts
            ):
                yield counts


def _eased(pool: HostPool) -> Iterator[Counts]:
    """Yield placements of 1, 2, 4... members near the slowest running ones.

    Each new member goes where it helps the slowest running member most.
    """
    objective = pool.objective
    hosts = objective.hosts
    capacity = pool.capacity
    eased: Counts = {}
    switches, racks = objective.spread(eased)

    def each_us(index: int) -> float:
        """Return the cost of a running member on a host, in us."""
        here = {index: objective.existing[index] + eased.get(index, 0)}
        return objective.walk(here, eased, switches, racks)[1]

    def near(index: int) -> int | None:
        """Return the host where a new member helps a host's members most."""
        groups = (
            pool.switches.get(hosts[index].switch or ''),
            pool.racks.get(hosts[index].rack or ''),
        )
        orders = [group.order for group in groups if group is not None]
        for other in itertools.chain((index,), *orders):
            if capacity[other] > eased.get(other, 0):
                return other
        return None

    slow = heapq.nlargest(MOST_SLOW, objective.existing, key=each_us)
    members = objective.request.members
    for number in range(1, min(members, MOST_EASING) + 1):
        for index in sorted(slow, key=each_us, reverse=True):
            target = near(index)
            if target is not None:
                break
        else:
            return
        eased[target] = eased.get(target, 0) + 1
        switches, racks = objective.spread(eased)
        if number == members or number.bit_count() == 1:
            yield dict(eased)
