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

"""Patterns that leave out hosts with little room.

A few members alone on a host talk to all others over the network, and the
whole job waits for them. A job that nearly fills a rack is often better off
with a host elsewhere than with the rack's last small holes.
"""

import heapq
import operator
from collections.abc import Iterable, Iterator, Sequence

from nova_vhpc.scheduler.planner.host_groups import (
    Field,
    Group,
    fill,
    fill_hosts,
)
from nova_vhpc.scheduler.planner.objective import Counts

MOST_GROUPS = 2
"""Switches, and racks, that are filled so."""


def roomy(
    field: Field,
    large: Sequence[Iterable[Group]],
    whole: Sequence[Group],
    nearest: Sequence[Group],
) -> Iterator[Counts]:
    """Placements on hosts of some room at least, each complete.

    :param large: groups that hold the job, by kind.
    :param whole: groups of all hosts.
    :param nearest: groups that members run in.
    """
    room = field.room
    members = field.objective.request.members
    everything = field.everything
    first = [
        *nearest[:MOST_GROUPS],
        *_roomiest(field, field.racks.values()),
        *_roomiest(field, field.switches.values()),
        *whole,
    ]
    for groups in large:
        first += _fewest_hosts(field, groups)
    first = list({id(group): group for group in first}.values())
    for least in _leasts(everything, members):
        for group in first:
            counts: Counts = {}
            left = fill(group, members, members, room, counts, least)
            if not left:
                yield counts
                continue
            if left == members or group in whole:
                continue
            rest = dict(counts)
            if not fill(everything, members, left, room, rest, least):
                yield rest
            if not fill_hosts(everything.order, members, left, room, counts):
                yield counts


def _leasts(hosts: Group, members: int) -> Iterator[int]:
    """Rooms to ask of a host, a third more each time, while all fit."""
    least = 1
    kept = -1
    while hosts.holds_on(hosts.hosts(least)) >= members:
        if kept != (kept := hosts.hosts(least)):
            yield least
        least += max(1, least // 3)


def _roomiest(field: Field, groups: Iterable[Group]) -> list[Group]:
    """Groups that hold most of a job which none of them holds."""
    found = heapq.nlargest(
        MOST_GROUPS, groups, key=operator.attrgetter('total')
    )
    members = field.objective.request.members
    return [group for group in found if group.total < members]


def _fewest_hosts(field: Field, groups: Iterable[Group]) -> list[Group]:
    """Groups that take the job on the fewest hosts, of most room."""
    room = field.room
    members = field.objective.request.members
    roomiest = field.everything.most

    def hosts(group: Group) -> tuple[int, int]:
        needed = group.needed(roomiest, members)
        return needed, -room[group.order[needed - 1]]

    return heapq.nsmallest(MOST_GROUPS, groups, key=hosts)
