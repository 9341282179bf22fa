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

"""``gang``: windows in which the vCPUs of one parallel VM run together.

Linux runs the vCPUs of one VM at different times, so that a vCPU spins for a
sibling that is not running. Shorter time slices do not help; running the vCPUs
at the same time does. In every window one gang is favoured: it weighs nearly
everything and the other gangs on its CPUs next to nothing. This is gang
scheduling in user space, work-conserving, with libvirt's ``cpu_shares`` alone.
The window is the time slice that the ATC paper adapts. Here a shorter one
costs more than it gives, so it is as short as the cost of its borders allows
(:mod:`nova_vhpc.control.gang.window_width`).

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

VMs that are in no gang are never written. How their part is kept depends on
how many of them are CPU-bound (:mod:`nova_vhpc.control.gang.weights`):

* Many: gangs pause for so long that each CPU-bound VM has what the kernel's
  fair division would give it, and outweigh them in windows.
* So few that most gangs have none of them on their CPUs: there are no pauses.
  The favoured gang weighs so little that CPU-bound VMs get in its window what
  is fair.
* None: on each CPU the favoured gang weighs what all gangs there weigh
  together, so that a VM that wakes up is served as without windows.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from nova_vhpc.control import config as control_config
from nova_vhpc.control import fair_share, memo, model
from nova_vhpc.control.gang import (
    competitors,
    demand,
    entitlement,
    gangs,
    reserved_cpus,
    schedule,
    unpinned,
    weights,
    window_width,
)
from nova_vhpc.control.pinning import usable_cpus
from nova_vhpc.control.slices import base

# Looking up a member of an enum takes long, for each VM in each tick.
_LATENCY, _PARALLEL = model.Workload.LATENCY, model.Workload.PARALLEL

MIN_PAUSE_PART = 0.08
"""A smaller part of the time is no pause. VMs that want less are served within
windows: they sleep, and the kernel prefers a task that wakes up."""

STEPS = 32
"""The part of pauses is rounded to 1/32. Hosts of a cluster then agree, and
small changes of demand do not make a new schedule in every tick."""

MIN_CHANGE = 0.75 / STEPS
"""A smaller change of the part of pauses changes nothing."""

OUT_OF_TURN = 50
"""A VM that is not favoured has its own weight, or its weight in its window if
that is less, divided by this: little enough, and still more than nothing if
the window player should be late."""


class _Division(NamedTuple):
    """How CPU time is divided between gangs and all other VMs.

    :ivar pause_part: part of the time in which no gang is favoured.
    :ivar contested_cpus: CPUs on which gangs must leave CPU-bound VMs
        something.
    :ivar window_shares: ``cpu_shares`` of each member in its window, by uuid.
    """

    pause_part: float
    contested_cpus: frozenset[int]
    window_shares: Mapping[str, int]


class GangPolicy:
    """Favours one gang after the other on each CPU.

    :ivar reserved_cpus: CPUs that gangs must not use.
    """

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Take window lengths and bounds from the configuration."""
        self._config = config
        self._demand_tracker = demand.DemandTracker()
        self._window_width = window_width.WindowWidth(
            config.gang_window_us, config.gang_max_window_us
        )
        self._usable_cpus = usable_cpus.UsableCpus()
        self.reserved_cpus = reserved_cpus.ReservedCpus(
            config.rebalance_periods
        )
        self._non_participants = unpinned.NonParticipants(
            config.rebalance_periods
        )
        self._wakeup_headroom = weights.WakeupHeadroom(
            config.rebalance_periods
        )
        self._pause_part = 0.0
        self._bounds: weights.Bounds | None = None
        # Gangs and demand seldom change. Measured with nova-vhpc-bench
        # controller, 100 VMs as shipped, 0.90 ms per decision: without these
        # it takes 0.30, 0.12, 0.23 and 0.09 ms more.
        self._gang_set = memo.LastCall(gangs.form)
        self._neutral_weights = memo.LastCall(weights.neutral)
        self._timeline = memo.LastCall(self._make_timeline)
        self._decision = memo.LastCall(_make_decision)

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Choose the windows of the next control period.

        No windows where nothing spins or nothing shares CPUs.
        """
        self._usable_cpus.update(context.view.cpus)
        view = competitors.without_foreign_vcpus(
            context.view, self._usable_cpus
        )
        parallel = [vm for vm in view.vms if vm.workload == _PARALLEL]
        self._demand_tracker.advance([*view.vms, *view.others])
        if view.limits.max_shares < max(1, view.limits.min_shares):
            # Windows are played by shares, and this actuator sets none.
            return base.SliceDecision()
        is_spinning = self._demand_tracker.is_spinning
        spinning = [vm for vm in parallel if is_spinning(vm.uuid)]
        self._non_participants.advance(
            parallel, spinning, self._demand_tracker.cpus
        )
        pinned = [
            vm
            for vm in spinning
            if vm.uuid not in context.in_io_pool and vm.uuid in context.pins
        ]
        own_weights = fair_share.own_weights(view) if pinned else {}
        gang_set = self._gang_set(
            [
                gangs.Candidate(
                    vm.uuid,
                    vm.cluster,
                    vm.vcpus,
                    own_weights[vm.uuid],
                    context.pins[vm.uuid],
                )
                for vm in pinned
            ]
        )
        competition = self._competition(
            view, context.pins, gang_set, own_weights
        )
        cpu_bound_vms = entitlement.cpu_bound_vms(
            view, competition, self._demand_tracker
        )
        if self.reserved_cpus.is_due():
            self.reserved_cpus.evaluate(
                reserved_cpus.reservation_demand(
                    view,
                    competition,
                    self._demand_tracker,
                    cpu_bound_vms,
                    pinned,
                    context.pins,
                    self.reserved_cpus.cpus,
                )
            )
        division = self._divide(view, gang_set, competition, cpu_bound_vms)
        timeline = self._timeline(
            gang_set.gangs,
            self._window_width.advance(view.window_late_us),
            division.pause_part,
            division.contested_cpus,
        )
        playing = frozenset().union(*(window.favoured for window in timeline))
        if not playing:
            return base.SliceDecision(
                clear_cpus=self.reserved_cpus.cpus,
                loose=self._non_participants.unpinned,
                idle=self._non_participants.idle,
            )
        return self._decision(
            timeline,
            division.window_shares,
            {
                vm.uuid: own_weights[vm.uuid]
                for vm in view.vms
                if vm.uuid in playing
            },
            view.limits,
            self._window_width.width_us,
            self.reserved_cpus.cpus,
            self._non_participants.unpinned,
            self._non_participants.idle,
        )

    def _make_timeline(
        self,
        gangs: list[schedule.Gang],
        window_us: int,
        pause_part: float,
        contested_cpus: frozenset[int],
    ) -> schedule.Timeline:
        """Return one rotation of all gangs.

        :param window_us: length of a gang's window, in microseconds.
        :param contested_cpus: CPUs on which gangs must leave CPU-bound VMs
            something. There a gang that shares its CPUs with no other gang has
            a window, too.
        """
        rotations: list[schedule.Timeline] = []
        for island in schedule.islands(gangs):
            contested = any(
                not contested_cpus.isdisjoint(gang.cpus) for gang in island
            )
            rotations.append(
                schedule.rotation(
                    island,
                    window_us,
                    pause_part if contested else 0.0,
                    self._config.gang_min_window_us,
                    single_gang_window=contested,
                )
            )
        return schedule.merge(rotations)

    def _competition(
        self,
        view: model.HostView,
        pins_of: Mapping[str, tuple[frozenset[int], ...]],
        gang_set: gangs.GangSet,
        own_weights: Mapping[str, int],
    ) -> competitors.Competition:
        """Return the gangs and the CPU-bound VMs that compete with them."""
        if not gang_set.gangs:
            return competitors.Competition()
        outside: list[model.VmView | model.OtherVm] = [
            vm
            for vm in view.vms
            # A VM whose answers are urgent does not count as CPU-bound.
            if vm.workload != _LATENCY and vm.uuid not in gang_set.members
        ]
        outside += view.others
        is_cpu_bound = self._demand_tracker.is_cpu_bound
        cpu_bound = {vm.uuid: vm for vm in outside if is_cpu_bound(vm.uuid)}
        host_cpus = self._usable_cpus.all_cpus
        return competitors.Competition(
            gang_set.members,
            frozenset(cpu_bound),
            gang_set.cpus,
            gang_set.member_cpus,
            sum(len(gang.cpus) for gang in gang_set.gangs)
            / len(gang_set.gangs),
            own_weights,
            host_cpus,
            {
                uuid: pins
                for uuid, vm in cpu_bound.items()
                if (
                    pins := pins_of.get(uuid)
                    or competitors.bound_pins(vm, host_cpus)
                )
            },
        )

    def _divide(
        self,
        view: model.HostView,
        gang_set: gangs.GangSet,
        competition: competitors.Competition,
        cpu_bound_vms: Collection[entitlement.CpuBoundVm],
    ) -> _Division:
        """Divide CPU time between gangs and CPU-bound VMs.

        Intermittent VMs are served within windows.
        """
        entitled = entitlement.entitlement(competition, cpu_bound_vms)
        if not entitled.shortfalls:
            return self._without_pauses(view, gang_set)
        if entitled.meets_few_gangs(competition):
            bounds = weights.bounds(
                view, competition, self._demand_tracker, entitled
            )
            if (
                self._bounds is None
                or bounds.difference(self._bounds) > MIN_CHANGE
            ):
                self._bounds = bounds
            return _Division(
                0.0,
                competition.contested_cpus(),
                weights.bounded(view, competition, self._bounds),
            )
        window_shares = weights.dominant(
            view,
            competition,
            self._wakeup_headroom.advance(
                weights.wakeup_headroom(
                    view, competition, self._demand_tracker
                )
            ),
            self._config.gang_favour,
        )
        pause_part = entitled.pause_part(
            weights.weights_in_windows(competition, window_shares),
            sum(competition.weights[uuid] for uuid in competition.members)
            / OUT_OF_TURN
            / len(competition.gang_cpus),
        )
        self._pause_part = _steady(
            self._pause_part,
            pause_part if pause_part >= MIN_PAUSE_PART else 0.0,
        )
        if self._pause_part <= 0:
            return self._without_pauses(view, gang_set)
        return _Division(
            min(self._pause_part, 1 - 1 / STEPS),
            competition.contested_cpus(),
            window_shares,
        )

    def _without_pauses(
        self, view: model.HostView, gang_set: gangs.GangSet
    ) -> _Division:
        return _Division(
            0.0, frozenset(), self._neutral_weights(gang_set, view.limits)
        )


def _make_decision(
    timeline: schedule.Timeline,
    window_shares: Mapping[str, int],
    own_weights: Mapping[str, int],
    limits: model.ActuatorLimits,
    window_us: int,
    clear_cpus: frozenset[int],
    loose: frozenset[str],
    idle: frozenset[str],
) -> base.SliceDecision:
    """Return the policy's answer.

    :param window_shares: ``cpu_shares`` of each member in its window, by uuid.
    :param own_weights: of each VM that the timeline favours at some time.
    :param window_us: length of a gang's window, in microseconds.
    """
    out_of_turn = {
        uuid: max(
            limits.min_shares,
            min(own_weight, window_shares[uuid]) // OUT_OF_TURN,
        )
        for uuid, own_weight in own_weights.items()
    }
    turns = tuple(
        model.Turn(
            width_us=window.width_us,
            favoured=window.favoured,
            shares=out_of_turn
            | {uuid: window_shares[uuid] for uuid in window.favoured},
        )
        for window in timeline
    )
    return base.SliceDecision(
        vms=dict.fromkeys(
            own_weights,
            base.VmSlice(
                slice_us=window_us, reason='gang window', by_windows=True
            ),
        ),
        windows=model.WindowSchedule(turns, own_weights),
        clear_cpus=clear_cpus,
        loose=loose,
        idle=idle,
    )


def _steady(held: float, now: float) -> float:
    """Return the new value, rounded, or the old one if they are close.

    :param held: old value.
    :param now: new value.
    """
    if abs(now - held) > MIN_CHANGE:
        return round(now * STEPS) / STEPS
    return held
