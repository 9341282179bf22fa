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


"""What a server group's policy leaves the search to choose from."""

import dataclasses

from nova_vhpc.scheduler.planner_field import (
    Field,
    fill,
    limited,
    make_field,
    rooms,
)
from nova_vhpc.scheduler.planner_model import PlanRequest, Policy
from nova_vhpc.scheduler.planner_objective import Counts, Objective
from nova_vhpc.scheduler.planner_patterns import one_host
from nova_vhpc.scheduler.planner_search import improve, search


def place(objective: Objective) -> Counts | None:
    """Place the request's members as its policy says, None if it cannot."""
    request = objective.request
    room = limited(objective, rooms(request, objective), limit_of(request))
    if request.policy == Policy.SOFT_ANTI_AFFINITY:
        return _apart(objective, room)
    field = make_field(objective, room)
    if request.policy == Policy.AFFINITY:
        return _together(field)
    return search(field, _starts(field))


def limit_of(request: PlanRequest) -> int | None:
    """Most members per host that the policy allows, None for any."""
    if request.policy == Policy.ANTI_AFFINITY:
        return request.max_server_per_host or 1
    return None


def _starts(field: Field) -> list[Field]:
    """The hosts as far as they are not over-committed, and as they are.

    Where over-commit is allowed, patterns fill a host beyond its CPUs before
    they take the next one, and moves do not find back: each undoes a part of
    it, while the slowest member stays as slow.
    """
    objective = field.objective
    request = objective.request
    if request.max_overcommit <= 1.0:
        return [field]
    strict = dataclasses.replace(request, max_overcommit=1.0)
    room = limited(objective, rooms(strict, objective), limit_of(request))
    if room == field.room or sum(room) < request.members:
        return [field]
    return [make_field(objective, room), field]


def _together(field: Field) -> Counts | None:
    """``affinity``: one host, or where Nova has put the first ones."""
    objective = field.objective
    members = objective.request.members
    if not objective.existing:
        return one_host(field, members)
    room = [0] * len(field.room)
    for index in objective.existing:
        room[index] = field.room[index]
    return search(make_field(objective, room))


def _apart(objective: Objective, room: list[int]) -> Counts | None:
    """``soft-anti-affinity``: as evenly as the hosts' room allows.

    All hosts are filled to the level below the one that holds the job;
    where the rest goes is chosen by cost.
    """
    members = objective.request.members
    level = _water_level(objective, room)
    if level is None:
        return None
    field = make_field(objective, limited(objective, room, level))
    below = limited(objective, room, level - 1)
    counts = {i: new for i, new in enumerate(below) if new}
    if not counts:
        return search(field)
    rest = members - sum(counts.values())
    top: Counts = {i: 0 for i, new in counts.items() if field.room[i] == new}
    fill(field.everything, 1, rest, field.room, top)
    for index, more in top.items():
        counts[index] = counts.get(index, 0) + more
    return improve(field, counts, objective.value(counts))[1]


def _water_level(objective: Objective, room: list[int]) -> int | None:
    """Least number of members per host at which all have room."""
    members = objective.request.members
    if sum(room) < members:
        return None
    low, high = 1, members + max(objective.existing.values(), default=0)
    while low < high:
        middle = (low + high) // 2
        if sum(limited(objective, room, middle)) >= members:
            high = middle
        else:
            low = middle + 1
    return low
