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
from collections.abc import Mapping, Sequence
from typing import TypeVar

from nova_vhpc.control import model, settings

MAX_VCPUS = 4_096
"""More than any hypervisor gives; a greater number is garbage."""

MAX_CPU = 65_535
"""More than any kernel counts; a greater number of a host CPU is garbage."""

LIBVIRT_PERIOD_US = (1_000, 1_000_000)
LIBVIRT_QUOTA_US = (1_000, 17_592_186_044_415)
LIBVIRT_SHARES = (1, 262_144)
"""What libvirt takes at all; no actuator can widen it."""

_HUGE = 1e15

_LIMITS = tuple(
    field.name for field in dataclasses.fields(model.ActuatorLimits)
)

_Vm = TypeVar('_Vm', model.VmView, model.OtherVm)
_Item = TypeVar('_Item')


@dataclasses.dataclass(frozen=True, slots=True)
class Intake:
    """A view that the policies can rely on, and what was left out.

    :ivar sound: VMs with which nothing was wrong, by uuid.
    :ivar sound_cpus: the CPUs as they were shown; None if some were wrong.
    """

    view: model.HostView
    ignored: tuple[model.Diagnostic, ...]
    sound: Mapping[str, object]
    sound_cpus: tuple[model.Cpu, ...] | None


def check(view: model.HostView, before: Intake | None = None) -> Intake:
    """Drop VMs, CPUs and measurements that cannot be true.

    :param before: what came of the last view. What was sound then and is the
        same object still, as of a VM of which nothing new is known, is not
        looked at again.
    """
    ignored: list[model.Diagnostic] = []
    known: Mapping[str, object] = {} if before is None else before.sound
    seen: dict[str, object] = {}
    vms = _check_vms(view.vms, model.VmView, known, seen, ignored)
    for place, vm in enumerate(vms):
        if vm.cluster is not None and type(vm.cluster) is not str:
            ignored.append(
                model.Diagnostic(vm.uuid, f'cluster {_text(vm.cluster)}')
            )
            vms[place] = vm = dataclasses.replace(vm, cluster=None)
        slice_us = vm.time_slice_us
        if slice_us is not None and not _is_slice(slice_us):
            ignored.append(
                model.Diagnostic(vm.uuid, f'time slice {_text(slice_us)} us')
            )
            vms[place] = dataclasses.replace(vm, time_slice_us=None)
    others = _check_vms(view.others, model.OtherVm, known, seen, ignored)
    cpus = view.cpus
    sound_cpus: tuple[model.Cpu, ...] | None = cpus
    if before is not None and cpus and cpus is before.sound_cpus:
        cpus = before.view.cpus
    else:
        remarks = len(ignored)
        cpus = _check_cpus(view.cpus, ignored)
        if len(ignored) > remarks:
            sound_cpus = None
    period_us = view.period_us
    if not (_believable(period_us) and period_us):
        ignored.append(
            model.Diagnostic(
                '', f'control period {_text(period_us)} us; taken as 100 ms'
            )
        )
        period_us = 100_000
    late_us = view.window_late_us
    if not _believable(late_us):
        ignored.append(
            model.Diagnostic('', f'windows late by {_text(late_us)} us')
        )
        late_us = 0.0
    return Intake(
        dataclasses.replace(
            view,
            vms=tuple(vms),
            others=tuple(others),
            cpus=cpus,
            period_us=period_us,
            window_late_us=late_us,
            peers=_check_peers(view.peers, ignored),
            limits=_check_limits(view.limits, ignored),
        ),
        tuple(ignored),
        seen,
        sound_cpus,
    )


