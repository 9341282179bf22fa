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
import math
from collections.abc import Mapping

from nova_vhpc.control import gang_demand, gang_fairness, model
from nova_vhpc.control.pinning import base as pinning_base

MOST_OF_A_CPU = 0.92
"""Of the CPUs that they are on, few VMs that never sleep get no more: else a
gang that needs one of these would stand still. Rounded to steps it costs them
less than a tenth."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sides:
    """The gangs, and whom they must leave time to.

    :ivar members: VMs of all gangs.
    :ivar hungry: VMs that never sleep and have no windows.
    :ivar cpus: the CPUs of all gangs.
    :ivar places: the CPUs of each member.
    :ivar width: how many CPUs a gang has, on the mean.
    :ivar weights: of every VM of the host, as nobody has touched it.
    :ivar host: all CPUs.
    :ivar pins: of the hungry ones, as far as they are known.
    """

    members: frozenset[str] = frozenset()
    hungry: frozenset[str] = frozenset()
    cpus: frozenset[int] = frozenset()
    places: Mapping[str, frozenset[int]] = dataclasses.field(
        default_factory=dict
    )
    width: float = 0.0
    weights: Mapping[str, int] = dataclasses.field(default_factory=dict)
    host: frozenset[int] = frozenset()
    pins: Mapping[str, pinning_base.Pins] = dataclasses.field(
        default_factory=dict
    )

    def reach_of(self, uuid: str, vcpu: int) -> frozenset[int]:
        """CPUs of the host that a vCPU of a hungry VM can be on."""
        pins = self.pins.get(uuid)
        if pins is None:
            return self.host
        return pins[vcpu] & self.host

    def reach(self, uuid: str) -> frozenset[int]:
        """The same of all of its vCPUs."""
        pins = self.pins.get(uuid)
        if pins is None:
            return self.host
        return frozenset().union(*pins) & self.host

    def contested_cpus(self) -> frozenset[int]:
        """CPUs of gangs that hungry VMs can be on."""
        if len(self.pins) < len(self.hungry):
            return self.cpus
        return self.cpus & frozenset().union(*map(self.reach, self.pins))


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """What VMs that never sleep are to get.

    :ivar part: of the time, on each CPU that they compete for.
    :ivar contested: on how many of the gangs' CPUs they run all the time.
    :ivar weight: what they weigh on each of these.
    """

    part: float = 0.0
    contested: int = 0
    weight: float = 0.0

    def touches_few(self, sides: Sides) -> bool:
        """Whether most gangs have none of them on their CPUs.

        If so it is better to weigh little against them than to pause: what
        they get on one CPU is lost to the one gang there, a pause to all.
        """
        return self.contested * sides.width < len(sides.cpus)

    def part_beside(self, on_a_cpu: float) -> float:
        """What they get of a CPU on which a gang weighs so much."""
        return self.weight / (self.weight + on_a_cpu)

    def moves(self, held: 'Bounds', now: 'Bounds') -> float:
        """By how much of a CPU their part, or that of sleepers, changes."""
        return max(
            abs(self.part_beside(was) - self.part_beside(would_be))
            for was, would_be in (
                (held.fair, now.fair),
                (held.beside_sleepers, now.beside_sleepers),
            )
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What a gang may weigh on a CPU.

    :ivar fair: so that those who never sleep get what is fair.
    :ivar beside_sleepers: so that nobody answers late.
    """

    fair: float
    beside_sleepers: float


def fair_claim(
    view: model.HostView, sides: Sides, demands: gang_demand.DemandTracker
) -> Claim:
    """What the kernel's fair division would give those that never sleep."""
    members, hungry, cpus = sides.members, sides.hungry, len(sides.cpus)
    if not hungry:
        return Claim()
    weights = sides.weights
    fair = fair_cpus(view, sides, demands)
    ours = sum(got for uuid, got in fair.items() if uuid in members)
    theirs, demand, contested = _beyond_free(sides, demands, fair)
    used = min(float(len(sides.contested_cpus())), demand)
    if theirs <= 0 or used <= 0:
        return Claim()
    part = theirs / max(cpus, ours + theirs)
    if used < cpus:
        # One vCPU cannot use more than one of the CPUs of a pause.
        part = min(MOST_OF_A_CPU, part * cpus / used)
    wanted = sum(demands.cpus(uuid) for uuid in hungry)
    return Claim(
        part,
        contested,
        sum(weights[uuid] for uuid in hungry) / min(wanted, len(view.cpus)),
    )


