# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""``gang``: windows in which the vCPUs of one parallel VM run together.

Linux runs the vCPUs of one VM at different times, so that a vCPU spins for a
sibling that is not running. Gang scheduling in user space runs them at the
same time: in a rotation of *windows*, in each of which some gangs are
*favoured*. Each vCPU of a favoured gang has a CPU of its own and weighs nearly
everything there; gangs that are out of turn are idle (``cpu.idle``), so that
they run only where nothing else wants to. The window is the time slice that
the ATC paper adapts; it is as short as the cost of its borders allows.

Words of this package:

gang
    A spinning parallel VM, or the members of one virtual cluster on this host
    if these fit side by side on its CPUs.
pause
    A window in which no gang is favoured.
CPU-bound VM
    Here: a VM in no gang with a vCPU that has not slept for long.
intermittent VM
    A VM in no gang that is not CPU-bound.
own weight
    ``cpu_shares`` of a VM as they are without windows.

VMs that are in no gang are never written.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

from nova_vhpc.control import config as control_config
from nova_vhpc.control import fair_share, memo, model
from nova_vhpc.control.gang import (
    demand,
    entitlement,
    feedback,
    gangs,
    matrix,
    placement,
    rotations,
    schedule,
    stock_demand,
    waiting,
    weights,
    window_width,
)
from nova_vhpc.control.pinning import cpu_loads
from nova_vhpc.control.slices import base
from nova_vhpc.control.slots import frame

# Looking up a member of an enum takes long, for each VM in each tick.
_LATENCY, _PARALLEL = model.Workload.LATENCY, model.Workload.PARALLEL

SERVED = 0.97
"""Part of the CPUs that a VM wants from which it counts as having them all."""

DOMINANT = 3.0
"""Times that a favoured vCPU must weigh what a vCPU of a CPU-bound VM weighs.
Gangs cannot reach this weight beside busy servers, which must not wait."""

JUDGE_PERIODS = 10
"""Control periods from one judgement of how programs wait to the next."""

SIDE_PERIODS = 30
"""Rotate gangs over CPUs after this many control periods, so that a disturbed
CPU slows all gangs equally."""

NO_PLACE = 'no windows: it finds no place beside the other VMs'
MAY_NOT_PLACE = (
    'no windows: the agent may not place vCPUs; it needs CAP_SYS_NICE'
)
CANNOT_IDLE = 'no windows: the kernel has no cpu.idle; it needs Linux 5.15'
UNMEASURED = 'no windows: its CPU time cannot be measured'
NEEDLESS = 'needs no windows: no VM that never sleeps competes with it'
WAITS = 'waits: needs no windows'
SOME_SLEEP = 'no windows: only some of its vCPUs never sleep'
NOT_SPINNING = (
    'needs no windows: its vCPUs sleep, or reach their quota, at times'
)
NO_COMMON_SLOTS = (
    'no windows: its cluster, or one beside it, has no slots on all its hosts'
)
BUSY_SERVERS = (
    'no windows: they would delay VMs that are busy and sleep at times'
)
"""Reasons for no windows; further ones in :mod:`.gangs`, :mod:`.feedback`."""


