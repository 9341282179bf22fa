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


"""Gangs beside VMs that have no windows: what is fair, and what gangs weigh.

A VM's weight is divided over its CPUs, and every member of a gang has one of
its own. So what a VM is to weigh depends on how many CPUs it has, and not on
how many its gang has.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc.control.gang import competitors, demand, entitlement


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What a gang may weigh on a CPU.

    :ivar hungry: what whoever asks for most weighs on a CPU.
    :ivar fair: so that those who never sleep get what is fair.
    :ivar beside_sleepers: so that nobody answers late.
    """

    hungry: float
    fair: float
    beside_sleepers: float

    def moves(self, held: 'Bounds') -> float:
        """By how much of a CPU their part, or that of sleepers, changes."""
        return max(
            abs(self._part_beside(was) - self._part_beside(now))
            for was, now in (
                (held.fair, self.fair),
                (held.beside_sleepers, self.beside_sleepers),
            )
        )

    def _part_beside(self, on_a_cpu: float) -> float:
        return self.hungry / (self.hungry + on_a_cpu)


def strong(
    view: model.HostView,
    sides: competitors.Competition,
    beside_sleepers: float,
    favour: float,
) -> dict[str, int]:
    """Others never sleep and have their pauses: outweigh them.

    :param beside_sleepers: no more on a CPU, so that nobody answers late.
    :param favour: as many times as the heaviest.
    :returns: by member, what it weighs in its window.
    """
    weights = sides.weights
    high = float(max(weights.values()) * favour)
    on_a_cpu = min(high, beside_sleepers)
    return {
        uuid: round(
            min(
                view.limits.max_shares,
                max(min(high, len(cpus) * on_a_cpu), weights[uuid]),
            )
        )
        for uuid, cpus in sides.places.items()
    }


def in_windows(
    sides: competitors.Competition, strong: Mapping[str, int]
) -> list[tuple[float, float]]:
    """What gangs weigh on a CPU in their windows, and in which part of them.

    :param strong: by member, what it weighs in its window.
    """
    found: dict[float, int] = {}
    for uuid, cpus in sides.places.items():
        # The more it weighs, the longer are its windows, on all its CPUs.
        on_a_cpu = strong[uuid] / len(cpus)
        found[on_a_cpu] = found.get(on_a_cpu, 0) + sides.weights[uuid]
    whole = sum(found.values())
    return [(on_a_cpu, weight / whole) for on_a_cpu, weight in found.items()]


def bounds(
    view: model.HostView,
    sides: competitors.Competition,
    demands: demand.DemandTracker,
    claim: entitlement.Entitlement,
) -> Bounds:
    """Few others never sleep: leave them what is fair, in every window."""
    dearest = claim.dearest
    return Bounds(
        dearest.weight,
        dearest.most,
        max(0.0, leaves_sleepers(view, sides, demands)),
    )


def yielding(
    view: model.HostView, sides: competitors.Competition, most: Bounds
) -> dict[str, int]:
    """By member, what it weighs in its window beside those few."""
    weights = sides.weights
    found: dict[str, int] = {}
    for uuid, cpus in sides.places.items():
        for_sleepers = max(len(cpus) * most.beside_sleepers, weights[uuid])
        wanted = round(min(len(cpus) * most.fair, for_sleepers))
        found[uuid] = max(
            view.limits.min_shares, min(view.limits.max_shares, wanted)
        )
    return found


def gentle(
    view: model.HostView, sides: competitors.Competition
) -> dict[str, int]:
    """Nobody but the gangs is hungry: no more than what they weigh.

    Together, the gangs weigh as much against all others as ever.

    :returns: by member, what it weighs in its window.
    """
    weights = sides.weights
    together: dict[int, float] = {}
    for vm in view.vms:
        cpus = sides.places.get(vm.uuid)
        if cpus:
            each = weights[vm.uuid] / len(cpus)
            for cpu in cpus:
                together[cpu] = together.get(cpu, 0.0) + each
    return {
        uuid: min(
            view.limits.max_shares, round(sum(together[cpu] for cpu in cpus))
        )
        for uuid, cpus in sides.places.items()
    }


def leaves_sleepers(
    view: model.HostView,
    sides: competitors.Competition,
    demands: demand.DemandTracker,
) -> float:
    """What a gang may weigh on a CPU so that nobody answers late.

    Those who sleep now and then must get three times what they use within
    the windows, too.
    """
    most = float(view.limits.max_shares)
    for uuid, weight in sides.weights.items():
        if uuid in sides.members or uuid in sides.hungry:
            continue
        used = demands.busiest(uuid)
        if used > 0:
            most = min(most, weight * (1 / (3 * used) - 1))
    return most