def _beyond_free(
    sides: Sides, demands: gang_demand.DemandTracker, fair: Mapping[str, float]
) -> tuple[float, float, int]:
    """What those who never sleep need of the gangs' CPUs.

    CPUs without gangs serve them first, but for those who cannot be there.

    :returns: CPUs that are fair, CPUs that they would use, and, as this
        changes seldom, their vCPUs that do not sleep.
    """
    free = len(sides.host) - len(sides.cpus)
    theirs = demand = 0.0
    awake = 0
    stuck_theirs = stuck_demand = 0.0
    stuck = 0
    for uuid in sides.hungry:
        got, wanted = fair.get(uuid, 0.0), demands.cpus(uuid)
        never_sleep = demands.awake(uuid)
        if uuid in sides.pins:
            reach = sides.reach(uuid)
            if reach <= sides.cpus:
                stuck_theirs += got
                stuck_demand += min(wanted, len(reach))
                stuck += min(never_sleep, len(reach))
                continue
        theirs += got
        demand += wanted
        awake += never_sleep
    if not stuck:
        return theirs - free, demand - free, awake - free
    return (
        max(0.0, theirs - free) + stuck_theirs,
        max(0.0, demand - free) + stuck_demand,
        max(0, awake - free) + stuck,
    )


def fair_cpus(
    view: model.HostView, sides: Sides, demands: gang_demand.DemandTracker
) -> dict[str, float]:
    """CPUs by VM, if the kernel divided the host among all as they weigh.

    Members of gangs want a CPU for each vCPU.
    """
    members, weights = sides.members, sides.weights
    wanted = {
        uuid: demands.cpus(uuid) for uuid in weights if uuid not in members
    }
    wanted |= {
        vm.uuid: float(vm.vcpus) for vm in view.vms if vm.uuid in members
    }
    # What a quota holds back is runnable, too, and never runs.
    most = {
        vm.uuid: vm.vcpus * vm.share
        for vm in view.others
        if vm.share is not None
    }
    most |= {
        vm.uuid: vm.vcpus * vm.original.share
        for vm in view.vms
        if vm.uuid not in members and vm.original.share is not None
    }
    for uuid in sides.pins:
        reach = len(sides.reach(uuid))
        most[uuid] = min(most.get(uuid, math.inf), reach)
    return gang_fairness.fair_cpus(
        (
            gang_fairness.Claim(
                uuid, weight, min(wanted[uuid], most.get(uuid, math.inf))
            )
            for uuid, weight in weights.items()
        ),
        len(view.cpus),
    )


def leak(
    view: model.HostView,
    sides: Sides,
    claim: Claim,
    strong: Mapping[str, int],
) -> float:
    """Part of the gangs' windows that those who never sleep get."""
    weights = sides.weights
    got = whole = 0.0
    for uuid, cpus in sides.places.items():
        # The more it weighs, the longer are its windows, on all its CPUs.
        got += weights[uuid] * claim.part_beside(strong[uuid] / len(cpus))
        whole += weights[uuid]
    return got / whole


def strong(
    view: model.HostView,
    sides: Sides,
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


def bounds(
    view: model.HostView,
    sides: Sides,
    demands: gang_demand.DemandTracker,
    claim: Claim,
) -> Bounds:
    """Few others never sleep: leave them what is fair, in every window."""
    return Bounds(
        claim.weight * (1 - claim.part) / claim.part,
        max(0.0, leaves_sleepers(view, sides, demands)),
    )


def yielding(
    view: model.HostView, sides: Sides, most: Bounds
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


def gentle(view: model.HostView, sides: Sides) -> dict[str, int]:
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
    view: model.HostView, sides: Sides, demands: gang_demand.DemandTracker
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