class GangPolicy:
    """Favours one set of gangs after the other."""

    uses_io = False
    places_vcpus = True
    side_periods = SIDE_PERIODS

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Take window lengths and bounds from the configuration."""
        self._config = config
        self._demand_tracker = demand.DemandTracker()
        self._window_width = window_width.WindowWidth(
            config.gang_window_us, config.gang_max_window_us
        )
        self._usable_cpus = cpu_loads.UsableCpus()
        # Beside CPU-bound VMs, and without any. A VM that is not known yet to
        # be CPU-bound leaves none, and must not be remembered for that.
        self._headrooms = {
            beside: weights.WakeupHeadroom(config.rebalance_periods)
            for beside in (True, False)
        }
        self.feedback = feedback.Feedback(config.harm_limit)
        self._stock_demand = stock_demand.StockDemand(self._demand_tracker)
        # Gangs seldom change.
        self._gangs = memo.LastCall(gangs.form)
        self._rotations = rotations.Rotations(self._demand_tracker)
        self._placed = memo.LastCall(placement.Placer().place)
        self._schedule = memo.LastCall(schedule.make)
        self._waiting: dict[str, model.Waiting] = {}
        self._periods = 0

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Choose the windows of the next control period.

        No windows where nothing spins or nothing shares CPUs.
        """
        self._periods += 1
        self._usable_cpus.update(context.view.cpus)
        view = entitlement.without_foreign_vcpus(
            context.view, self._usable_cpus
        )
        vms: list[model.VmView | model.OtherVm] = [*view.vms, *view.others]
        self._demand_tracker.advance(vms)
        if self._periods % JUDGE_PERIODS == 0:
            self._waiting = waiting.judge_all(
                view.vms, self._demand_tracker, self._waiting
            )
        return dataclasses.replace(
            self._windows(view, vms, context.in_io_pool),
            waiting=self._waiting,
        )

    def _windows(
        self,
        view: model.HostView,
        vms: Sequence[model.VmView | model.OtherVm],
        in_io_pool: Collection[str],
    ) -> base.SliceDecision:
        """Return the decision, but how programs wait."""
        parallel = [vm for vm in view.vms if vm.workload == _PARALLEL]
        limits = view.limits
        if limits.max_shares < max(1, limits.min_shares):
            # Windows are played by shares, and this actuator sets none.
            return base.SliceDecision()
        if not (limits.can_idle and limits.can_place):
            lacking = MAY_NOT_PLACE if limits.can_idle else CANNOT_IDLE
            return _without(
                {vm.uuid: lacking for vm in parallel},
                _refusals(
                    vm.cluster
                    for vm in parallel
                    if self._demand_tracker.is_spinning(vm.uuid)
                ),
            )
        reasons: dict[str, str] = {}
        for vm in parallel:
            # What windows cost such a VM would not be known.
            if self._demand_tracker.is_unmeasured(vm.uuid):
                reasons[vm.uuid] = UNMEASURED
            elif self._demand_tracker.is_spinning(vm.uuid) is False:
                reasons[vm.uuid] = self._why_not_spinning(vm)
        candidates = self._candidates(parallel, in_io_pool)
        formed = self._gangs(candidates)
        # The siblings of a single vCPU can be on other hosts only.
        gang_list = [
            gang for gang in formed if gang.width > 1 or gang.key in view.slots
        ]
        reasons |= gangs.left_out(candidates, gang_list)
        in_gangs = {one.uuid for gang in formed for one in gang.members}
        refusals = _refusals(
            one.cluster
            for one in candidates
            if one.member.uuid not in in_gangs
        )
        if not formed:
            self.feedback.advance(view.period_us, {}, {}, frozenset())
            return _without(reasons, refusals)
        own_weights = fair_share.own_weights(view)
        host_cpus = self._usable_cpus.all_cpus
        demanded_cpus = self._stock_demand.advance(
            vms, len(host_cpus), view.period_us, self.feedback
        )
        fair = entitlement.fair_cpus(
            vms, own_weights, host_cpus, demanded_cpus, view.outside_cpus
        )
        rotation = self._rotations.choose(
            gang_list, vms, fair, own_weights, view.slots, len(host_cpus)
        )
        # What this host asks for when hosts agree on slots.
        demands = [
            *self._rotations.demands,
            *(one.demand(fair) for one in formed if one not in gang_list),
        ]
        if not gang_list:
            self.feedback.advance(view.period_us, {}, {}, frozenset())
            return _without(reasons, _wanted(demands, True) + refusals)
        members = {
            member.uuid: member
            for gang in gang_list
            if gang.key not in rotation.excluded
            for member in gang.members
        }
        # A VM whose answers are urgent does not count as CPU-bound.
        urgent = {vm.uuid for vm in view.vms if vm.workload == _LATENCY}
        cpu_bound = [
            vm
            for vm in vms
            if self._demand_tracker.is_cpu_bound(vm.uuid)
            and vm.uuid not in members
            and vm.uuid not in urgent
        ]
        self._measure(vms, fair, members, in_gangs, cpu_bound, view.period_us)
        for gang in gang_list:
            if gang.key in rotation.excluded or not self.feedback.playing:
                for uuid, *_ in gang.members:
                    reasons[uuid] = NO_PLACE
                    if uuid in members:
                        reasons[uuid] = f'no windows: {self.feedback.reason}'
                    elif gang.key in view.slots:
                        reasons[uuid] = NO_COMMON_SLOTS
        intermittent = (
            own_weights.keys() - members.keys() - {vm.uuid for vm in cpu_bound}
        )
        headroom = self._headrooms[bool(cpu_bound)].advance(
            weights.wakeup_headroom(
                intermittent, own_weights, self._demand_tracker, limits
            )
        )
        reason = _needless_or_harmful(
            rotation,
            all(
                fair[uuid] >= SERVED * cpus
                for uuid, cpus in demanded_cpus.items()
            ),
            cpu_bound,
            headroom,
            own_weights,
        )
        # Where nothing competes, a cluster runs in any slots.
        wanted = refusals + _wanted(
            demands,
            reason == NEEDLESS
            or (reason is None and not self.feedback.is_harmful),
        )
        if reason is not None:
            if self.feedback.playing:
                self.feedback.watch_again()
            return _without(reasons | dict.fromkeys(members, reason), wanted)
        slots: tuple[matrix.Slot, ...] = ()
        placements: tuple[placement.Placement, ...] = ()
        if self.feedback.playing and members:
            slots = self._rotations.corrected(
                rotation, gang_list, self.feedback
            )
            by_key = {gang.key: gang for gang in gang_list}
            placements = self._placed(
                tuple(
                    tuple(by_key[key] for key in sorted(slot.gangs))
                    for slot in slots
                ),
                view.cpus,
                placement.bound_cpus(cpu_bound, host_cpus),
                self._periods // self.side_periods,
            )
            # A VM without a window would be idle in all of them.
            placed = frozenset[str]().union(*placements)
            reasons |= dict.fromkeys(members.keys() - placed, NO_PLACE)
            members = {
                uuid: members[uuid] for uuid in members if uuid in placed
            }
        decision = dataclasses.replace(
            _without(reasons, wanted), cpu_shares=self.feedback.shares()
        )
        if not slots or not members:
            return decision
        # Beside a small weight idle groups run now and then, too, and each
        # time all siblings wait.
        if cpu_bound or headroom >= limits.max_shares:
            window_shares = weights.dominant(
                members.values(),
                own_weights,
                headroom,
                self._config.gang_favour,
                limits,
            )
        else:
            window_shares = weights.neutral(
                members.values(), own_weights, len(view.cpus), limits
            )
        width_us = self._window_width.advance(view.window_late_us)
        parts = tuple(slot.part for slot in slots)
        if self._rotations.packing is None:
            cycle_us = schedule.cycle_us(
                parts, width_us, self._config.gang_min_window_us
            )
        else:
            # As long as on the other hosts.
            width_us = self._config.gang_window_us
            cycle_us = frame.SLOTS * width_us
        playing = base.VmSlice(width_us, 'gang window', by_windows=True)
        return dataclasses.replace(
            decision,
            vms={**decision.vms, **dict.fromkeys(members, playing)},
            windows=self._schedule(
                parts,
                placements,
                window_shares,
                {uuid: own_weights[uuid] for uuid in members},
                cycle_us,
            ),
        )

    def _candidates(
        self, parallel: Iterable[model.VmView], in_io_pool: Collection[str]
    ) -> list[gangs.Candidate]:
        """Return the VMs whose vCPUs spin for each other."""
        return [
            gangs.Candidate(
                vm.cluster,
                vm.paradigm != model.Paradigm.OPENMP,
                gangs.Member(vm.uuid, vm.vcpus, self._usable_cpus.of(vm)),
            )
            for vm in parallel
            if vm.repin
            and vm.uuid not in in_io_pool
            and self._demand_tracker.is_spinning(vm.uuid)
        ]

    def _why_not_spinning(self, vm: model.VmView) -> str:
        """Return why a VM that does not spin has no windows."""
        judged = self._waiting.get(vm.uuid)
        if judged is None:
            return NOT_SPINNING
        return SOME_SLEEP if judged.busy_vcpus else WAITS

    def _measure(
        self,
        vms: Iterable[model.VmView | model.OtherVm],
        fair: Mapping[str, float],
        members: Collection[str],
        in_gangs: Collection[str],
        cpu_bound: Iterable[model.VmView | model.OtherVm],
        elapsed_us: float,
    ) -> None:
        """Compare the CPU time that VMs received with their entitlement.

        :param members: uuids of the members of gangs that may have windows.
        :param in_gangs: uuids of the members of all gangs.
        """
        never_sleep = frozenset((*in_gangs, *(vm.uuid for vm in cpu_bound)))
        favoured: dict[str, feedback.Account] = {}
        outside: dict[str, feedback.Account] = {}
        for vm in vms:
            sample = vm.sample
            accounts = favoured if vm.uuid in members else outside
            if not (
                sample.vcpu_run_us and sample.elapsed_us and fair[vm.uuid] > 0
            ):
                continue
            if vm.uuid in never_sleep:
                received = sum(sample.vcpu_run_us) / sample.elapsed_us
            else:
                # In most periods it uses nothing, and then much at once.
                received = self._demand_tracker.used_cpus(vm.uuid)
            accounts[vm.uuid] = feedback.Account(fair[vm.uuid], received)
        self.feedback.advance(
            elapsed_us,
            favoured,
            outside,
            never_sleep,
            outside.keys() - in_gangs,
        )


