# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Check what plugins and other hosts supply.

Samples come from probes, limits from the actuator, peers' statements from
other hosts, window schedules from slice policies. An impossible value is left
out and named, so that policies can rely on all others. Nothing here raises.

All else in a view is the agent's own. It is checked where it comes in: in the
parsing of extra specs, of libvirt's answers, of the journal and of the
metadata copy.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from nova_vhpc.control import model

MAX = 1e15
"""Greater than anything that is measured or set, in any unit."""

LIMITS_OF_LIBVIRT = model.ActuatorLimits(min_shares=1, max_shares=262_144)
"""The least and the greatest values that libvirt takes; no actuator can widen
these ranges."""

_NUMBERS = ('sync_latency_us', 'io_events', 'elapsed_us')
_PER_VCPU = ('vcpu_run_us', 'vcpu_wait_us', 'vcpu_runs')

_Vm = TypeVar('_Vm', model.VmView, model.OtherVm)


def check_view(
    view: model.HostView, diagnostics: list[model.Diagnostic]
) -> model.HostView:
    """Return the view without impossible values.

    :param diagnostics: what is wrong is added here.
    """
    vms = tuple(_with_possible_samples(view.vms, diagnostics))
    managed = {vm.uuid for vm in vms}
    others = tuple(
        _with_possible_samples(
            # While a VM is adopted it may be shown as both for one tick.
            (vm for vm in view.others if vm.uuid not in managed),
            diagnostics,
        )
    )
    peers: dict[str, model.PeerView] = {}
    statements: Mapping[str, object] = view.peers
    for cluster, peer in statements.items():
        if not isinstance(peer, model.PeerView):
            diagnostics.append(
                model.Diagnostic('', f'what peers say of cluster {cluster}')
            )
            continue
        if peer.min_slice_us is not None and not _is_slice(peer.min_slice_us):
            diagnostics.append(
                model.Diagnostic('', f'time slice of peers of {cluster}')
            )
            peer = dataclasses.replace(peer, min_slice_us=None)
        peers[cluster] = peer
    limits = _within_libvirts(view.limits)
    if limits != view.limits:
        diagnostics.append(
            model.Diagnostic('', 'actuator limits wider than libvirt takes')
        )
    return dataclasses.replace(
        view, vms=vms, others=others, peers=peers, limits=limits
    )


def window_fault(
    schedule: model.WindowSchedule,
    uuids: frozenset[str],
    limits: model.ActuatorLimits,
) -> str | None:
    """Return why a schedule must not be played; None if it may be.

    :param uuids: VMs whose shares may be set.
    """
    if not schedule.turns:
        return 'no turns'
    if not schedule.shares_after.keys() <= uuids:
        return 'names VMs that are not in the view or are in the I/O pool'
    named = list(schedule.shares_after)
    for turn in schedule.turns:
        if turn.width_us <= 0:
            return f'a turn of {turn.width_us} us'
        # Mostly in the same order; to compare lists is much faster.
        if (
            list(turn.shares) != named
            and turn.shares.keys() != schedule.shares_after.keys()
        ):
            return 'turns and shares_after name different VMs'
        if not turn.favoured | turn.cpus.keys() <= turn.shares.keys():
            return 'favours or places a VM without shares'
        taken = [cpu for placed in turn.cpus.values() for cpu in placed]
        if len(taken) != len(set(taken)):
            return 'gives a CPU to two vCPUs'
    idle = {model.IDLE_SHARES} if limits.can_idle else set()
    for shares, more in (
        (schedule.shares_after, set[int]()),
        *((turn.shares, idle) for turn in schedule.turns),
    ):
        # Many VMs have few different values.
        for value in set(shares.values()) - more:
            if not limits.min_shares <= value <= limits.max_shares:
                return f'shares of {value}'
    return None


def _with_possible_samples(
    vms: Iterable[_Vm], diagnostics: list[model.Diagnostic]
) -> Iterator[_Vm]:
    for vm in vms:
        sample = vm.sample
        # Written out, because this runs for each VM in each tick.
        if not (
            _is_number(sample.sync_latency_us)
            and _is_number(sample.io_events)
            and _is_number(sample.elapsed_us)
            and _are_numbers(sample.vcpu_run_us)
            and _are_numbers(sample.vcpu_wait_us)
            and _are_numbers(sample.vcpu_runs)
        ):
            wrong: dict[str, Any] = {
                name: None
                for names, is_possible in (
                    (_NUMBERS, _is_number),
                    (_PER_VCPU, _are_numbers),
                )
                for name in names
                if not is_possible(getattr(sample, name))
            }
            diagnostics.extend(
                model.Diagnostic(vm.uuid, f'{name} is impossible')
                for name in wrong
            )
            vm = dataclasses.replace(
                vm, sample=dataclasses.replace(sample, **wrong)
            )
        yield vm


def _is_number(value: Any) -> bool:
    """Return whether a value is None or a number from 0 to :data:`MAX`."""
    # A comparison with NaN is false.
    return value is None or (
        isinstance(value, int | float) and 0 <= value <= MAX
    )


def _are_numbers(values: Any) -> bool:
    """Return whether values are None or numbers from 0 to :data:`MAX`."""
    if not values:
        return values in (None, (), [])
    try:
        # sum() and min() run in C. NaN and infinity show in the sum.
        return sum(values, 0.0) <= MAX and min(values) >= 0
    except (TypeError, ArithmeticError):
        # Not numbers, or a whole number too great to be added up.
        return False


def _is_slice(value: object) -> bool:
    """Return whether a value is a time slice: libvirt takes whole numbers."""
    return type(value) is int and 0 < value <= MAX


@functools.lru_cache(maxsize=8)
def _within_libvirts(limits: model.ActuatorLimits) -> model.ActuatorLimits:
    """Return the limits, cut down to libvirt's.

    Limits that leave no value between them are kept: such an actuator says
    that it writes nothing. Equal limits give the same object, because the plan
    of each VM is kept while it has the same limits: see
    :class:`.vm_plan.VmPlanner`.
    """
    own = LIMITS_OF_LIBVIRT
    return dataclasses.replace(
        limits,
        min_period_us=max(limits.min_period_us, own.min_period_us),
        max_period_us=min(limits.max_period_us, own.max_period_us),
        min_quota_us=max(limits.min_quota_us, own.min_quota_us),
        max_quota_us=min(limits.max_quota_us, own.max_quota_us),
        # A number beyond what a float holds would fail any policy.
        min_shares=min(
            max(limits.min_shares, own.min_shares), own.max_shares + 1
        ),
        max_shares=min(limits.max_shares, own.max_shares),
    )
