# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""How many CPUs stock Linux would give each VM.

That is each VM's entitlement (in fair-share scheduling: its fair share, by
weight, of what it and its competitors demand): gang windows must leave it to
every VM, opted in or not.
"""

import collections
from collections.abc import Iterable, Mapping

from nova_vhpc.control import fair_share, model


def fair_cpus(
    vms: Iterable[model.VmView | model.OtherVm],
    weights: Mapping[str, int],
    host_cpus: frozenset[int],
    demanded_cpus: Mapping[str, float],
    outside_cpus: float,
) -> dict[str, float]:
    """Return the CPUs that each VM is entitled to, by uuid.

    :param vms: all VMs of the host.
    :param weights: own ``cpu_shares`` of each VM, by uuid.
    :param demanded_cpus: CPUs that each VM would use if nothing else ran.
    :param outside_cpus: CPUs that something else than VMs uses.
    """
    left = max(0.1, 1 - outside_cpus / len(host_cpus))
    demands = {
        vm.uuid: fair_share.Demand(
            weights[vm.uuid],
            _limited(vm, demanded_cpus[vm.uuid]),
            _allowed_cpus(vm, host_cpus),
        )
        for vm in vms
    }
    fair = fair_share.divide(
        collections.Counter(demands.values()),
        lambda cpus: left * len(host_cpus if cpus is None else cpus),
    )
    return {uuid: fair.get(one, 0.0) for uuid, one in demands.items()}


def _limited(vm: model.VmView | model.OtherVm, cpus: float) -> float:
    """Return a VM's demand, limited by its quota."""
    share = vm.original.share if isinstance(vm, model.VmView) else vm.share
    return cpus if share is None else min(cpus, vm.vcpus * share)


def _allowed_cpus(
    vm: model.VmView | model.OtherVm, host_cpus: frozenset[int]
) -> fair_share.AllowedCpus:
    """Return the host CPUs that a VM may use; None for all."""
    pins = (
        vm.original.vcpu_pins if isinstance(vm, model.VmView) else vm.vcpu_pins
    )
    if not pins:
        return None
    allowed = frozenset().union(*pins) & host_cpus
    return None if allowed in (host_cpus, frozenset()) else allowed
