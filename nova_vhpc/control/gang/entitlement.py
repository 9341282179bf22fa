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

"""How much CPU time CPU-bound VMs outside of gangs are entitled to.

Each of them should get what the kernel's fair division would give it. It is
not enough that all of them together get their sum: one vCPU can use no more
than one CPU during a pause of the gangs, so it needs longer pauses than many
vCPUs that together are entitled to as much.
"""

import collections
import dataclasses
import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from nova_vhpc.control import fair_share, model
from nova_vhpc.control.gang import competitors, demand

MAX_PART = 0.92
"""Largest part of a CPU of a gang that is left to CPU-bound VMs: with more, a
gang that needs that CPU would stand still. Because pauses are rounded to steps
(``policy.STEPS``), this costs such a VM a tenth of its entitlement at most."""

UNEVEN = 1.08
"""Linux's load balancer leaves loads uneven. So CPUs without gangs must have
this many times what CPU-bound VMs are entitled to before they need none of the
gangs' CPUs."""


class CpuBoundVm(NamedTuple):
    """A CPU-bound VM that is in no gang.

    :ivar vcpus: number of its CPU-bound vCPUs.
    :ivar demand: its weight, the CPUs that it would use, and where.
    :ivar fair_cpus: CPUs that the kernel alone would give it.
    :ivar pause_cpus: CPUs that it has while no gang runs.
    :ivar crowd_weight: ``cpu_shares`` of all CPU-bound VMs together on one of
        the CPUs that it has while no gang runs.
    """

    uuid: str
    vcpus: int
    demand: fair_share.Demand
    fair_cpus: float
    pause_cpus: float
    crowd_weight: float


class Shortfall(NamedTuple):
    """What a CPU-bound VM needs of the CPUs that gangs run on.

    :ivar weight: ``cpu_shares`` on one CPU, of all CPU-bound VMs there.
    :ivar pause_part: part of the time for which all gangs would have to pause,
        0 to :data:`MAX_PART`.
    :ivar cpu_part: part of a CPU that vCPUs which share it with a gang would
        need if there were no pauses, 0 to :data:`MAX_PART`.
    """

    weight: float
    pause_part: float
    cpu_part: float

    def part_beside(self, gang_weight: float) -> float:
        """Return the part of a CPU that CPU-bound VMs get beside a gang.

        :param gang_weight: ``cpu_shares`` of the gang on that CPU.
        """
        return self.weight / (self.weight + gang_weight)

    @property
    def max_gang_weight(self) -> float:
        """``cpu_shares`` that a gang may have on a CPU without pauses."""
        return self.weight * (1 - self.cpu_part) / self.cpu_part


@dataclasses.dataclass(frozen=True, slots=True)
class Entitlement:
    """What all CPU-bound VMs of a host need of the gangs' CPUs.

    :ivar contested_count: number of the gangs' CPUs on which CPU-bound VMs run
        all the time.
    :ivar shortfalls: one for each VM that needs any of these CPUs.
    """

    contested_count: float = 0.0
    shortfalls: tuple[Shortfall, ...] = ()

    def meets_few_gangs(self, competition: competitors.Competition) -> bool:
        """Return whether most gangs have no CPU-bound VM on their CPUs.

        Then it is better to give gangs little weight than to pause: what
        CPU-bound VMs get on one CPU is lost to the one gang there, a pause
        is lost to all gangs.
        """
        return self.contested_count * competition.mean_width < len(
            competition.gang_cpus
        )

    @property
    def strictest(self) -> Shortfall:
        """The shortfall that allows gangs the smallest weight."""
        return min(self.shortfalls, key=lambda one: one.max_gang_weight)

    def pause_part(
        self,
        weights_in_windows: Iterable[tuple[float, float]],
        weight_in_pauses: float,
    ) -> float:
        """Return the part of the time for which gangs must pause.

        :param weights_in_windows: ``cpu_shares`` of gangs on a CPU in their
            windows, each with the part of all windows that has it. Beside
            gangs, too, CPU-bound VMs get a little.
        :param weight_in_pauses: ``cpu_shares`` of gangs on a CPU in pauses.
        """
        windows = list(weights_in_windows)
        longest = 0.0
        for one in self.shortfalls:
            in_windows = sum(
                part * one.part_beside(weight) for weight, part in windows
            )
            gain = max(one.part_beside(weight_in_pauses) - in_windows, 1e-9)
            longest = max(longest, (one.pause_part - in_windows) / gain)
        return longest


def entitlement(
    competition: competitors.Competition,
    cpu_bound_vms: Collection[CpuBoundVm],
) -> Entitlement:
    """Return what CPU-bound VMs need to have their fair part.

    :param cpu_bound_vms: all CPU-bound VMs of the host.
    """
    if not cpu_bound_vms:
        return Entitlement()
    gang_free_cpus = competition.host_cpus - competition.gang_cpus

    def gang_free(allowed_cpus: fair_share.AllowedCpus) -> float:
        return len(
            gang_free_cpus
            if allowed_cpus is None
            else gang_free_cpus & allowed_cpus
        )

    needed = shortfalls(cpu_bound_vms, gang_free)
    if not needed:
        return Entitlement()
    return Entitlement(contested_count(cpu_bound_vms, gang_free), needed)