def _check_vms(
    vms: Sequence[_Vm],
    kind: type[_Vm],
    known: Mapping[str, object],
    seen: dict[str, object],
    ignored: list[model.Diagnostic],
) -> list[_Vm]:
    """VMs that can be, with what can be true of their samples.

    :param known: those that were sound in the last view, by uuid.
    :param seen: those of this view, so far; these are added.
    """
    kept: list[_Vm] = []
    for vm in _each(vms, kind, ignored):
        uuid = vm.uuid
        if (
            type(uuid) is not str
            or not uuid
            or uuid in seen
            or type(vm.vcpus) is not int
            or not 1 <= vm.vcpus <= MAX_VCPUS
        ):
            ignored.append(model.Diagnostic(_text(uuid), _vm_fault(vm, seen)))
            continue
        before = known.get(uuid)
        if before is not vm:
            if isinstance(vm, model.VmView):
                fault = settings.fault(vm, before)
                if fault is not None:
                    # Else one VM would fail the policies of all.
                    ignored.append(
                        model.Diagnostic(uuid, f'{fault} cannot be so')
                    )
                    continue
            else:
                unknown = settings.other_faults(vm)
                if unknown:
                    ignored.extend(
                        model.Diagnostic(uuid, f'{name} cannot be so')
                        for name in unknown
                    )
                    vm = dataclasses.replace(vm, **unknown)
            if not _fits(vm.sample):
                sample, faults = _clean_sample(vm.sample)
                ignored.extend(model.Diagnostic(uuid, text) for text in faults)
                vm = dataclasses.replace(vm, sample=sample)
        seen[uuid] = vm
        kept.append(vm)
    return kept


def _check_limits(
    limits: model.ActuatorLimits, ignored: list[model.Diagnostic]
) -> model.ActuatorLimits:
    """The actuator's limits within libvirt's; the same object if all fit.

    Limits that leave nothing between them are kept: nothing can be written
    then, which is what such an actuator says.
    """
    numbers = isinstance(limits, model.ActuatorLimits) and all(
        type(getattr(limits, name)) is int for name in _LIMITS
    )
    if not numbers:
        ignored.append(
            model.Diagnostic(
                '', "the actuator's limits; taken as libvirt's own"
            )
        )
        limits = model.ActuatorLimits()
    within = dataclasses.replace(
        limits,
        min_period_us=max(limits.min_period_us, LIBVIRT_PERIOD_US[0]),
        max_period_us=min(limits.max_period_us, LIBVIRT_PERIOD_US[1]),
        min_quota_us=max(limits.min_quota_us, LIBVIRT_QUOTA_US[0]),
        max_quota_us=min(limits.max_quota_us, LIBVIRT_QUOTA_US[1]),
        # Too great a number could not even be turned into a float.
        min_shares=min(
            max(limits.min_shares, LIBVIRT_SHARES[0]), LIBVIRT_SHARES[1] + 1
        ),
        max_shares=min(limits.max_shares, LIBVIRT_SHARES[1]),
    )
    if within == limits:
        return limits
    ignored.append(
        model.Diagnostic('', 'actuator limits wider than libvirt takes')
    )
    return within


def _check_peers(
    peers: object, ignored: list[model.Diagnostic]
) -> Mapping[str, model.PeerView]:
    """What other hosts say, as far as it makes sense."""
    if not isinstance(peers, Mapping):
        ignored.append(model.Diagnostic('', f'peers {_text(peers)}'))
        return {}
    kept: dict[str, model.PeerView] = {}
    for cluster, word in peers.items():
        if not isinstance(word, model.PeerView):
            ignored.append(
                model.Diagnostic(
                    '', f'what peers say of cluster {_text(cluster)}'
                )
            )
            continue
        slice_us = word.min_slice_us
        if slice_us is not None and not _is_slice(slice_us):
            ignored.append(
                model.Diagnostic(
                    '',
                    f'time slice {_text(slice_us)} us of cluster '
                    f'{_text(cluster)} on its peers',
                )
            )
            word = dataclasses.replace(word, min_slice_us=None)
        kept[cluster] = word
    return kept


def _each(
    items: object, kind: type[_Item], ignored: list[model.Diagnostic]
) -> Sequence[_Item]:
    """Those items that are of their kind."""
    if not isinstance(items, tuple | list):
        ignored.append(
            model.Diagnostic(
                '', f'{_text(items)} in place of {kind.__name__}s'
            )
        )
        return ()
    for item in items:
        if not isinstance(item, kind):
            break
    else:
        return items
    ignored.extend(
        model.Diagnostic('', f'{_text(item)} in place of a {kind.__name__}')
        for item in items
        if not isinstance(item, kind)
    )
    return [item for item in items if isinstance(item, kind)]


