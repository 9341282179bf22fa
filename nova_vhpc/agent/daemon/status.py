# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The status document: what the agent knows and does.

All values can be encoded as JSON; units are in the names. The document is
served by the status socket and by the control call ``status``, and is the
source of the metrics.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nova_vhpc.agent import tick_result
from nova_vhpc.agent.actuators import window_player
from nova_vhpc.agent.daemon import tick
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.lifecycle import manager
from nova_vhpc.agent.probes import sampler
from nova_vhpc.control import model
from nova_vhpc.control.gang import waiting as gang_waiting
from nova_vhpc.linux import cpus

VERSION = 1


def agent_status(
    host_name: str,
    started: float,
    tick_loop: tick.TickLoop,
    guest_manager: manager.GuestManager,
    sampler: sampler.Sampler,
    journal: store.Journal,
    journal_problem: str,
) -> dict[str, Any]:
    """Return the status of the agent as a whole.

    :param started: when the agent was started, in seconds since 1970.
    :param journal_problem: why no record can be written; empty if one can.
    """
    last = tick_loop.last
    return {
        'host': host_name,
        'pid': os.getpid(),
        'started': started,
        'period_us': tick_loop.period_us,
        'ticks': tick_loop.ticks,
        'tick_us': None if last is None else last.took_us,
        'overruns': tick_loop.overruns,
        'tick_failures': tick_loop.failures,
        'tick_problem': tick_loop.problem,
        'libvirt_up': guest_manager.connection.up,
        'reconnects': guest_manager.connection.reconnects,
        'paused': guest_manager.paused,
        'dry_run': guest_manager.dry_run,
        'foreign_changes': guest_manager.external_changes,
        'handed_back': guest_manager.handed_back,
        'late_calls': guest_manager.late_calls,
        'cpus': cpus.format_cpu_set(cpu.id for cpu in tick_loop.cpus()),
        'probes': sampler.names(),
        'unusable_probes': dict(sampler.unusable),
        'effective_min_slice_us': tick_loop.limits().effective_min_slice_us,
        'journal_records': len(journal.uuids()),
        'journal_bytes': journal.size_bytes(),
        'journal_problem': journal_problem,
        'overcommit': None if last is None else _overcommit(last.view),
        'refused': dict(guest_manager.refused),
        'remarks': []
        if last is None
        else [
            f'{diagnostic.uuid}: {diagnostic.reason}'
            if diagnostic.uuid
            else diagnostic.reason
            for diagnostic in last.plan.ignored
            if diagnostic.uuid not in guest_manager.guests
        ],
    }


def guest_status(
    guest: Guest,
    view: model.VmView | None,
    plan: model.VmPlan | None,
    period_us: int = 0,
    diagnostics: Sequence[str] = (),
    received: float | None = None,
    waiting: model.Waiting | None = None,
    windows_part: float = 0.0,
) -> dict[str, Any]:
    """Return the status of one guest.

    :param view: the guest in the last tick; None before it.
    :param plan: the plan that the last tick made for the guest.
    :param period_us: control period to which ``run_us`` refers, in
        microseconds.
    :param diagnostics: what the controller could not use or do in the last
        tick, and why.
    :param received: CPU time received, as a part of what stock Linux would
        give; None if that is not measured.
    :param waiting: how its program waits; None if that is not known.
    :param windows_part: part of the time that gang windows favour it.
    """
    target = guest.reader.target
    sample = view.sample if view is not None else model.Sample()
    return {
        'uuid': guest.uuid,
        'name': guest.name,
        'server_name': guest.info.server_name,
        'workload': guest.info.specs.workload,
        'cluster': view.cluster if view is not None else None,
        'vcpus': guest.info.vcpus,
        'pid': target.pid if target is not None else guest.identity.pid,
        'control_group': target is not None and bool(target.vcpu_groups),
        'unmeasured': guest.reader.unmeasured(),
        'phase': plan.phase.value if plan is not None else None,
        'slice_us': plan.slice_us if plan is not None else None,
        'reason': plan.reason if plan is not None else '',
        'remarks': list(diagnostics),
        **_tune(guest.in_force),
        'planned': None if plan is None else _tune(plan.tune),
        'original': _tune(guest.original_tune),
        'sync_latency_us': sample.sync_latency_us,
        'io_events': sample.io_events,
        'run_us': guest.reader.run_us(period_us),
        'received': received,
        'waiting': _waiting(waiting, windows_part),
        **_counted(guest),
        'window_s': guest.window_s,
        'predicted_events': plan.predicted_events if plan else None,
        'threshold_events': plan.threshold_events if plan else None,
        'repin': guest.repin,
        'external': bool(guest.external),
        'released': sorted(guest.external),
        'hands_off': guest.hands_off,
        'journalled': guest.journalled,
        'writes': guest.writes,
        'moves': guest.moves,
        'failures': guest.failures.count,
        'quarantined': guest.failures.quarantined,
        'problem': guest.failures.problem,
    }


