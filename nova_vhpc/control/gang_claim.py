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

"""What VMs that never sleep and have no windows are to get beside gangs.

Each of them is to have what the kernel's fair division would give it, and not
only all of them together: one vCPU can use no more than one CPU of a pause,
and so needs longer ones than many vCPUs that get as much.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping

from nova_vhpc.control import (
    gang_demand,
    gang_fairness,
    gang_sides,
    model,
)

MOST_OF_A_CPU = 0.92
"""Nobody is left more of a CPU that gangs are on: else a gang that needs it
would stand still. Rounded to steps it costs a tenth at most."""

UNEVEN = 1.08
"""The balancer leaves loads uneven, so of CPUs without gangs there must be so
many times what is fair; and who gets so little less asks gangs for nothing."""

Divided = Callable[[frozenset[int] | None], float]
"""How many CPUs of a reach there are to divide; None for all of the host."""


@dataclasses.dataclass(frozen=True, slots=True)
class Contender:
    """A VM that never sleeps and has no windows.

    :ivar vcpus: that never sleep.
    :ivar reach: CPUs that it can be on; None for all.
    :ivar cpus: that it would use.
    :ivar weight: of the whole VM.
    :ivar fair: CPUs that the kernel would give it.
    :ivar pause: CPUs that it has while no gang runs.
    :ivar crowd: what all who never sleep weigh on one of these.
    """

    uuid: str
    vcpus: int
    reach: frozenset[int] | None
    cpus: float
    weight: float
    fair: float
    pause: float
    crowd: float


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """What one of them needs of the CPUs that gangs are on.

    :ivar weight: on a CPU, of all who share it with this one.
    :ivar pauses: of the time, without gangs on all CPUs.
    :ivar beside: of a CPU that such as these share with gangs.
    """

    weight: float
    pauses: float
    beside: float

    def of(self, gangs: float) -> float:
        """Part of a CPU that they get where gangs weigh so much."""
        return self.weight / (self.weight + gangs)

    @property
    def most(self) -> float:
        """What a gang may weigh on a CPU, so that it gets that much."""
        return self.weight * (1 - self.beside) / self.beside


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """What VMs that never sleep are to get.

    :ivar contested: on how many of the gangs' CPUs they run all the time.
    :ivar needs: of those who need any.
    """

    contested: float = 0.0
    needs: tuple[Need, ...] = ()

    @property
    def part(self) -> float:
        """Of the time without gangs, so that each has what it needs."""
        return max((need.pauses for need in self.needs), default=0.0)

    def touches_few(self, sides: gang_sides.Sides) -> bool:
        """Whether most gangs have none of them on their CPUs.

        If so it is better to weigh little against them than to pause: what
        they get on one CPU is lost to the one gang there, a pause to all.
        """
        return self.contested * sides.width < len(sides.cpus)

    @property
    def dearest(self) -> Need:
        """Of whoever must be weighed least against."""
        return min(self.needs, key=lambda need: need.most)

    def pause(
        self, in_windows: Iterable[tuple[float, float]], in_pauses: float
    ) -> float:
        """Part of the time that is to be pauses.

        :param in_windows: what gangs weigh on a CPU in their windows, and in
            which part of them. Beside that, too, they get a little.
        :param in_pauses: what they weigh on one in pauses.
        """
        known = list(in_windows)
        longest = 0.0
        for need in self.needs:
            leak = sum(part * need.of(weight) for weight, part in known)
            gain = max(need.of(in_pauses) - leak, 1e-9)
            longest = max(longest, (need.pauses - leak) / gain)
        return longest


def fair_claim(
    view: model.HostView,
    sides: gang_sides.Sides,
    demands: gang_demand.DemandTracker,
) -> Claim:
    """What the kernel's fair division would give those that never sleep."""
    if not sides.hungry:
        return Claim()
    free = sides.host - sides.cpus

    def without_gangs(reach: frozenset[int] | None) -> float:
        return len(free if reach is None else free & reach)

    found = contenders(view, sides, demands)
    missing = needs(found, without_gangs)
    if not missing:
        return Claim()
    return Claim(contested(found, without_gangs), missing)


