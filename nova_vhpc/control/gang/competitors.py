# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The VMs outside of gangs that compete with gangs, and where they may run."""

import dataclasses
import operator

from nova_vhpc.control import model
from nova_vhpc.control.pinning import usable_cpus


def without_foreign_vcpus(
    view: model.HostView, usable: usable_cpus.UsableCpus
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
