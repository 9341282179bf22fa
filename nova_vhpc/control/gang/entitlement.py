# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""How many CPUs stock Linux would give each VM, beside its competitors.

That is each VM's entitlement (in fair-share scheduling: its fair share, by
weight, of what it and its competitors demand): gang windows must leave it to
every VM, opted in or not.
"""

import collections
import dataclasses
import operator
from collections.abc import Iterable, Mapping

from nova_vhpc.control import fair_share, model
from nova_vhpc.control.pinning import cpu_loads


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


def without_foreign_vcpus(
    view: model.HostView, usable: cpu_loads.UsableCpus
) -> model.HostView:
    """Return the view without vCPUs that run on none of its CPUs.

    Such vCPUs compete with no VM of the view. A VM with dedicated CPUs may
    have opted in, too; with ``hw:cpu_policy=mixed`` it has vCPUs of both
    kinds.

    :param usable: knows the CPUs of the view.
    :returns: the same object if nothing has to be left out.
    """
    vms = []
    for vm in view.vms:
        cpus = usable.of(vm)
        if cpus:
            # A VM that may be pinned again is pinned within these CPUs.
            vms.append(vm if vm.repin else _with_vcpus_on(vm, cpus))
    if len(vms) == len(view.vms) and all(map(operator.is_, vms, view.vms)):
        return view
    return dataclasses.replace(view, vms=tuple(vms))


def _with_vcpus_on(vm: model.VmView, cpus: frozenset[int]) -> model.VmView:
    """Return a VM as if it had only the vCPUs that may run on some CPUs."""
    pins = vm.in_force.vcpu_pins or vm.original.vcpu_pins or ()
    kept = [n for n, pin in enumerate(pins) if not pin.isdisjoint(cpus)]
    if len(pins) != vm.vcpus or len(kept) in (0, vm.vcpus):
        return vm
    sample = vm.sample
    return dataclasses.replace(
        vm,
        vcpus=len(kept),
        # The other vCPUs may be bound to a NUMA node.
        in_force=dataclasses.replace(
            vm.in_force, vcpu_pins=tuple(pins[n] for n in kept)
        ),
        sample=dataclasses.replace(
            sample,
            vcpu_run_us=_select(sample.vcpu_run_us, kept),
            vcpu_wait_us=_select(sample.vcpu_wait_us, kept),
            vcpu_runs=None,
        ),
    )


def _select(
    values: tuple[float, ...] | None, vcpus: list[int]
) -> tuple[float, ...] | None:
    if values is None:
        return None
    return tuple(values[vcpu] for vcpu in vcpus if vcpu < len(values))
