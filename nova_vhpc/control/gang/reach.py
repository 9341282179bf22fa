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

"""Which CPUs VMs can be on that run beside gangs."""

import dataclasses
import functools
import operator

from nova_vhpc.control import model
from nova_vhpc.control.pinning import base as pinning_base
from nova_vhpc.control.pinning import usable_cpus


def near(
    view: model.HostView, usable: usable_cpus.UsableCpus
) -> model.HostView:
    """Without vCPUs on other CPUs, which compete with nobody here.

    A VM with dedicated CPUs may have asked for us, too. With
    ``hw:cpu_policy=mixed`` it has both kinds.

    :param usable: that was shown the view's CPUs.
    """
    found = []
    for vm in view.vms:
        cpus = usable.of(vm)
        if cpus:
            # Whom we pin anew is pinned within these CPUs.
            found.append(vm if vm.repin else _vcpus_on(vm, cpus))
    if len(found) == len(view.vms) and all(map(operator.is_, found, view.vms)):
        return view
    return dataclasses.replace(view, vms=tuple(found))


def _vcpus_on(vm: model.VmView, cpus: frozenset[int]) -> model.VmView:
    """A VM as if it had only the vCPUs that may run on these CPUs."""
    pins = vm.in_force.vcpu_pins or vm.original.vcpu_pins or ()
    here = [n for n, pin in enumerate(pins) if not pin.isdisjoint(cpus)]
    if len(pins) != vm.vcpus or len(here) in (0, vm.vcpus):
        return vm
    sample = vm.sample
    return dataclasses.replace(
        vm,
        vcpus=len(here),
        # Those that are left may be bound to a NUMA node (see `bound`).
        in_force=dataclasses.replace(
            vm.in_force, vcpu_pins=tuple(pins[n] for n in here)
        ),
        sample=dataclasses.replace(
            sample,
            vcpu_run_us=_of(sample.vcpu_run_us, here),
            vcpu_wait_us=_of(sample.vcpu_wait_us, here),
            vcpu_runs=None,
        ),
    )


@functools.lru_cache(maxsize=4_096)
def of_pins(pins: pinning_base.Pins, host: frozenset[int]) -> frozenset[int]:
    """The host's CPUs that a VM with such pins can be on.

    Pins change seldom, and are looked at each tick.
    """
    return frozenset().union(*pins) & host


def bound(
    vm: model.VmView | model.OtherVm, host: frozenset[int]
) -> pinning_base.Pins | None:
    """The pins of a VM that cannot be on all CPUs, if they are known."""
    if isinstance(vm, model.VmView):
        pins = vm.in_force.vcpu_pins or vm.original.vcpu_pins
    else:
        pins = vm.vcpu_pins
    if (
        not pins
        or len(pins) != vm.vcpus
        or all(host <= pin for pin in pins)
        or any(host.isdisjoint(pin) for pin in pins)
    ):
        return None
    return pins


def _of(
    values: tuple[float, ...] | None, places: list[int]
) -> tuple[float, ...] | None:
    if values is None:
        return None
    return tuple(values[place] for place in places if place < len(values))
