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

"""``cpu_shares`` of gangs in their windows, beside VMs that have no windows.

The kernel divides a VM's weight over the CPUs it runs on, and every member of
a gang has CPUs of its own. So the weight that a member needs depends on how
many CPUs the member has, not on how many the gang has. "Weight on a CPU" below
is a VM's ``cpu_shares`` divided by the number of its CPUs.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc.control.gang import competitors, demand, entitlement, gangs

NOTICEABLE = 0.25
"""Relative change of the wake-up headroom that is too small to matter:
intermittent VMs are left three times what they use."""


class WakeupHeadroom:
    """Follows how much gangs may weigh beside intermittent VMs.

    A smaller value is taken at once, a greater one only after it has been
    greater for long. The CPU use of intermittent VMs goes up and down, and the
    weight that they leave to gangs varies much more: it is next to nothing if
    the busiest vCPU uses a third of a CPU. Weights that followed every change
    would change the length of the windows all the time.

    :param patience: calls in a row that must bring a greater value.
    """

    def __init__(self, patience: int) -> None:
        """Start without a value."""
        self._patience = max(1, patience)
        self._held: float | None = None
        self._greater: list[float] = []

    def advance(self, weight: float) -> float:
        """Take in one value; return the one that counts from now on.

        :param weight: highest weight of a gang on a CPU with which all
            intermittent VMs would still be served in time.
        """
        held = self._held
        if held is None or weight < held - NOTICEABLE * abs(held):
            return self._hold(weight)
        if weight <= held + NOTICEABLE * abs(held):
            self._greater.clear()
            return held
        self._greater.append(weight)
        if len(self._greater) >= self._patience:
            return self._hold(min(self._greater))
        return held

    def _hold(self, weight: float) -> float:
        self._held = weight
        self._greater.clear()
        return weight


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds of a gang's weight on a CPU.

    :ivar cpu_bound: weight on a CPU of the CPU-bound VMs with the strictest
        entitlement.
    :ivar for_fairness: bound with which they get that entitlement.
    :ivar for_wakeups: bound with which intermittent VMs are served in time.
    """

    cpu_bound: float
    for_fairness: float
    for_wakeups: float

    def difference(self, other: 'Bounds') -> float:
        """Return how different two bounds are, as a part of a CPU, 0 to 1.

        That is the difference of what VMs of the weight :attr:`cpu_bound` get
        of a CPU beside a gang at the bound. A change of that weight alone is
        no difference.
        """
        return max(
            abs(self._part_beside(before) - self._part_beside(now))
            for before, now in (
                (other.for_fairness, self.for_fairness),
                (other.for_wakeups, self.for_wakeups),
            )
        )

    def _part_beside(self, gang_weight: float) -> float:
        return self.cpu_bound / (self.cpu_bound + gang_weight)


def dominant(
    view: model.HostView,
    competition: competitors.Competition,
    wakeup_headroom: float,
    favour: float,
) -> dict[str, int]:
    """Return weights with which gangs outweigh CPU-bound VMs in windows.

    For hosts on which CPU-bound VMs get their fair part in pauses.

    :param wakeup_headroom: highest weight on a CPU with which intermittent VMs
        are served in time.
    :param favour: how many times the weight of the host's heaviest VM a
        favoured VM is given.
    :returns: ``cpu_shares`` of each member in its window, by uuid.
    """
    weights = competition.weights
    highest = float(max(weights.values()) * favour)
    on_a_cpu = min(highest, wakeup_headroom)
    return {
        uuid: round(
            min(
                view.limits.max_shares,
                max(min(highest, len(cpus) * on_a_cpu), weights[uuid]),
            )
        )
        for uuid, cpus in competition.member_cpus.items()
    }


def weights_in_windows(
    competition: competitors.Competition, window_shares: Mapping[str, int]
) -> list[tuple[float, float]]:
    """Return the weights of gangs on a CPU in their windows.

    :param window_shares: ``cpu_shares`` of each member in its window, by uuid.
    :returns: pairs of a weight and the part of all windows that has it.
    """
    own_weights: dict[float, int] = {}
    for uuid, cpus in competition.member_cpus.items():
        # A member's part of the windows grows with its own weight.
        on_a_cpu = window_shares[uuid] / len(cpus)
        own_weights[on_a_cpu] = (
            own_weights.get(on_a_cpu, 0) + competition.weights[uuid]
        )
    total = sum(own_weights.values())
    return [
        (on_a_cpu, weight / total) for on_a_cpu, weight in own_weights.items()
    ]


def bounds(
    view: model.HostView,
    competition: competitors.Competition,
    demand_tracker: demand.DemandTracker,
    entitled: entitlement.Entitlement,
) -> Bounds:
    """Return the bounds with which few CPU-bound VMs need no pauses.

    They then get what is fair in every window.
    """
    strictest = entitled.strictest
    return Bounds(
        strictest.weight,
        strictest.max_gang_weight,
        max(0.0, wakeup_headroom(view, competition, demand_tracker)),
    )


def bounded(
    view: model.HostView, competition: competitors.Competition, limits: Bounds
) -> dict[str, int]:
    """Return weights within the bounds.

    :returns: ``cpu_shares`` of each member in its window, by uuid.
    """
    weights = competition.weights
    shares: dict[str, int] = {}
    for uuid, cpus in competition.member_cpus.items():
        for_wakeups = max(len(cpus) * limits.for_wakeups, weights[uuid])
        wanted = round(min(len(cpus) * limits.for_fairness, for_wakeups))
        shares[uuid] = max(
            view.limits.min_shares, min(view.limits.max_shares, wanted)
        )
    return shares


def neutral(
    gang_set: gangs.GangSet, limits: model.ActuatorLimits
) -> dict[str, int]:
    """Return weights that suit a host without CPU-bound VMs beside gangs.

    On each CPU the favoured gang weighs what all gangs there weigh together,
    so the weight of gangs against all other VMs is what it always is.

    :returns: ``cpu_shares`` of each member in its window, by uuid.
    """
    on_cpu: dict[int, float] = {}
    for uuid, weight in gang_set.member_weights.items():
        cpus = gang_set.member_cpus[uuid]
        each = weight / len(cpus)
        for cpu in cpus:
            on_cpu[cpu] = on_cpu.get(cpu, 0.0) + each
    return {
        uuid: min(limits.max_shares, round(sum(on_cpu[cpu] for cpu in cpus)))
        for uuid, cpus in gang_set.member_cpus.items()
    }


def wakeup_headroom(
    view: model.HostView,
    competition: competitors.Competition,
    demand_tracker: demand.DemandTracker,
) -> float:
    """Return how much a gang may weigh on a CPU beside intermittent VMs.

    An intermittent VM must get three times what it uses within windows, too,
    so that it is served in time when it wakes up.

    :returns: weight on a CPU; negative if a vCPU uses more than a third of a
        CPU.
    """
    headroom = float(view.limits.max_shares)
    for uuid, weight in competition.weights.items():
        if uuid in competition.members or uuid in competition.cpu_bound:
            continue
        used = demand_tracker.busiest_vcpu(uuid)
        if used > 0:
            headroom = min(headroom, weight * (1 / (3 * used) - 1))
    return headroom
