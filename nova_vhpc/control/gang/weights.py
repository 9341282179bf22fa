# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""``cpu_shares`` of gangs in their windows, beside VMs that have no windows.

The kernel divides a VM's weight over the CPUs it runs on, and every member of
a gang has CPUs of its own. So the weight that a member needs depends on how
many CPUs the member has, not on how many the gang has. "Weight on a CPU" below
is a VM's ``cpu_shares`` divided by the number of its CPUs.
"""

from collections.abc import Iterable, Mapping

from nova_vhpc.control import model
from nova_vhpc.control.gang import demand, gangs

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


def dominant(
    members: Iterable[gangs.Member],
    own_weights: Mapping[str, int],
    headroom: float,
    favour: float,
    limits: model.ActuatorLimits,
) -> dict[str, int]:
    """Return weights with which gangs outweigh CPU-bound VMs in windows.

    :param own_weights: own ``cpu_shares`` of every VM of the host, by uuid.
    :param headroom: highest weight on a CPU with which intermittent VMs are
        served in time.
    :param favour: how many times the weight of the host's heaviest VM a
        favoured VM is given.
    :returns: ``cpu_shares`` of each member in its window, by uuid.
    """
    highest = float(max(own_weights.values()) * favour)
    on_a_cpu = min(highest, headroom)
    return {
        one.uuid: round(
            min(
                limits.max_shares,
                max(min(highest, one.vcpus * on_a_cpu), own_weights[one.uuid]),
            )
        )
        for one in members
    }


def neutral(
    members: Iterable[gangs.Member],
    own_weights: Mapping[str, int],
    cpus: int,
    limits: model.ActuatorLimits,
) -> dict[str, int]:
    """Return weights that suit a host without CPU-bound VMs beside gangs.

    On each CPU the favoured gang weighs what all gangs there weigh together,
    so a VM that wakes up is served as without windows.

    :param cpus: number of CPUs.
    :returns: ``cpu_shares`` of each member in its window, by uuid.
    """
    members = list(members)
    on_a_cpu = sum(own_weights[one.uuid] for one in members) / cpus
    return {
        one.uuid: min(
            limits.max_shares,
            max(own_weights[one.uuid], round(one.vcpus * on_a_cpu)),
        )
        for one in members
    }


def wakeup_headroom(
    intermittent: Iterable[str],
    own_weights: Mapping[str, int],
    demand_tracker: demand.DemandTracker,
    limits: model.ActuatorLimits,
) -> float:
    """Return how much a gang may weigh on a CPU beside intermittent VMs.

    An intermittent VM must get three times what it uses within windows, too,
    so that it is served in time when it wakes up.

    :param intermittent: uuids of the VMs that are neither gangs nor CPU-bound.
    :returns: weight on a CPU; negative if a vCPU uses more than a third of a
        CPU.
    """
    headroom = float(limits.max_shares)
    for uuid in intermittent:
        used = demand_tracker.busiest_vcpu(uuid)
        if used > 0:
            headroom = min(headroom, own_weights[uuid] * (1 / (3 * used) - 1))
    return headroom
