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

"""Who takes turns in gang windows, and on which CPUs."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from nova_vhpc.control import model
from nova_vhpc.control.gang import schedule
from nova_vhpc.control.pinning import base as pinning_base

_Entry = tuple[str, str | None, int, int, pinning_base.Pins]
"""What a lineup depends on, of one VM."""


@dataclasses.dataclass(frozen=True, slots=True)
class GangSet:
    """Who takes turns.

    :ivar members: VMs of all gangs.
    :ivar cpus: of all gangs.
    :ivar places: the CPUs of each member.
    """

    gangs: list[schedule.Gang]
    members: frozenset[str]
    cpus: frozenset[int]
    places: Mapping[str, frozenset[int]]


class Lineups:
    """Remembers the last one: to make it anew each tick takes long."""

    def __init__(self) -> None:
        """Know of nobody."""
        self._known: tuple[list[_Entry], GangSet] | None = None

    def of(
        self,
        vms: Sequence[model.VmView],
        pins: Mapping[str, pinning_base.Pins],
        weights: Mapping[str, int],
    ) -> GangSet:
        """Who takes turns; the same object while they stay.

        :param vms: that spin.
        :param pins: of these, at least, by uuid.
        :param weights: likewise: what nobody has touched.
        """
        asked: list[_Entry] = [
            (vm.uuid, vm.cluster, vm.vcpus, weights[vm.uuid], pins[vm.uuid])
            for vm in vms
        ]
        if self._known is not None and self._known[0] == asked:
            return self._known[1]
        gangs = _gangs(vms, pins, weights)
        members = frozenset().union(*(gang.members for gang in gangs))
        lineup = GangSet(
            gangs,
            members,
            frozenset().union(*(gang.cpus for gang in gangs)),
            {uuid: _cpus(pins[uuid]) for uuid in sorted(members)},
        )
        self._known = asked, lineup
        return lineup


def _gangs(
    vms: Sequence[model.VmView],
    pins: Mapping[str, pinning_base.Pins],
    weights: Mapping[str, int],
) -> list[schedule.Gang]:
    """Members of a cluster together where they fit side by side."""
    clusters: dict[str, list[model.VmView]] = {}
    for vm in vms:
        clusters.setdefault(vm.cluster or vm.uuid, []).append(vm)
    gangs: list[schedule.Gang] = []
    for key, members in clusters.items():
        sets = [_cpus(pins[vm.uuid]) for vm in members]
        joined = frozenset().union(*sets)
        if sum(len(one) for one in sets) == len(joined):
            gangs.append(_gang(key, members, joined, weights))
            continue
        gangs.extend(
            _gang(f'{key}/{vm.uuid}', [vm], cpus, weights)
            for vm, cpus in zip(members, sets, strict=True)
        )
    # A gang of one vCPU has no sibling to run together with.
    return [gang for gang in gangs if len(gang.cpus) > 1]


def _gang(
    key: str,
    members: list[model.VmView],
    cpus: frozenset[int],
    own: Mapping[str, int],
) -> schedule.Gang:
    weights = [own[vm.uuid] / vm.vcpus for vm in members]
    return schedule.Gang(
        key=key,
        members=frozenset(vm.uuid for vm in members),
        cpus=cpus,
        weight=sum(weights) / len(weights),
    )


@functools.lru_cache(maxsize=4_096)
def _cpus(pins: pinning_base.Pins) -> frozenset[int]:
    """All of a VM's CPUs; pins change seldom, and are looked at each tick."""
    return frozenset().union(*pins)
