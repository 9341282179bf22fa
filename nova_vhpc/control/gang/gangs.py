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

"""Which VMs form gangs, and on which CPUs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nova_vhpc.control.gang import schedule
from nova_vhpc.control.pinning import base as pinning_base


class Candidate(NamedTuple):
    """A spinning, pinned VM: all that the choice of gangs depends on.

    :ivar weight: its own ``cpu_shares``.
    """

    uuid: str
    cluster: str | None
    vcpus: int
    weight: int
    pins: pinning_base.Pins


# Not compared field by field: a set that was made anew counts as another one.
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GangSet:
    """All gangs of a host.

    :ivar members: uuids of the VMs of all gangs.
    :ivar cpus: host CPUs of all gangs.
    :ivar member_cpus: host CPUs of each member, by uuid.
    :ivar member_weights: own ``cpu_shares`` of each member, by uuid.
    """

    gangs: list[schedule.Gang]
    members: frozenset[str]
    cpus: frozenset[int]
    member_cpus: Mapping[str, frozenset[int]]
    member_weights: Mapping[str, int]


def form(candidates: Sequence[Candidate]) -> GangSet:
    """Form gangs.

    The members of a cluster are one gang if they fit side by side, else each
    of them is a gang. A gang of one vCPU has no sibling to run together with:
    it is left out.
    """
    clusters: dict[str, list[Candidate]] = {}
    for one in candidates:
        clusters.setdefault(one.cluster or one.uuid, []).append(one)
    gangs: list[schedule.Gang] = []
    for key, members in clusters.items():
        cpu_sets = [_cpus(one.pins) for one in members]
        joined = frozenset().union(*cpu_sets)
        if sum(map(len, cpu_sets)) == len(joined):
            gangs.append(_gang(key, members, joined))
            continue
        gangs.extend(
            _gang(f'{key}/{one.uuid}', [one], cpus)
            for one, cpus in zip(members, cpu_sets, strict=True)
        )
    gangs = [gang for gang in gangs if len(gang.cpus) > 1]
    uuids = frozenset().union(*(gang.members for gang in gangs))
    by_uuid = {one.uuid: one for one in candidates if one.uuid in uuids}
    return GangSet(
        gangs,
        uuids,
        frozenset().union(*(gang.cpus for gang in gangs)),
        {uuid: _cpus(by_uuid[uuid].pins) for uuid in sorted(uuids)},
        {uuid: one.weight for uuid, one in by_uuid.items()},
    )


def _gang(
    key: str, members: list[Candidate], cpus: frozenset[int]
) -> schedule.Gang:
    weights = [one.weight / one.vcpus for one in members]
    return schedule.Gang(
        key=key,
        members=frozenset(one.uuid for one in members),
        cpus=cpus,
        weight=sum(weights) / len(weights),
    )


def _cpus(pins: pinning_base.Pins) -> frozenset[int]:
    return frozenset().union(*pins)
