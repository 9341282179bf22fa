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

"""How many CPUs are kept free of gangs, for CPU-bound VMs.

A CPU-bound VM takes its fair part of every CPU that it runs on, from all gangs
with a vCPU there, and the siblings of that vCPU wait. One vCPU that is
entitled to nearly a whole CPU leaves next to nothing to gangs that span all
CPUs. On a host that is wider than its gangs it costs less to pin gangs
elsewhere, so that such VMs find CPUs without gangs.

For each number of such CPUs it is estimated what gangs keep if every CPU-bound
VM gets what it is entitled to (:mod:`nova_vhpc.control.gang.entitlement`), and
the best number is taken. Only CPUs on which CPU-bound VMs may run count, since
some are bound to a NUMA node.
"""

import collections
import dataclasses
import math
from collections.abc import Collection, Iterable

from nova_vhpc.control import fair_share, model
from nova_vhpc.control.gang import competitors, demand, entitlement
from nova_vhpc.control.pinning import usable_cpus

MIN_GAIN = 0.1
"""Part of the host's CPU time by which another number must be better than the
present one: VMs are pinned again for it, and it is only an estimate."""

SERVED_LOSS = 0.1
"""Part of the time that a gang loses on CPUs where CPU-bound VMs run although
these have all that they are entitled to on other CPUs; seen in simulations."""

STEPS = 8
"""Numbers that are tried between none and the most; on wide hosts it would
take too long to try all."""

MAX_AGREEMENT = 64
"""Evaluations in a row that must agree if the choice goes back and forth."""

