# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Weighted max-min fair division of CPUs, as Linux's fair scheduler does it.

Both pinning and gang scheduling ask what each VM would get from the kernel
alone: pinning to place VMs evenly, gang scheduling to leave other VMs that
much.
"""

import math
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from nova_vhpc.control import model

AllowedCpus = frozenset[int] | None
"""Host CPUs that a VM may run on; None for all (Linux: ``cpus_allowed``)."""

CapacityOf = Callable[[AllowedCpus], float]
"""Returns how many CPUs' worth of time a set of CPUs has to divide."""


class Demand(NamedTuple):
    """What one VM asks of the host's CPUs; equal demands get equal parts.

    :ivar weight: ``cpu_shares`` of the whole VM.
    :ivar cpus: CPUs that the VM would use if nothing else ran.
    :ivar allowed_cpus: host CPUs that the VM may run on; None for all.
    """

    weight: float
    cpus: float
    allowed_cpus: AllowedCpus = None


Demands = Mapping[Demand, int]
"""Number of VMs by demand. Few flavors make few different demands."""


def fair_cpus(demands: Demands, capacity: float) -> dict[Demand, float]:
    """Return how many CPUs each VM gets if all may run on all CPUs.

    Weighted max-min fairness: no VM gets more than it asks for, and what a VM
    leaves is divided among the others by weight.

    :param capacity: number of CPUs.
    :returns: CPUs per VM, by demand; demands with 0 CPUs or weight 0 are left
        out.
    """
    if len(demands) == 1:
        # The usual case if VMs are pinned to CPUs of their own.
        ((demand, vms),) = demands.items()
        if demand.cpus > 0 and demand.weight > 0:
            part = capacity * demand.weight / (demand.weight * vms)
            return {demand: min(demand.cpus, part)}
    unserved = {
        demand: vms
        for demand, vms in demands.items()
        if demand.cpus > 0 and demand.weight > 0
    }
    fair: dict[Demand, float] = {}
    capacity_left = capacity
    while unserved:
        weights = sum(demand.weight * vms for demand, vms in unserved.items())
        satisfied = [
            demand
            for demand in unserved
            if demand.cpus <= capacity_left * demand.weight / weights
        ]
        if not satisfied:
            for demand in unserved:
                fair[demand] = capacity_left * demand.weight / weights
            break
        for demand in satisfied:
            fair[demand] = demand.cpus
            capacity_left -= demand.cpus * unserved.pop(demand)
    return fair


def divide(demands: Demands, capacity_of: CapacityOf) -> dict[Demand, float]:
    """Return how many CPUs each VM gets if some may run on few CPUs only.

    The scarcest set of CPUs is divided first, among the VMs that may run
    nowhere else. The result is exact if any two sets of allowed CPUs are
    nested or disjoint, and an estimate otherwise.

    :param capacity_of: see :data:`CapacityOf`.
    :returns: CPUs per VM, by demand; demands with 0 CPUs or weight 0 are left
        out.
    """
    unserved: dict[AllowedCpus, dict[Demand, int]] = {None: {}}
    for demand, vms in demands.items():
        if demand.cpus > 0 and demand.weight > 0:
            unserved.setdefault(demand.allowed_cpus, {})[demand] = vms
    if len(unserved) == 1:
        return fair_cpus(unserved[None], capacity_of(None))
    subsets = _subsets(unserved)
    supersets: dict[AllowedCpus, list[AllowedCpus]] = {
        cpus: [] for cpus in unserved
    }
    for cpus, inner_sets in subsets.items():
        for inner in inner_sets:
            supersets[inner].append(cpus)
    capacity_left = {cpus: capacity_of(cpus) for cpus in unserved}
    fair: dict[Demand, float] = {}
    fair_within: dict[AllowedCpus, dict[Demand, float]] = {}
    levels: dict[AllowedCpus, float] = {}
    # Sets to work out again: at first all, then those around a served set.
    changed = dict.fromkeys(unserved)
    while True:
        for cpus in changed:
            competing = unserved[cpus]
            if len(subsets[cpus]) > 1:
                competing = {}
                for inner in subsets[cpus]:
                    competing |= unserved[inner]
            if competing:
                fair_within[cpus] = fair_cpus(
                    competing, max(0.0, capacity_left[cpus])
                )
                levels[cpus] = _level(fair_within[cpus])
            else:
                levels.pop(cpus, None)
        if not levels:
            return fair
        scarcest = min(levels, key=levels.__getitem__)
        served = fair_within[scarcest]
        fair |= served
        if scarcest is None:
            # All other VMs: each of them may run somewhere on the host.
            return fair
        changed = {}
        for inner in subsets[scarcest]:
            used = sum(
                served[demand] * vms for demand, vms in unserved[inner].items()
            )
            unserved[inner] = {}
            for cpus in supersets[inner]:
                capacity_left[cpus] -= used
                changed[cpus] = None


def _subsets(
    cpu_sets: Collection[AllowedCpus],
) -> dict[AllowedCpus, list[AllowedCpus]]:
    """Return, for each set of CPUs, the sets within it, itself included."""
    sizes = {cpus: len(cpus) for cpus in cpu_sets if cpus is not None}
    smallest = min(sizes.values())
    subsets: dict[AllowedCpus, list[AllowedCpus]] = {None: list(cpu_sets)}
    for cpus, size in sizes.items():
        # Usually all sets are of one size: then no pair is compared.
        subsets[cpus] = (
            [cpus]
            if size == smallest
            else [
                other
                for other, other_size in sizes.items()
                if other is cpus or (other_size < size and other <= cpus)
            ]
        )
    return subsets


def _level(fair: Mapping[Demand, float]) -> float:
    """Return the least ratio of CPUs to weight of VMs that lack CPUs.

    A VM lacks CPUs if it gets less than it asks for.

    The scarcer a set of CPUs, the lower its level; infinite if every VM gets
    all that it asks for.
    """
    # Mostly of one demand: a generator for min() would take longer.
    level = math.inf
    for demand, cpus in fair.items():
        if cpus < demand.cpus and cpus / demand.weight < level:
            level = cpus / demand.weight
    return level


def own_shares(shares: int | None, limits: model.ActuatorLimits) -> int:
    """Return a VM's own ``cpu_shares``, within the actuator's limits.

    :param shares: the VM's original shares; libvirt's default is taken if they
        are unknown (None) or not positive.
    """
    if shares is not None and shares > 0:
        return max(limits.min_shares, min(limits.max_shares, shares))
    # Only cgroup v2 takes a weight of 1.
    if limits.min_shares < 2:
        return model.DEFAULT_SHARES_V2
    return model.DEFAULT_SHARES_V1


def own_weights(view: model.HostView) -> dict[str, int]:
    """Return every VM's own ``cpu_shares``, by uuid, whatever is in force."""
    weights = {
        vm.uuid: own_shares(vm.original.shares, view.limits) for vm in view.vms
    }
    weights |= {
        vm.uuid: own_shares(vm.shares, view.limits) for vm in view.others
    }
    return weights
