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

"""The VMs outside of gangs that compete with gangs, and where they may run."""

import dataclasses
import operator
from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc.control.pinning import base as pinning_base
from nova_vhpc.control.pinning import usable_cpus


@dataclasses.dataclass(frozen=True, slots=True)
class Competition:
    """The gangs of a host, and the CPU-bound VMs that compete with them.

    :ivar members: uuids of the VMs of all gangs.
    :ivar cpu_bound: uuids of the CPU-bound VMs that are in no gang.
    :ivar gang_cpus: host CPUs of all gangs.
    :ivar member_cpus: host CPUs of each member, by uuid.
    :ivar mean_width: mean number of CPUs of a gang.
    :ivar weights: own ``cpu_shares`` of every VM of the host, by uuid.
    :ivar host_cpus: all CPUs of the host.
    :ivar pins: pins of the CPU-bound VMs that may not run on all CPUs, by
        uuid.
    """

    members: frozenset[str] = frozenset()
    cpu_bound: frozenset[str] = frozenset()
    gang_cpus: frozenset[int] = frozenset()
    member_cpus: Mapping[str, frozenset[int]] = dataclasses.field(
        default_factory=dict
    )
    mean_width: float = 0.0
    weights: Mapping[str, int] = dataclasses.field(default_factory=dict)
    host_cpus: frozenset[int] = frozenset()
    pins: Mapping[str, pinning_base.Pins] = dataclasses.field(
        default_factory=dict
    )

    def vcpu_allowed_cpus(self, uuid: str, vcpu: int) -> frozenset[int]:
        """Return the host CPUs on which a vCPU of a CPU-bound VM may run."""
        pins = self.pins.get(uuid)
        if pins is None:
            return self.host_cpus
        return pins[vcpu] & self.host_cpus

    def allowed_cpus(self, uuid: str) -> frozenset[int]:
        """Return the host CPUs on which any vCPU of such a VM may run."""
        pins = self.pins.get(uuid)
        if pins is None:
            return self.host_cpus
        return frozenset().union(*pins) & self.host_cpus

    def contested_cpus(self) -> frozenset[int]:
        """Return the CPUs of gangs on which CPU-bound VMs may run."""
        if len(self.pins) < len(self.cpu_bound):
            return self.gang_cpus
        return self.gang_cpus & frozenset().union(
            *map(self.allowed_cpus, self.pins)
        )


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
        # The other vCPUs may be bound to a NUMA node (see `bound_pins`).
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


def bound_pins(
    vm: model.VmView | model.OtherVm, host_cpus: frozenset[int]
) -> pinning_base.Pins | None:
    """Return the pins of a VM that may not run on all CPUs of the host.

    :returns: None if the VM may run everywhere, or if its pins are unknown.
    """
    if isinstance(vm, model.VmView):
        pins = vm.in_force.vcpu_pins or vm.original.vcpu_pins
    else:
        pins = vm.vcpu_pins
    if (
        not pins
        or len(pins) != vm.vcpus
        or all(host_cpus <= pin for pin in pins)
        or any(host_cpus.isdisjoint(pin) for pin in pins)
    ):
        return None
    return pins
