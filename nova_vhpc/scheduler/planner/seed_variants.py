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

"""Seeds that leave out hosts with little capacity.

A few members alone on a host talk to all others over the network, and the
whole job waits for them. A job that nearly fills a rack is often better off
with a host elsewhere than with the rack's last small holes.
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
"""Switches, and racks, that are filled so."""

MOST_SLOW = 12
"""Hosts of running members that are looked at."""

MOST_EASING = 32
"""New members that are spent on them."""


def without_small_hosts(
    pool: HostPool,
    large: Sequence[Iterable[Group]],
    whole: Sequence[Group],
    nearest: Sequence[Group],
) -> Iterator[Counts]:
    """Placements on hosts of some room at least, each complete.

    :param large: groups that hold the job, by kind.
    :param whole: groups of all hosts.
    :param nearest: groups that members run in.
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
    """Rooms to ask of a host, a third more each time, while all fit."""
    least = 1
    kept = -1
    while hosts.holds_on(hosts.hosts(least)) >= members:
        if kept != (kept := hosts.hosts(least)):
            yield least
        least += max(1, least // 3)


def _roomiest(pool: HostPool, groups: Iterable[Group]) -> list[Group]:
    """Groups that hold most of a job which none of them holds."""
    found = heapq.nlargest(
        MOST_GROUPS, groups, key=operator.attrgetter('total')
    )
    members = pool.objective.request.members
    return [group for group in found if group.total < members]


def _fewest_hosts(pool: HostPool, groups: Iterable[Group]) -> list[Group]:
    """Groups that take the job on the fewest hosts, of most capacity."""
    capacity = pool.capacity
    members = pool.objective.request.members
    roomiest = pool.everything.most

    def hosts(group: Group) -> tuple[int, int]:
        needed = group.needed(roomiest, members)
        return needed, -capacity[group.order[needed - 1]]

    return heapq.nsmallest(MOST_GROUPS, groups, key=hosts)


def relieving(pool: HostPool, nearest: Sequence[Group]) -> Iterator[Counts]:
    """Placements that help the slowest running members, each complete.

    :param nearest: groups that members run in, for all other new ones.
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
    """Members for the slowest: one, two, four... up to all."""
    objective = pool.objective
    hosts = objective.hosts
    capacity = pool.capacity
    eased: Counts = {}
    switches, racks = objective.spread(eased)
    known_us: dict[tuple[int, int, int | None, int | None], float] = {}

    def each_us(index: int) -> float:
        """What a running member on a host costs."""
        new = eased.get(index, 0)
        host = hosts[index]
        # A new member changes it for few of the others.
        key = (
            index,
            new,
            switches.get(host.switch or ''),
            racks.get(host.rack or ''),
        )
        found = known_us.get(key)
        if found is None:
            here = {index: objective.existing[index] + new}
            found = objective.walk(here, eased, switches, racks)[1]
            known_us[key] = found
        return found

    def near(index: int) -> int | None:
        """Where a new member helps those of a host."""
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