def contested_count(
    cpu_bound_vms: Collection[CpuBoundVm],
    gang_free: fair_share.CapacityOf,
) -> float:
    """Return on how many of the gangs' CPUs CPU-bound VMs run.

    CPUs without gangs serve the VMs that may run there. CPU-bound vCPUs are
    counted, not the CPUs that they use, because their number seldom changes.

    :param gang_free: returns how many CPUs of a set have no gang.
    """
    vcpu_demands = collections.Counter(
        fair_share.Demand(
            1.0,
            (
                one.vcpus
                if one.demand.allowed_cpus is None
                else min(one.vcpus, len(one.demand.allowed_cpus))
            ),
            one.demand.allowed_cpus,
        )
        for one in cpu_bound_vms
    )
    served = fair_share.divide(vcpu_demands, gang_free)
    return sum(
        vms * (vcpu_demand.cpus - served.get(vcpu_demand, 0.0))
        for vcpu_demand, vms in vcpu_demands.items()
    )


def shortfalls(
    cpu_bound_vms: Collection[CpuBoundVm],
    gang_free: fair_share.CapacityOf,
) -> tuple[Shortfall, ...]:
    """Return what each VM needs of gangs' CPUs besides the CPUs without gangs.

    While gangs run, Linux's load balancer moves all CPU-bound vCPUs to the
    CPUs without gangs, because the load there is small, and they divide them
    by weight. So for a vCPU that is entitled to a whole CPU it is not enough
    to keep one CPU free of gangs: it shares that one with all the others.

    :param gang_free: returns how many CPUs of a set have no gang.
    """
    served: dict[fair_share.Demand, float] = {}
    if gang_free(None) > 0:
        served = fair_share.divide(
            collections.Counter(one.demand for one in cpu_bound_vms),
            lambda allowed_cpus: gang_free(allowed_cpus) / UNEVEN,
        )
    found: list[Shortfall] = []
    for one in cpu_bound_vms:
        gang_free_cpus = served.get(one.demand, 0.0)
        missing = one.fair_cpus - UNEVEN * gang_free_cpus
        if missing > 0:
            # The vCPUs beside gangs have none of the other CPUs. So they need
            # the whole entitlement, less that of vCPUs with a CPU each.
            whole = min(math.floor(gang_free_cpus), one.vcpus - 1)
            found.append(
                Shortfall(
                    one.crowd_weight,
                    min(
                        MAX_PART,
                        missing
                        / max(missing, one.pause_cpus - gang_free_cpus),
                    ),
                    min(
                        MAX_PART,
                        (one.fair_cpus - whole)
                        / max(missing, one.pause_cpus - whole),
                    ),
                )
            )
    return tuple(found)


def cpu_bound_vms(
    view: model.HostView,
    competition: competitors.Competition,
    demand_tracker: demand.DemandTracker,
) -> list[CpuBoundVm]:
    """Return all CPU-bound VMs with what the kernel alone would give them."""
    cpu_bound, host_cpus = competition.cpu_bound, competition.host_cpus
    if not cpu_bound:
        return []

    def all_of(allowed_cpus: fair_share.AllowedCpus) -> float:
        return len(host_cpus if allowed_cpus is None else allowed_cpus)

    demands, pause_demands = _demands(view, competition, demand_tracker)
    host_demands = collections.Counter(demands.values())
    # Members of gangs want a CPU for each vCPU; many are of the same flavor.
    member_counts = collections.Counter(
        (competition.weights[vm.uuid], vm.vcpus)
        for vm in view.vms
        if vm.uuid in competition.members
    )
    for (weight, vcpus), vms in member_counts.items():
        host_demands[fair_share.Demand(weight, vcpus)] += vms
    fair = fair_share.divide(host_demands, all_of)
    in_pauses = fair_share.divide(
        collections.Counter(pause_demands.values()), all_of
    )
    intermittent_cpus = sum(
        in_pauses.get(pause_demand, 0.0)
        for uuid, pause_demand in pause_demands.items()
        if uuid not in cpu_bound
    )
    cpu_bound_part = 1 - intermittent_cpus / len(host_cpus)
    found: list[CpuBoundVm] = []
    for uuid, vm_demand in demands.items():
        pause_cpus = in_pauses.get(pause_demands[uuid])
        if uuid in cpu_bound and pause_cpus:
            found.append(
                CpuBoundVm(
                    uuid,
                    len(demand_tracker.cpu_bound_vcpus(uuid)),
                    vm_demand,
                    fair.get(vm_demand, 0.0),
                    pause_cpus,
                    cpu_bound_part * vm_demand.weight / pause_cpus,
                )
            )
    return found


def _demands(
    view: model.HostView,
    competition: competitors.Competition,
    demand_tracker: demand.DemandTracker,
) -> tuple[dict[str, fair_share.Demand], dict[str, fair_share.Demand]]:
    """Return the demand of each VM that is in no gang, by uuid.

    :returns: in the long run, and during a pause. In a pause a VM with a quota
        runs until the quota is used up; in the long run the quota limits it.
        A vCPU that its quota holds back counts as runnable in schedstat.
    """
    demands: dict[str, fair_share.Demand] = {}
    pause_demands: dict[str, fair_share.Demand] = {}
    bound = {uuid: competition.allowed_cpus(uuid) for uuid in competition.pins}
    vms: list[model.VmView | model.OtherVm] = [*view.vms, *view.others]
    for vm in vms:
        uuid = vm.uuid
        if uuid in competition.members:
            continue
        weight, cpus = competition.weights[uuid], demand_tracker.cpus(uuid)
        allowed_cpus = bound.get(uuid)
        demands[uuid] = pause_demands[uuid] = fair_share.Demand(
            weight, cpus, allowed_cpus
        )
        share = vm.original.share if isinstance(vm, model.VmView) else vm.share
        if share is not None and vm.vcpus * share < cpus:
            demands[uuid] = fair_share.Demand(
                weight, vm.vcpus * share, allowed_cpus
            )
    return demands, pause_demands
