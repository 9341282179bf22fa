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


def roomy(
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