def contested(found: Collection[Contender], without_gangs: Divided) -> float:
    """On how many of the gangs' CPUs those who never sleep run.

    CPUs without gangs serve those who can be there. What counts are vCPUs that
    do not sleep, as their number changes seldom.
    """
    awake = [
        gang_fairness.Claim(
            one.uuid,
            1.0,
            one.vcpus if one.reach is None else min(one.vcpus, len(one.reach)),
            one.reach,
        )
        for one in found
    ]
    served = gang_fairness.divide(awake, without_gangs)
    return sum(one.cpus - served.get(one.uuid, 0.0) for one in awake)


def needs(
    found: Collection[Contender], without_gangs: Divided
) -> tuple[Need, ...]:
    """What each needs of the gangs' CPUs, if others have no gang at all.

    While gangs run the balancer moves all of them to those others, as nobody
    weighs much there, and they divide them by weight. So for a vCPU that is to
    have a whole CPU it is not enough to leave one: beside it are all the rest.
    """
    served: dict[str, float] = {}
    if without_gangs(None) > 0:
        served = gang_fairness.divide(
            (
                gang_fairness.Claim(one.uuid, one.weight, one.cpus, one.reach)
                for one in found
            ),
            lambda reach: without_gangs(reach) / UNEVEN,
        )
    missing: list[Need] = []
    for one in found:
        got = served.get(one.uuid, 0.0)
        lacks = one.fair - UNEVEN * got
        if lacks > 0:
            # Beside gangs are vCPUs that have none of the other CPUs: all of
            # it but those that have one to themselves.
            whole = min(math.floor(got), one.vcpus - 1)
            missing.append(
                Need(
                    one.crowd,
                    min(MOST_OF_A_CPU, lacks / max(lacks, one.pause - got)),
                    min(
                        MOST_OF_A_CPU,
                        (one.fair - whole) / max(lacks, one.pause - whole),
                    ),
                )
            )
    return tuple(missing)


def contenders(
    view: model.HostView,
    sides: gang_sides.Sides,
    demands: gang_demand.DemandTracker,
) -> list[Contender]:
    """All VMs that never sleep, and what is fair for them."""
    members, hungry, host = sides.members, sides.hungry, sides.host
    quotas = _quotas(view)
    claims = _claims(view, sides, demands, quotas)

    def every_cpu(reach: frozenset[int] | None) -> float:
        return len(host if reach is None else reach)

    fair = gang_fairness.divide(claims, every_cpu)
    # In a pause one runs until its quota is used up.
    unlimited = _claims(view, sides, demands, {}) if quotas else claims
    pause = gang_fairness.divide(
        (one for one in unlimited if one.uuid not in members), every_cpu
    )
    sleep = sum(got for uuid, got in pause.items() if uuid not in hungry)
    awake = 1 - sleep / len(host)
    return [
        Contender(
            one.uuid,
            demands.awake(one.uuid),
            one.reach,
            one.cpus,
            one.weight,
            fair[one.uuid],
            pause[one.uuid],
            awake * one.weight / pause[one.uuid],
        )
        for one in claims
        if one.uuid in hungry and pause.get(one.uuid)
    ]


def _claims(
    view: model.HostView,
    sides: gang_sides.Sides,
    demands: gang_demand.DemandTracker,
    quotas: Mapping[str, float],
) -> list[gang_fairness.Claim]:
    """All VMs of the host; members of gangs want a CPU for each vCPU."""
    members = sides.members
    wanted = {vm.uuid: float(vm.vcpus) for vm in view.vms}
    for uuid in sides.weights:
        if uuid not in members:
            wanted[uuid] = min(demands.cpus(uuid), quotas.get(uuid, math.inf))
    reaches = {uuid: sides.reach(uuid) for uuid in sides.pins}
    return [
        gang_fairness.Claim(uuid, weight, wanted[uuid], reaches.get(uuid))
        for uuid, weight in sides.weights.items()
    ]


def _quotas(view: model.HostView) -> dict[str, float]:
    """CPUs that VMs may use: what is held back is runnable, and never runs."""
    found = {
        vm.uuid: vm.vcpus * vm.share
        for vm in view.others
        if vm.share is not None
    }
    return found | {
        vm.uuid: vm.vcpus * vm.original.share
        for vm in view.vms
        if vm.original.share is not None
    }