def _vm_fault(
    vm: model.VmView | model.OtherVm, seen: Mapping[str, object]
) -> str:
    if type(vm.uuid) is not str or not vm.uuid:
        return 'has no uuid'
    if vm.uuid in seen:
        return 'shown twice; the first one counts'
    return f'has {_text(vm.vcpus)} vCPUs'


def _check_cpus(
    cpus: tuple[model.Cpu, ...], ignored: list[model.Diagnostic]
) -> tuple[model.Cpu, ...]:
    """CPUs in order of their number, each once."""
    by_id: dict[int, model.Cpu] = {}
    for cpu in _each(cpus, model.Cpu, ignored):
        if type(cpu.id) is not int or not 0 <= cpu.id <= MAX_CPU:
            ignored.append(model.Diagnostic('', f'host CPU {_text(cpu.id)}'))
        elif not (type(cpu.socket) is type(cpu.llc) is type(cpu.core) is int):
            # They are sorted by.
            ignored.append(
                model.Diagnostic(
                    '', f'host CPU {cpu.id}: no socket, cache or core'
                )
            )
        elif cpu.id in by_id:
            ignored.append(
                model.Diagnostic('', f'host CPU {cpu.id} shown twice')
            )
        else:
            by_id[cpu.id] = cpu
    return tuple(by_id[number] for number in sorted(by_id))


def _clean_sample(sample: object) -> tuple[model.Sample, list[str]]:
    """The sample without impossible values, and what they were."""
    if not isinstance(sample, model.Sample):
        return model.Sample(), [f'{_text(sample)} in place of a Sample']
    faults: list[str] = []
    changes: dict[str, None] = {}
    for name in ('sync_latency_us', 'io_events', 'elapsed_us'):
        value = getattr(sample, name)
        if value is not None and not _believable(value):
            faults.append(f'{name} = {_text(value)}')
            changes[name] = None
    for name in ('vcpu_run_us', 'vcpu_wait_us', 'vcpu_runs'):
        values = getattr(sample, name)
        if values is not None and not (
            isinstance(values, tuple | list) and all(map(_believable, values))
        ):
            faults.append(f'{name} has impossible values')
            changes[name] = None
    return dataclasses.replace(sample, **changes), faults


def _fits(sample: model.Sample) -> bool:
    """Whether nothing is wrong; quick, as nearly always nothing is."""
    try:
        for value in (
            sample.sync_latency_us,
            sample.io_events,
            sample.elapsed_us,
        ):
            # A comparison with NaN is false; and what cannot be added to a
            # float, as a Decimal, would fail whoever does so.
            if value is not None and not 0 <= value + 0.0 <= _HUGE:
                return False
        for values in (
            sample.vcpu_run_us,
            sample.vcpu_wait_us,
            sample.vcpu_runs,
        ):
            # In C where nothing is wrong; NaN and infinity show in the sum,
            # and are looked for one by one then.
            if not values:
                if values not in (None, (), []):
                    return False
            elif not isinstance(values, tuple | list) or (
                not (sum(values, 0.0) <= _HUGE and min(values) >= 0)
                and not all(map(_believable, values))
            ):
                return False
    except (AttributeError, TypeError, ValueError, ArithmeticError):
        # No sample, no number, or too great a whole one to be added up.
        return False
    return True


def _is_slice(value: object) -> bool:
    """Whether it is a time slice that can be asked for."""
    # libvirt takes whole numbers only.
    return type(value) is int and 0 < value <= _HUGE


def _believable(value: object) -> bool:
    """Whether it is a number that can have been measured."""
    # A comparison with NaN is false.
    return isinstance(value, int | float) and 0 <= value <= _HUGE


def _text(value: object) -> str:
    """A value that may be anything, for a message."""
    try:
        return str(value)[:40]
    except ValueError:
        # A whole number of thousands of digits.
        return 'a huge number of'
