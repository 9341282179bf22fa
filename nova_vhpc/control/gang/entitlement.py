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

import collections
import dataclasses
import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from nova_vhpc.control import fair_share, model
from nova_vhpc.control.gang import competitors, demand

MOST_OF_A_CPU = 0.92
"""Nobody is left more of a CPU that gangs are on: else a gang that needs it
would stand still. Rounded to steps it costs a tenth at most."""

UNEVEN = 1.08
"""The balancer leaves loads uneven, so of CPUs without gangs there must be so
many times what is fair; and who gets so little less asks gangs for nothing."""

Divided = Callable[[frozenset[int] | None], float]
"""How many CPUs of a reach there are to divide; None for all of the host."""


class CpuBoundVm(NamedTuple):
    """A VM that never sleeps and has no windows.

    :ivar vcpus: that never sleep.
    :ivar claim: its weight, the CPUs that it would use, and where.
    :ivar fair: CPUs that the kernel would give it.
    :ivar pause: CPUs that it has while no gang runs.
    :ivar crowd: what all who never sleep weigh on one of these.
    """

    uuid: str
    vcpus: int
    claim: fair_share.Demand
    fair: float
    pause: float
    crowd: float


class Need(NamedTuple):
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
class Entitlement:
    """What VMs that never sleep are to get.

    :ivar contested: on how many of the gangs' CPUs they run all the time.
    :ivar needs: of those who need any.
    """

    contested: float = 0.0
    needs: tuple[Need, ...] = ()

    def touches_few(self, sides: competitors.Competition) -> bool:
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
    sides: competitors.Competition, found: Collection[CpuBoundVm]
) -> Entitlement:
    """What the kernel's fair division would give those that never sleep.

    :param found: all of them.
    """
    if not found:
        return Entitlement()
    free = sides.host - sides.cpus

    def without_gangs(reach: frozenset[int] | None) -> float:
        return len(free if reach is None else free & reach)

    missing = needs(found, without_gangs)
    if not missing:
        return Entitlement()
    return Entitlement(contested(found, without_gangs), missing)


def contested(found: Collection[CpuBoundVm], without_gangs: Divided) -> float:
    """On how many of the gangs' CPUs those who never sleep run.

    CPUs without gangs serve those who can be there. What counts are vCPUs that
    do not sleep, as their number changes seldom.
    """
    awake = collections.Counter(
        fair_share.Demand(
            1.0,
            (
                one.vcpus
                if one.claim.allowed_cpus is None
                else min(one.vcpus, len(one.claim.allowed_cpus))
            ),
            one.claim.allowed_cpus,
        )
        for one in found
    )
    served = fair_share.divide(awake, without_gangs)
    return sum(
        vms * (claim.cpus - served.get(claim, 0.0))
        for claim, vms in awake.items()
    )


def needs(
    found: Collection[CpuBoundVm], without_gangs: Divided
) -> tuple[Need, ...]:
    """What each needs of the gangs' CPUs, if others have no gang at all.

    While gangs run the balancer moves all of them to those others, as nobody
    weighs much there, and they divide them by weight. So for a vCPU that is to
    have a whole CPU it is not enough to leave one: beside it are all the rest.
    """
    served: dict[fair_share.Demand, float] = {}
    if without_gangs(None) > 0:
        served = fair_share.divide(
            collections.Counter(one.claim for one in found),
            lambda reach: without_gangs(reach) / UNEVEN,
        )
    missing: list[Need] = []
    for one in found:
        got = served.get(one.claim, 0.0)
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
    sides: competitors.Competition,
    demands: demand.DemandTracker,
) -> list[CpuBoundVm]:
    """All VMs that never sleep, and what is fair for them."""
    hungry, host = sides.hungry, sides.host
    if not hungry:
        return []

    def every_cpu(reach: frozenset[int] | None) -> float:
        return len(host if reach is None else reach)

    claims, in_pauses = _claims(view, sides, demands)
    among_all = collections.Counter(claims.values())
    # Members of gangs want a CPU for each vCPU; of most claims there are many.
    of_members = collections.Counter(
        (sides.weights[vm.uuid], vm.vcpus)
        for vm in view.vms
        if vm.uuid in sides.members
    )
    for (weight, vcpus), vms in of_members.items():
        among_all[fair_share.Demand(weight, vcpus)] += vms
    fair = fair_share.divide(among_all, every_cpu)
    pause = fair_share.divide(
        collections.Counter(in_pauses.values()), every_cpu
    )
    sleep = sum(
        pause.get(claim, 0.0)
        for uuid, claim in in_pauses.items()
        if uuid not in hungry
    )
    awake = 1 - sleep / len(host)
    found: list[CpuBoundVm] = []
    for uuid, claim in claims.items():
        cpus = pause.get(in_pauses[uuid])
        if uuid in hungry and cpus:
            found.append(
                CpuBoundVm(
                    uuid,
                    demands.awake(uuid),
                    claim,
                    fair.get(claim, 0.0),
                    cpus,
                    awake * claim.weight / cpus,
                )
            )
    return found


def _claims(
    view: model.HostView,
    sides: competitors.Competition,
    demands: demand.DemandTracker,
) -> tuple[dict[str, fair_share.Demand], dict[str, fair_share.Demand]]:
    """What VMs that are no members claim, by uuid.

    :returns: on the whole, and in a pause: there one runs until its quota is
        used up. What is held back is runnable, and never runs.
    """
    claims: dict[str, fair_share.Demand] = {}
    in_pauses: dict[str, fair_share.Demand] = {}
    reaches = {uuid: sides.reach(uuid) for uuid in sides.pins}
    shown: list[model.VmView | model.OtherVm] = [*view.vms, *view.others]
    for vm in shown:
        uuid = vm.uuid
        if uuid in sides.members:
            continue
        weight, cpus = sides.weights[uuid], demands.cpus(uuid)
        reach = reaches.get(uuid)
        claim = fair_share.Demand(weight, cpus, reach)
        claims[uuid] = in_pauses[uuid] = claim
        share = vm.original.share if isinstance(vm, model.VmView) else vm.share
        if share is not None and vm.vcpus * share < cpus:
            claims[uuid] = fair_share.Demand(weight, vm.vcpus * share, reach)
    return claims, in_pauses