def _needless_or_harmful(
    rotation: matrix.Rotation,
    all_served: bool,
    cpu_bound: Sequence[model.VmView | model.OtherVm],
    headroom: float,
    own_weights: Mapping[str, int],
) -> str | None:
    """Return why no gang has windows on this host, or None.

    :param all_served: whether all VMs have the CPUs that they want. Siblings
        run together anyway then, as do gangs that compete with nobody who
        never sleeps.
    """
    alone = len(rotation.slots) == 1 or len(rotation.served) == 1
    if all_served or (alone and not cpu_bound):
        return NEEDLESS
    if cpu_bound and headroom < DOMINANT * max(
        own_weights[vm.uuid] / vm.vcpus for vm in cpu_bound
    ):
        return BUSY_SERVERS
    return None


def _wanted(
    demands: Iterable[matrix.Demand], plays: bool
) -> tuple[model.GangDemand, ...]:
    """Return what this host asks for when hosts agree on slots."""
    return tuple(
        model.GangDemand(one.key, one.width, one.part, plays)
        for one in demands
        if one.part > 0
    )


def _refusals(clusters: Iterable[str | None]) -> tuple[model.GangDemand, ...]:
    """Return that this host plays no windows for these clusters."""
    return tuple(
        model.GangDemand(cluster, 1, 1.0, plays=False)
        for cluster in sorted({one for one in clusters if one})
    )


def _without(
    reasons: Mapping[str, str], wanted: tuple[model.GangDemand, ...] = ()
) -> base.SliceDecision:
    """Return the decision without windows."""
    return base.SliceDecision(
        vms={uuid: _slice(reason) for uuid, reason in reasons.items()},
        gangs=wanted,
    )


@functools.cache
def _slice(reason: str) -> base.VmSlice:
    """Return the slice of VMs that have no windows."""
    return base.VmSlice(reason=reason)
