# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""``gang``: windows in which the vCPUs of one parallel VM run together.

Linux runs the vCPUs of one VM at different times, so that a vCPU spins for a
sibling that is not running. Shorter time slices do not help; running the vCPUs
at the same time does. This is gang scheduling in user space: a rotation of
*windows*, in each of which some gangs are *favoured*. Each vCPU of a favoured
gang has a CPU of its own and weighs nearly everything there; gangs that are
out of turn are idle (``cpu.idle``), so that they run only where nothing else
wants to. The window is the time slice that the ATC paper adapts. Here a
shorter one costs more than it gives, so it is as short as the cost of its
borders allows (:mod:`nova_vhpc.control.gang.window_width`).

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

Gangs are packed into windows so that each has its entitlement
(:mod:`nova_vhpc.control.gang.matrix`), and what every CPU-bound VM really
received corrects that (:mod:`nova_vhpc.control.gang.feedback`). VMs that are
in no gang are never written.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from nova_vhpc.control import config as control_config
from nova_vhpc.control import fair_share, memo, model
from nova_vhpc.control.gang import (
    demand,
    entitlement,
    feedback,
    frame_packing,
    gangs,
    matrix,
    placement,
    weights,
    window_width,
)
from nova_vhpc.control.pinning import cpu_loads
from nova_vhpc.control.slices import base
from nova_vhpc.control.slots import frame

# Looking up a member of an enum takes long, for each VM in each tick.
_LATENCY, _PARALLEL = model.Workload.LATENCY, model.Workload.PARALLEL

SMALL_CHANGE = 0.02
"""A smaller change of a part of the time changes nothing: else each small
change of demand would make a new schedule."""

SMALL_CORRECTION = 0.004
HELD_PERIODS = 5
"""Smaller corrections of a window's part are left, and others are made after
this many control periods only: each new schedule disturbs the rotation."""

UNNOTICED = 0.1
UNNOTICED_CPUS = 0.03
LASTING_US = 15_000_000
"""VMs that sleep may use this part, or so many CPUs, more than before windows
were played. If they use more for so long, the host is watched again."""

SERVED = 0.97
"""Part of the CPUs that a VM wants from which it counts as having them all."""

DOMINANT = 3.0
"""Times that a favoured vCPU must weigh what a vCPU of a CPU-bound VM weighs.
Gangs cannot reach this weight beside busy servers, which must not wait."""

SIDE_PERIODS = 30
"""Rotate gangs over CPUs after this many control periods, so that a disturbed
CPU slows all gangs equally."""

MAX_CYCLE_US = 1_200_000
"""Longest rotation: VMs must have their part of any two seconds."""

_NO_PLACE = base.VmSlice(
    reason='no windows: it finds no place beside the other VMs'
)
_MAY_NOT_PLACE = base.VmSlice(
    reason='no windows: the agent may not place vCPUs; it needs CAP_SYS_NICE'
)
_CANNOT_IDLE = base.VmSlice(
    reason='no windows: the kernel has no cpu.idle; it needs Linux 5.15'
)
_UNMEASURED = base.VmSlice(
    reason='no windows: its CPU time cannot be measured'
)