def _waiting(
    waiting: model.Waiting | None, windows_part: float
) -> dict[str, Any] | None:
    if waiting is None:
        return None
    finding, remedy = gang_waiting.describe(waiting, windows_part)
    return {
        'state': waiting.state.value,
        'busy_vcpus': waiting.busy_vcpus,
        'run_part': waiting.run_part,
        'peers_wait': waiting.peers_wait,
        'finding': finding,
        'remedy': remedy,
    }


def _counted(guest: Guest) -> dict[str, float | None]:
    """Return CPU time and waiting time of a guest since its start."""
    counters = guest.reader.counters().values()
    if not counters:
        return {'run_s': None, 'delay_s': None}
    return {
        'run_s': sum(one.run_ns for one in counters) / 1e9,
        'delay_s': sum(one.wait_ns for one in counters) / 1e9,
    }


def _overcommit(view: model.HostView) -> float | None:
    """Return the vCPUs of all VMs per CPU; None without CPUs."""
    vcpus = sum(vm.vcpus for vm in view.vms)
    vcpus += sum(vm.vcpus for vm in view.others)
    return vcpus / len(view.cpus) if view.cpus else None


def _tune(tune: model.CpuTune) -> dict[str, Any]:
    return {
        'period_us': tune.period_us,
        'quota_us': tune.quota_us,
        'shares': tune.shares,
        'vcpu_pins': None
        if tune.vcpu_pins is None
        else [cpus.format_cpu_set(pin) for pin in tune.vcpu_pins],
    }


def guest_statuses(
    guests: Mapping[str, Guest],
    last: tick_result.TickResult | None,
    windows_playing: bool = False,
) -> list[dict[str, Any]]:
    """Return the status of every guest, sorted by name.

    :param last: result of the last tick; None before it.
    :param windows_playing: whether its gang windows are played.
    """
    views = {} if last is None else {vm.uuid: vm for vm in last.view.vms}
    plans = {} if last is None else last.plan.vms
    period_us = 0 if last is None else last.view.period_us
    shares = None if last is None else last.plan.cpu_shares
    received = {} if shares is None else shares.received
    waiting = {} if last is None else last.plan.waiting
    windows = last.plan.windows if last and windows_playing else None
    diagnostics: dict[str, list[str]] = {}
    for diagnostic in () if last is None else last.plan.ignored:
        diagnostics.setdefault(diagnostic.uuid, []).append(diagnostic.reason)
    if last is not None:
        for uuid, remark in _sibling_remarks(last.view):
            diagnostics.setdefault(uuid, []).append(remark)
    return sorted(
        (
            guest_status(
                guest,
                views.get(uuid),
                plans.get(uuid),
                period_us,
                diagnostics.get(uuid, ()),
                received.get(uuid),
                waiting.get(uuid),
                0.0 if windows is None else windows.part_of(uuid),
            )
            for uuid, guest in guests.items()
        ),
        key=lambda status: status['name'],
    )


def workloads(guests: Mapping[str, Guest]) -> dict[str, int]:
    """Return the number of guests of each workload."""
    return dict(
        Counter(guest.traits.workload.value for guest in guests.values())
    )


def _sibling_remarks(view: model.HostView) -> Iterator[tuple[str, str]]:
    """Yield a remark on each VM whose siblings take its CPUs in turn.

    :returns: pairs of VM and remark.
    """
    clusters: dict[str, list[model.VmView]] = {}
    for vm in view.vms:
        if vm.cluster is not None:
            clusters.setdefault(vm.cluster, []).append(vm)
    for vms in clusters.values():
        vcpus = sum(vm.vcpus for vm in vms)
        if len(vms) > 1 and vcpus > len(view.cpus):
            for vm in vms:
                yield (
                    vm.uuid,
                    f'{len(vms)} members of its cluster share CPUs with each '
                    f'other here: {vcpus} vCPUs on {len(view.cpus)} CPUs',
                )


def window_status(
    player: window_player.WindowStatus, plan: model.Plan | None
) -> dict[str, Any]:
    """Return the status of the gang windows.

    :param player: status of the window player.
    :param plan: the last tick's plan; None before it.
    """
    schedule = None if plan is None else plan.windows
    shares = None if plan is None else plan.cpu_shares
    return {
        'playing': player.playing,
        'turn': player.turn,
        'borders': player.borders,
        'writes': player.writes,
        'failures': player.failures,
        'failing': sorted(player.failing),
        'late_us': player.late_us,
        'worst_late_us': player.worst_late_us,
        'total_late_us': player.total_late_us,
        'cpu_shares': None
        if shares is None
        else {
            'missing': shares.missing,
            'played': shares.played,
            'received': dict(shares.received),
        },
        'turns': []
        if schedule is None
        else [
            {'width_us': turn.width_us, 'favoured': sorted(turn.favoured)}
            for turn in schedule.turns
        ],
    }
