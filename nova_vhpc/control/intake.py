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

"""What comes in may be garbage: sort out what can be worked with.

Nothing here raises. Whatever is left out is named, with the reason.
"""

import dataclasses
import math

from nova_vhpc.control import model

MAX_VCPUS = 4_096
"""More than any hypervisor gives; a greater number is garbage."""

LIBVIRT_PERIOD_US = (1_000, 1_000_000)
LIBVIRT_QUOTA_US = (1_000, 17_592_186_044_415)
LIBVIRT_SHARES = (1, 262_144)
"""What libvirt takes at all; no actuator can widen it."""

_HUGE = 1e15


@dataclasses.dataclass(frozen=True, slots=True)
class Intake:
    """A view that the policies can rely on, and what was left out."""

    view: model.HostView
    ignored: tuple[model.Ignored, ...]


def check(view: model.HostView) -> Intake:
    """Drop VMs, CPUs and measurements that cannot be true."""
    ignored: list[model.Ignored] = []
    vms: list[model.VmView] = []
    seen: set[str] = set()
    for vm in view.vms:
        uuid = vm.uuid
        if not uuid or uuid in seen or not 1 <= vm.vcpus <= MAX_VCPUS:
            ignored.append(model.Ignored(uuid, _vm_fault(vm)))
            continue
        seen.add(uuid)
        if not _fits(vm.sample):
            sample, faults = _clean_sample(vm.sample)
            ignored.extend(model.Ignored(uuid, text) for text in faults)
            vm = dataclasses.replace(vm, sample=sample)
        if vm.time_slice_us is not None and vm.time_slice_us <= 0:
            ignored.append(
                model.Ignored(uuid, f'time slice {vm.time_slice_us} us')
            )
            vm = dataclasses.replace(vm, time_slice_us=None)
        vms.append(vm)
    cpus = _check_cpus(view.cpus, ignored)
    period_us = view.period_us
    if period_us <= 0:
        ignored.append(
            model.Ignored(
                '', f'control period {period_us} us; taken as 100 ms'
            )
        )
        period_us = 100_000
    return Intake(
        dataclasses.replace(
            view,
            vms=tuple(vms),
            cpus=cpus,
            period_us=period_us,
            limits=_check_limits(view.limits, ignored),
        ),
        tuple(ignored),
    )


def _check_limits(
    limits: model.ActuatorLimits, ignored: list[model.Ignored]
) -> model.ActuatorLimits:
    """The actuator's limits within libvirt's; the same object if all fit.

    Limits that leave nothing between them are kept: nothing can be written
    then, which is what such an actuator says.
    """
    within = dataclasses.replace(
        limits,
        min_period_us=max(limits.min_period_us, LIBVIRT_PERIOD_US[0]),
        max_period_us=min(limits.max_period_us, LIBVIRT_PERIOD_US[1]),
        min_quota_us=max(limits.min_quota_us, LIBVIRT_QUOTA_US[0]),
        max_quota_us=min(limits.max_quota_us, LIBVIRT_QUOTA_US[1]),
        min_shares=max(limits.min_shares, LIBVIRT_SHARES[0]),
        max_shares=min(limits.max_shares, LIBVIRT_SHARES[1]),
    )
    if within == limits:
        return limits
    ignored.append(
        model.Ignored('', 'actuator limits wider than libvirt takes')
    )
    return within


def _vm_fault(vm: model.VmView) -> str:
    if not vm.uuid:
        return 'has no uuid'
    if not 1 <= vm.vcpus <= MAX_VCPUS:
        return f'has {vm.vcpus} vCPUs'
    return 'shown twice; the first one counts'


def _check_cpus(
    cpus: tuple[model.Cpu, ...], ignored: list[model.Ignored]
) -> tuple[model.Cpu, ...]:
    """CPUs in order of their number, each once."""
    by_id: dict[int, model.Cpu] = {}
    for cpu in cpus:
        if cpu.id < 0:
            ignored.append(model.Ignored('', f'host CPU {cpu.id}'))
        elif cpu.id in by_id:
            ignored.append(model.Ignored('', f'host CPU {cpu.id} shown twice'))
        else:
            by_id[cpu.id] = cpu
    return tuple(by_id[number] for number in sorted(by_id))


def _clean_sample(sample: model.Sample) -> tuple[model.Sample, list[str]]:
    """The sample without impossible values, and what they were."""
    faults: list[str] = []
    changes: dict[str, None] = {}
    for name in ('sync_latency_us', 'io_events', 'elapsed_us'):
        value = getattr(sample, name)
        if value is not None and not _believable(value):
            faults.append(f'{name} = {value}')
            changes[name] = None
    for name in ('vcpu_run_us', 'vcpu_wait_us', 'vcpu_runs'):
        values = getattr(sample, name)
        if values is not None and not all(map(_believable, values)):
            faults.append(f'{name} has impossible values')
            changes[name] = None
    return dataclasses.replace(sample, **changes), faults


def _fits(sample: model.Sample) -> bool:
    """Whether nothing is wrong; quick, as nearly always nothing is."""
    for value in (sample.sync_latency_us, sample.io_events, sample.elapsed_us):
        # A comparison with NaN is false.
        if value is not None and not 0 <= value <= _HUGE:
            return False
    for values in (sample.vcpu_run_us, sample.vcpu_wait_us, sample.vcpu_runs):
        # In C where nothing is wrong; NaN and infinity show in the sum, and
        # are looked for one by one then.
        if (
            values
            and not (sum(values) <= _HUGE and min(values) >= 0)
            and not all(map(_believable, values))
        ):
            return False
    return True


def _believable(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= _HUGE