_NO_COMMON_SLOTS = base.VmSlice(
    reason='no windows: its hosts have no slots in which all of them can play'
)
_SERVED = base.VmSlice(
    reason='needs no windows: it has all the CPUs that it wants'
)
_NEEDLESS = base.VmSlice(
    reason='needs no windows: no VM that never sleeps competes with it'
)
_NOT_SPINNING = base.VmSlice(
    reason='needs no windows: its vCPUs sleep, or reach their quota, at times'
)
_BUSY_SERVERS = base.VmSlice(
    reason='no windows: they would delay VMs that are busy and sleep at times'
)


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
        self._placer = placement.Placer()
        self.feedback = feedback.Feedback(config.harm_limit)
        # Gangs and demand seldom change.
        self._gangs = memo.LastCall(gangs.form)
        self._rotation = memo.LastCall(matrix.rotation)
        self._pack = memo.LastCall(frame_packing.pack)
        self._packing: frame_packing.Packing | None = None
        self._schedule = memo.LastCall(self._make_schedule)
        self._placed = memo.LastCall(self._placer.place)
        self._demands: tuple[matrix.Demand, ...] = ()
        self._lone_demands: tuple[matrix.Demand, ...] = ()
        self._slots: tuple[matrix.Slot, ...] = ()
        self._refuses = False
        self._denied: frozenset[str] = frozenset()
        self._served: frozenset[str] = frozenset()
        self._held_periods = 0
        self._stock_cpus: dict[str, float] = {}
        self._excess_us = 0.0
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
        parallel = [vm for vm in view.vms if vm.workload == _PARALLEL]
        limits = view.limits
        if limits.max_shares < max(1, limits.min_shares):
            # Windows are played by shares, and this actuator sets none.
            return base.SliceDecision()
        if not (limits.can_idle and limits.can_place):
            lacking = _MAY_NOT_PLACE if limits.can_idle else _CANNOT_IDLE
            return base.SliceDecision(
                vms={vm.uuid: lacking for vm in parallel},
                gangs=_refusals(
                    vm.cluster
                    for vm in parallel
                    if self._demand_tracker.is_spinning(vm.uuid)
                ),
            )
        without: dict[str, base.VmSlice] = {}
        for vm in parallel:
            # What windows cost such a VM would not be known.
            if self._demand_tracker.is_unmeasured(vm.uuid):
                without[vm.uuid] = _UNMEASURED
            elif self._demand_tracker.is_spinning(vm.uuid) is False:
                without[vm.uuid] = _NOT_SPINNING
        candidates = self._candidates(parallel, context.in_io_pool)
        formed = self._gangs(candidates)
        left_out = gangs.left_out(candidates, formed)
        without |= {
            uuid: base.VmSlice(reason=reason)
            for uuid, reason in left_out.items()
        }
        refusals = _refusals(
            one.cluster for one in candidates if one.member.uuid in left_out
        )
        if not formed:
            self.feedback.advance(view.period_us, {}, {}, frozenset())
            return base.SliceDecision(vms=without, gangs=refusals)
        # The siblings of a single vCPU can be on other hosts only.
        gang_list = [
            gang for gang in formed if gang.width > 1 or gang.key in view.slots
        ]
        lone = [gang for gang in formed if gang not in gang_list]
        without |= {
            member.uuid: base.VmSlice(reason=gangs.ONE_VCPU)
            for gang in lone
            for member in gang.members
        }
        own_weights = fair_share.own_weights(view)
        demanded_cpus = self._demanded_cpus(vms, view.period_us)
        fair = entitlement.fair_cpus(
            vms,
            own_weights,
            self._usable_cpus.all_cpus,
            demanded_cpus,
            view.outside_cpus,
        )
        self._lone_demands = tuple(gang.demand(fair) for gang in lone)
        rotation = self._rotate(gang_list, vms, fair, own_weights, view.slots)
        if not gang_list:
            self.feedback.advance(view.period_us, {}, {}, frozenset())
            return base.SliceDecision(
                vms=without, gangs=self._gang_demands() + refusals
            )
        members = {
            member.uuid: member
            for gang in gang_list
            if gang.key not in rotation.excluded
            for member in gang.members
        }
        cpu_bound = self._cpu_bound(view, vms, members)
        self.feedback.gang_uuids = frozenset(
            one.uuid for gang in gang_list for one in gang.members
        )
        self._measure(
            vms,
            fair,
            members,
            frozenset(
                (
                    *(one.uuid for gang in gang_list for one in gang.members),
                    *(vm.uuid for vm in cpu_bound),
                )
            ),
            view.period_us,
        )
        without |= self._without_windows(members, rotation, gang_list)
        headroom = self._headroom_beside(
            cpu_bound, members, own_weights, limits
        )
        reason = self._needless_or_harmful(
            rotation,
            all(
                fair[uuid] >= SERVED * cpus
                for uuid, cpus in demanded_cpus.items()
            ),
            cpu_bound,
            headroom,
            own_weights,
        )
        self._refuses = reason is _BUSY_SERVERS or (
            reason is None and not self.feedback.ready
        )
        if reason is not None:
            if self.feedback.playing:
                self.feedback.watch_again()
            return base.SliceDecision(
                vms=without | dict.fromkeys(members, reason),
                gangs=self._gang_demands() + refusals,
            )
        slots: tuple[matrix.Slot, ...] = ()
        placements: tuple[placement.Placement, ...] = ()
        if self.feedback.playing and members:
            slots = self._lengths(rotation, gang_list)
            placements = self._placements(
                slots, gang_list, view.cpus, cpu_bound
            )
            # A VM without a window would be idle in all of them.
            placed = frozenset[str]().union(*placements)
            without |= dict.fromkeys(members.keys() - placed, _NO_PLACE)
            members = {
                uuid: members[uuid] for uuid in members if uuid in placed
            }
        if not slots or not members:
            return base.SliceDecision(
                vms=without,
                cpu_shares=self.feedback.shares(),
                gangs=self._gang_demands() + refusals,
            )
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
        if self._packing is None:
            cycle_us = self._cycle_us(parts, width_us)
        else:
            # As long as on the other hosts.
            width_us = self._config.gang_window_us
            cycle_us = frame.SLOTS * width_us
        windows = self._schedule(
            parts,
            placements,
            window_shares,
            {uuid: own_weights[uuid] for uuid in members},
            cycle_us,
        )
        playing = base.VmSlice(width_us, 'gang window', by_windows=True)
        return base.SliceDecision(
            vms=without | dict.fromkeys(members, playing),
            windows=windows,
            cpu_shares=self.feedback.shares(),
            gangs=self._gang_demands() + refusals,
        )

    def _gang_demands(self) -> tuple[model.GangDemand, ...]:
        """Return what this host asks for when hosts agree on slots."""
        return tuple(
            model.GangDemand(
                one.key,
                one.width,
                one.part,
                not self._refuses,
            )
            for one in (*self._demands, *self._lone_demands)
            if one.part > 0
        )

    def _cycle_us(self, parts: tuple[float, ...], width_us: int) -> int:
        """Return the length of a rotation.

        :param width_us: mean length of a window.
        """
        cycle_us = max(
            len(parts) * width_us,
            round(self._config.gang_min_window_us / max(1e-3, min(parts))),
        )
        return min(cycle_us, MAX_CYCLE_US)

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

    def _cpu_bound(
        self,
        view: model.HostView,
        vms: Iterable[model.VmView | model.OtherVm],
        members: Collection[str],
    ) -> list[model.VmView | model.OtherVm]:
        """Return the CPU-bound VMs beside these members of gangs.

        A VM whose answers are urgent does not count as CPU-bound.
        """
        urgent = {vm.uuid for vm in view.vms if vm.workload == _LATENCY}
        return [
            vm
            for vm in vms
            if vm.uuid not in members
            and vm.uuid not in urgent
            and self._demand_tracker.is_cpu_bound(vm.uuid)
        ]

    def _headroom_beside(
        self,
        cpu_bound: Sequence[model.VmView | model.OtherVm],
        members: Mapping[str, gangs.Member],
        own_weights: Mapping[str, int],
        limits: model.ActuatorLimits,
    ) -> float:
        """Return the highest weight of a gang on a CPU.

        With more, VMs that sleep would not be served in time.
        """
        intermittent = (
            own_weights.keys() - members.keys() - {vm.uuid for vm in cpu_bound}
        )
        return self._headrooms[bool(cpu_bound)].advance(
            weights.wakeup_headroom(
                intermittent, own_weights, self._demand_tracker, limits
            )
        )

    def _needless_or_harmful(
        self,
        rotation: matrix.Rotation,
        all_served: bool,
        cpu_bound: Sequence[model.VmView | model.OtherVm],
        headroom: float,
        own_weights: Mapping[str, int],
    ) -> base.VmSlice | None:
        """Return why no gang has windows on this host, or None.

        :param all_served: whether all VMs have the CPUs that they want.
            Siblings run together anyway then, as do gangs that compete with
            nobody who never sleeps.
        """
        alone = len(rotation.slots) == 1 or len(rotation.served) == 1
        if all_served or (alone and not cpu_bound):
            return _NEEDLESS
        if cpu_bound and headroom < DOMINANT * max(
            own_weights[vm.uuid] / vm.vcpus for vm in cpu_bound
        ):
            return _BUSY_SERVERS
        return None

    def _demanded_cpus(
        self, vms: Iterable[model.VmView | model.OtherVm], elapsed_us: float
    ) -> dict[str, float]:
        """Return the CPUs that each VM would use if nothing else ran.

        A VM that sleeps uses more if windows serve it better than the kernel
        does; that counts as its demand only after it was seen without windows.
        """
        demanded: dict[str, float] = {}
        kept: dict[str, float] = {}
        excess = 0.0
        for vm in vms:
            now = self._demand_tracker.cpus(vm.uuid)
            before = self._stock_cpus.get(vm.uuid)
            if before is None or not self.feedback.playing:
                before = now
            kept[vm.uuid] = before
            if not self._demand_tracker.is_cpu_bound(vm.uuid):
                most = before + max(UNNOTICED_CPUS, UNNOTICED * before)
                excess += max(0.0, now - most)
                now = min(now, most)
            demanded[vm.uuid] = now
        self._stock_cpus = kept
        if excess <= UNNOTICED * len(self._usable_cpus.all_cpus):
            self._excess_us = 0.0
        elif self.feedback.playing:
            self._excess_us += elapsed_us
            if self._excess_us >= LASTING_US:
                self._excess_us = 0.0
                self.feedback.watch_again()
        return demanded

    def _rotate(
        self,
        gang_list: Sequence[gangs.Gang],
        vms: Sequence[model.VmView | model.OtherVm],
        fair: Mapping[str, float],
        own_weights: Mapping[str, int],
        agreed: Mapping[str, model.ClusterSlot | None],
    ) -> matrix.Rotation:
        """Return the slots for what gangs are entitled to.

        Small changes of demand change nothing.

        :param agreed: slots on which the hosts of a cluster agreed.
        """
        earlier = {one.key: one for one in self._demands}
        demands = []
        for gang in gang_list:
            now = gang.demand(fair)
            before = earlier.get(gang.key)
            if (
                before is not None
                and before.width == now.width
                and abs(before.part - now.part) <= SMALL_CHANGE
            ):
                now = before
            if now.part > 0:
                demands.append(now)
        self._demands = tuple(demands)
        self._denied = frozenset(
            one.key
            for one in demands
            if one.key in agreed and agreed[one.key] is None
        )
        self._served = frozenset(
            gang.key
            for gang in gang_list
            if all(
                fair[member.uuid] >= SERVED * member.vcpus
                for member in gang.members
            )
        )
        out = self._denied
        packed = tuple(one for one in demands if one.key not in out)
        cpus = len(self._usable_cpus.all_cpus)
        in_gangs = {
            member.uuid
            for gang in gang_list
            if gang.key not in out
            for member in gang.members
        }
        outside = sum(
            part for uuid, part in fair.items() if uuid not in in_gangs
        )
        is_shared = outside > SMALL_CHANGE * cpus
        cpu_bound = self._outside(vms, fair, own_weights, in_gangs)
        held = {
            one.key: slot
            for one in packed
            if (slot := agreed.get(one.key)) is not None
        }
        if held:
            self._packing = self._pack(
                packed, held, cpus, is_shared, cpu_bound
            )
            rotation = self._packing.rotation
        else:
            self._packing = None
            rotation = self._rotation(packed, cpus, is_shared, cpu_bound)
        return dataclasses.replace(rotation, excluded=rotation.excluded | out)

    def _outside(
        self,
        vms: Iterable[model.VmView | model.OtherVm],
        fair: Mapping[str, float],
        own_weights: Mapping[str, int],
        in_gangs: Collection[str],
    ) -> tuple[matrix.Outside, ...]:
        """Return what CPU-bound VMs in no gang are entitled to."""
        return tuple(
            sorted(
                matrix.Outside(
                    len(self._demand_tracker.cpu_bound_vcpus(vm.uuid)),
                    round(fair[vm.uuid], 1),
                    own_weights[vm.uuid],
                )
                for vm in vms
                if vm.uuid not in in_gangs
                and self._demand_tracker.is_cpu_bound(vm.uuid)
            )
        )

    def _lengths(
        self, rotation: matrix.Rotation, gang_list: Sequence[gangs.Gang]
    ) -> tuple[matrix.Slot, ...]:
        """Return the slots with corrected lengths.

        Small changes change nothing.
        """
        corrections = {
            gang.key: self.feedback.correction(
                member.uuid for member in gang.members
            )
            for gang in gang_list
        }
        pause = self.feedback.pause_correction
        if self._packing is None:
            slots = matrix.corrected(rotation, corrections, pause)
        else:
            slots = self._packing.windows(corrections, pause)
        held = self._slots
        same_gangs = [slot.gangs for slot in slots] == [
            slot.gangs for slot in held
        ]
        self._held_periods += 1
        if same_gangs and (
            self._held_periods < HELD_PERIODS
            or all(
                abs(slot.part - before.part) <= SMALL_CORRECTION
                for slot, before in zip(slots, held, strict=True)
            )
        ):
            return held
        self._held_periods = 0
        self._slots = slots
        return slots

    def _placements(
        self,
        slots: tuple[matrix.Slot, ...],
        gang_list: Iterable[gangs.Gang],
        cpus: tuple[model.Cpu, ...],
        cpu_bound: Iterable[model.VmView | model.OtherVm],
    ) -> tuple[placement.Placement, ...]:
        """Return the CPUs of the gangs in each slot.

        :param cpu_bound: the CPU-bound VMs in no gang.
        """
        gangs_by_key = {gang.key: gang for gang in gang_list}
        all_cpus = self._usable_cpus.all_cpus
        last_cpus: frozenset[int] = frozenset()
        for vm in cpu_bound:
            pins = vm.vcpu_pins if isinstance(vm, model.OtherVm) else None
            allowed = frozenset[int]().union(*(pins or ())) & all_cpus
            if allowed != all_cpus:
                last_cpus |= allowed
        return self._placed(
            tuple(
                tuple(gangs_by_key[key] for key in sorted(slot.gangs))
                for slot in slots
            ),
            cpus,
            last_cpus,
            self._periods // self.side_periods,
        )

    def _measure(
        self,
        vms: Iterable[model.VmView | model.OtherVm],
        fair: Mapping[str, float],
        members: Collection[str],
        never_sleep: frozenset[str],
        elapsed_us: float,
    ) -> None:
        """Compare the CPU time that VMs received with their entitlement.

        :param members: uuids of the members of gangs that may have windows.
        :param never_sleep: uuids of spinning and of other CPU-bound VMs.
        """
        in_gangs: dict[str, feedback.Account] = {}
        outside: dict[str, feedback.Account] = {}
        for vm in vms:
            sample = vm.sample
            accounts = in_gangs if vm.uuid in members else outside
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
        self.feedback.advance(elapsed_us, in_gangs, outside, never_sleep)

    def _without_windows(
        self,
        members: Collection[str],
        rotation: matrix.Rotation,
        gang_list: Iterable[gangs.Gang],
    ) -> dict[str, base.VmSlice]:
        """Return the slices of gangs that have no windows now, and why."""
        waiting = base.VmSlice(reason=f'no windows: {self.feedback.reason}')
        return {
            member.uuid: waiting
            if member.uuid in members
            else _SERVED
            if gang.key in self._served
            else _NO_COMMON_SLOTS
            if gang.key in self._denied
            else _NO_PLACE
            for gang in gang_list
            for member in gang.members
            if gang.key in rotation.excluded or not self.feedback.playing
        }

    def _make_schedule(
        self,
        parts: tuple[float, ...],
        placements: tuple[placement.Placement, ...],
        window_shares: Mapping[str, int],
        own_weights: Mapping[str, int],
        cycle_us: int,
    ) -> model.WindowSchedule:
        """Return the schedule.

        :param parts: lengths of the windows, as parts of the rotation.
        :param own_weights: of each VM of a gang.
        :param cycle_us: length of the rotation, in microseconds.
        """
        out_of_turn = dict.fromkeys(own_weights, model.IDLE_SHARES)
        turns = tuple(
            model.Turn(
                width_us=end_us - begin_us,
                favoured=frozenset(placed),
                shares=out_of_turn
                | {uuid: window_shares[uuid] for uuid in placed},
                cpus=placed,
            )
            for (begin_us, end_us), placed in zip(
                matrix.pieces_us(parts, cycle_us), placements, strict=True
            )
        )
        return model.WindowSchedule(turns, own_weights)


def _refusals(
    clusters: Iterable[str | None],
) -> tuple[model.GangDemand, ...]:
    """Return that this host plays no windows for these clusters."""
    return tuple(
        model.GangDemand(cluster, 1, 1.0, plays=False)
        for cluster in sorted({one for one in clusters if one})
    )