MAX_EARLIER = 8
"""Earlier choices that are remembered, to detect a return to one of them."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReservationDemand:
    """What a choice of reserved CPUs depends on.

    :ivar host_cpus: CPUs of the host.
    :ivar cluster_vcpus: for each cluster that takes turns, or could, the
        number of vCPUs of each of its members on this host.
    :ivar cpu_bound_vms: CPU-bound VMs that the agent does not pin.
    :ivar candidate_cpus: CPUs that may be reserved, the first one first.
    :ivar gang_free_cpus: CPUs that have no gang now.
    """

    host_cpus: frozenset[int]
    cluster_vcpus: tuple[tuple[int, ...], ...] = ()
    cpu_bound_vms: tuple[entitlement.CpuBoundVm, ...] = ()
    candidate_cpus: tuple[int, ...] = ()
    gang_free_cpus: frozenset[int] = frozenset()

    def efficiency(
        self, reserved_count: int, present_count: int | None = None
    ) -> float:
        """Estimate the part of the host's CPU time in which gangs progress.

        CPU-bound VMs get what they are entitled to, by pauses of all gangs or
        by a small weight of gangs beside them; gangs have the rest.

        :param reserved_count: number of CPUs to reserve.
        :param present_count: number of CPUs reserved now. For this number
            :attr:`gang_free_cpus` is used; for any other one, and with None,
            the CPUs without gangs are estimated.
        """
        gang_capacity = len(self.host_cpus) - reserved_count
        if not self.cluster_vcpus or self._widest > gang_capacity:
            return 0.0
        widths = gang_widths(self.cluster_vcpus, gang_capacity)
        used = min(gang_capacity, sum(widths))
        reserved = frozenset(self.candidate_cpus[:reserved_count])

        def gang_free(allowed_cpus: fair_share.AllowedCpus) -> float:
            if reserved_count == present_count:
                return len(
                    self.gang_free_cpus
                    if allowed_cpus is None
                    else self.gang_free_cpus & allowed_cpus
                )
            if allowed_cpus is None:
                return len(self.host_cpus) - used
            # Gangs may be on any CPUs that are not reserved.
            return len(allowed_cpus & reserved) + max(
                0, len(allowed_cpus - reserved) - used
            )

        # Part of all gangs that have a CPU-bound VM on their CPUs.
        affected = entitlement.contested_count(
            self.cpu_bound_vms, gang_free
        ) * (sum(widths) / len(widths) / used)
        allowed = [one.demand.allowed_cpus for one in self.cpu_bound_vms]
        if None not in allowed:
            affected = min(
                affected,
                len(frozenset().union(*filter(None, allowed)) - reserved)
                / gang_capacity,
            )
        shortfalls = entitlement.shortfalls(self.cpu_bound_vms, gang_free)
        if not shortfalls:
            lost = SERVED_LOSS
        elif affected < 1:
            lost = max(one.cpu_part for one in shortfalls)
        else:
            lost = max(one.pause_part for one in shortfalls)
        lost *= min(1.0, affected)
        return (
            _mean_used(widths, gang_capacity)
            / len(self.host_cpus)
            * (1 - lost)
        )

    def best_count(self, present_count: int | None) -> int:
        """Return how many of the candidate CPUs should be reserved.

        :param present_count: number of CPUs reserved now; None if these are no
            candidates any more.
        """
        most = min(
            len(self.host_cpus) - self._widest, len(self.candidate_cpus)
        )
        if not self.cluster_vcpus or most <= 0:
            return 0
        kept = present_count or 0
        if kept > most:
            kept, present_count = 0, None
        tried = {most * step // STEPS for step in range(STEPS + 1)}
        tried |= {max(0, most - 1), max(0, most - 2), max(0, most - 3), kept}
        efficiency = {
            count: self.efficiency(count, present_count)
            for count in sorted(tried)
        }
        best = max(efficiency, key=efficiency.__getitem__)
        if efficiency[best] < efficiency[kept] + MIN_GAIN:
            return kept
        return best

    @property
    def _widest(self) -> int:
        """Least number of CPUs that must be left to gangs."""
        widest = max(map(max, self.cluster_vcpus), default=1)
        return min(widest, len(self.host_cpus))


class ReservedCpus:
    """Chooses, with hysteresis, the CPUs that gangs must not use.

    CPU-bound VMs outside of any gang run there. A new choice takes effect
    after ``_required_agreement`` evaluations in a row agree on it. That number
    starts at 2, doubles (to at most :data:`MAX_AGREEMENT`) whenever the choice
    returns to an earlier one, and is reset once a choice has lasted.

    :param periods: control periods between two evaluations.
    :ivar cpus: host CPUs reserved now.
    """

    def __init__(self, periods: int) -> None:
        self._periods = max(1, periods)
        self._calls = 0
        self._proposed: frozenset[int] = frozenset()
        self._agreement = 0
        self._required_agreement = 2
        # More than one: if each choice makes another one look best, they may
        # follow each other in a circle.
        self._earlier: collections.deque[frozenset[int]] = collections.deque(
            maxlen=MAX_EARLIER
        )
        self.cpus: frozenset[int] = frozenset()

    def is_due(self) -> bool:
        """Count a control period; return whether to evaluate in it."""
        self._calls += 1
        return self._calls % self._periods == 0

    def evaluate(self, demand: ReservationDemand) -> None:
        """Take one evaluation into account."""
        reserved_count: int | None = len(self.cpus)
        if not self.cpus.issubset(demand.candidate_cpus):
            # A reserved CPU is outside of what any CPU-bound VM may use.
            reserved_count = None
        best_count = demand.best_count(reserved_count)
        proposed = frozenset(demand.candidate_cpus[:best_count])
        if proposed == self._proposed:
            self._agreement += 1
        else:
            self._agreement = 1
        self._proposed = proposed
        if proposed == self.cpus:
            if self._agreement >= MAX_AGREEMENT:
                self._required_agreement = 2
                self._earlier.clear()
            return
        if self._agreement < self._required_agreement:
            return
        if proposed in self._earlier:
            self._required_agreement = min(
                MAX_AGREEMENT, 2 * self._required_agreement
            )
        self._earlier.append(self.cpus)
        self.cpus = proposed


def reservation_demand(
    view: model.HostView,
    competition: competitors.Competition,
    demand_tracker: demand.DemandTracker,
    cpu_bound_vms: Iterable[entitlement.CpuBoundVm],
    members: Iterable[model.VmView],
    pinned: Collection[str],
    reserved_cpus: frozenset[int] = frozenset(),
) -> ReservationDemand:
    """Return what the choice of reserved CPUs depends on now.

    Only CPU-bound VMs that the agent does not pin can use reserved CPUs. Of
    each set of allowed CPUs as many are candidates as the VMs bound to it are
    entitled to, and one more; at most one per CPU-bound vCPU.

    :param cpu_bound_vms: all CPU-bound VMs of the host.
    :param members: VMs that take turns, or could.
    :param pinned: uuids of the VMs that the agent pins.
    :param reserved_cpus: host CPUs reserved now; they come first.
    """
    if competition.cpu_bound.issubset(pinned):
        return ReservationDemand(competition.host_cpus)
    unpinned = [one for one in cpu_bound_vms if one.uuid not in pinned]
    # By set of allowed CPUs: the CPUs that each vCPU is entitled to.
    vcpu_parts: dict[frozenset[int], list[float]] = {}
    for one in unpinned:
        for vcpu in demand_tracker.cpu_bound_vcpus(one.uuid):
            allowed_cpus = competition.vcpu_allowed_cpus(one.uuid, vcpu)
            vcpu_parts.setdefault(allowed_cpus, []).append(
                one.fair_cpus / one.vcpus
            )
    ranked = [cpu.id for cpu in usable_cpus.last_first(view.cpus)]
    ranked.sort(key=lambda cpu: cpu not in reserved_cpus)
    # By candidate: whether it is the one beyond the entitlement.
    beyond: dict[int, bool] = {}
    for allowed_cpus in sorted(
        vcpu_parts, key=lambda cpus: (len(cpus), sorted(cpus))
    ):
        parts = vcpu_parts[allowed_cpus]
        # Rounded, because six times a third of a CPU are two CPUs.
        whole = math.floor(round(sum(parts), 6))
        free = [
            cpu for cpu in ranked if cpu in allowed_cpus and cpu not in beyond
        ]
        beyond |= {
            cpu: number >= whole
            for number, cpu in enumerate(free[: min(whole + 1, len(parts))])
        }
    return ReservationDemand(
        competition.host_cpus,
        cluster_vcpus(members),
        tuple(unpinned),
        tuple(
            sorted(
                beyond, key=lambda cpu: (cpu not in reserved_cpus, beyond[cpu])
            )
        ),
        competition.host_cpus - competition.gang_cpus,
    )


def cluster_vcpus(
    members: Iterable[model.VmView],
) -> tuple[tuple[int, ...], ...]:
    """Return the number of vCPUs of each member, cluster by cluster."""
    vcpus: dict[str, list[int]] = {}
    for vm in members:
        vcpus.setdefault(vm.cluster or vm.uuid, []).append(vm.vcpus)
    return tuple(map(tuple, vcpus.values()))


def gang_widths(
    clusters: Iterable[tuple[int, ...]], capacity: int
) -> list[int]:
    """Return the number of CPUs of each gang.

    The members of a cluster are one gang if they fit side by side.

    :param clusters: as :func:`cluster_vcpus` returns them.
    :param capacity: number of CPUs that gangs may use.
    """
    widths: list[int] = []
    for members in clusters:
        sizes = [min(size, capacity) for size in members]
        widths += [sum(sizes)] if sum(sizes) <= capacity else sizes
    return widths


def _mean_used(widths: Collection[int], capacity: int) -> float:
    """Estimate on how many CPUs gangs run at a time.

    The mean of two packings: turns of gangs that never cross each other's
    CPUs, and the same turns filled up with all gangs that are narrow enough
    for what a turn leaves. On simulated hosts the truth was half way.

    :param widths: number of CPUs of each gang.
    :param capacity: number of CPUs that gangs may use.
    """
    turns: list[list[int]] = []
    spare: list[int] = []
    for width in sorted(widths, reverse=True):
        for number, left in enumerate(spare):
            if width <= left:
                turns[number].append(width)
                spare[number] -= width
                break
        else:
            turns.append([width])
            spare.append(capacity - width)
    narrowest = min(widths)
    filled = 0
    for number, left in enumerate(spare):
        for other, turn in enumerate(turns):
            if left < narrowest:
                break
            for width in turn if other != number else ():
                if width <= left:
                    left -= width
        filled += capacity - left
    return (sum(widths) + filled) / 2 / len(turns)
