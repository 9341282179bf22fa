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
"""Settings of a VM that cannot be: no number, no set of CPUs.

They come from libvirt and from flavors by way of the agent, which should
show none. If it does, a policy that adds them up or sorts by them would fail
for all VMs, so such a VM is left alone.
"""

from typing import Any

from nova_vhpc.control import model

_KINDS: dict[str, type] = {
    'workload': str,
    'paradigm': str,
    'io_pool': str,
    'repin': bool,
}
_NUMBERS = ('period_us', 'quota_us', 'shares')

_HUGE = 2**64
"""More than libvirt can say; much more could not even be divided."""


def fault(vm: model.VmView, before: object = None) -> str | None:
    """Name of the setting that cannot be; None if all can.

    :param before: the VM when nothing was wrong with it. What is the same
        object still is not looked at again.
    """
    known = before if isinstance(before, model.VmView) else None
    if (
        known is not None
        and known.original is vm.original
        and known.in_force is vm.in_force
        and known.allowed_cpus is vm.allowed_cpus
        and known.repin is vm.repin
        and known.workload is vm.workload
        and known.paradigm is vm.paradigm
        and known.io_pool is vm.io_pool
    ):
        # Nearly always: what is new is what was measured.
        return None
    for name, kind in _KINDS.items():
        if not isinstance(getattr(vm, name), kind):
            return name
    if vm.allowed_cpus is not None and not _is_cpu_set(vm.allowed_cpus):
        return 'allowed_cpus'
    for which in ('original', 'in_force'):
        tune = getattr(vm, which)
        if known is not None and tune is getattr(known, which):
            # After a write the original still is, with all CPUs per vCPU.
            continue
        wrong = _tune_fault(tune)
        if wrong is not None:
            return f'{which} {wrong}'
    return None


def other_faults(vm: model.OtherVm) -> dict[str, Any]:
    """The settings of a VM that did not opt in which cannot be.

    :returns: "not known" for each of them; such a VM is never written, so
        what else is known of it is still of use.
    """
    faults: dict[str, Any] = {}
    if vm.shares is not None and not _is_whole(vm.shares):
        faults['shares'] = None
    share: object = vm.share
    if share is not None and not isinstance(share, int | float):
        faults['share'] = None
    if vm.vcpu_pins is not None and not _are_pins(vm.vcpu_pins):
        faults['vcpu_pins'] = None
    return faults


def _is_whole(value: object) -> bool:
    return type(value) is int and -_HUGE < value < _HUGE


def _tune_fault(tune: object) -> str | None:
    """Name of what cannot be in a cputune; None if all can."""
    if not isinstance(tune, model.CpuTune):
        return 'cputune'
    for name in _NUMBERS:
        value = getattr(tune, name)
        if value is not None and not _is_whole(value):
            return name
    if tune.vcpu_pins is not None and not _are_pins(tune.vcpu_pins):
        return 'vcpu_pins'
    return None


def _are_pins(pins: object) -> bool:
    return type(pins) is tuple and all(map(_is_cpu_set, pins))


def _is_cpu_set(cpus: object) -> bool:
    return type(cpus) is frozenset and all(type(cpu) is int for cpu in cpus)
