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

Linux runs the vCPUs of one VM at different times, so that siblings spin
in vain for each other; shorter slices do not mend that, alignment does.
Every window one parallel VM (or the members of one virtual cluster on this
host) weighs nearly everything and the other parallel ones nearly nothing:
gang scheduling in user space, work-conserving, with libvirt's
``cpu_shares`` alone. The window is the time slice that the ATC paper adapts;
here a shorter one costs more than it gives, so it is as short as the cost of
its borders allows (:mod:`nova_vhpc.control.gang.window_width`).

VMs that do not take part are never written. Those that never sleep get
pauses, windows of their own, so long that each of them has what the kernel's
fair division would give it; only then does a gang outweigh them in its
window. Where they are so few that most gangs have none of them on their CPUs,
there are no pauses: the favoured gang weighs so little that they get in its
window what is fair. Where all of them sleep now and then, it weighs on each
CPU what all gangs there weigh together and no more, so that whoever wakes up
is served as before (:mod:`nova_vhpc.control.gang.weights`).
"""

import dataclasses
from collections.abc import Collection, Mapping

from nova_vhpc.control import config as control_config
from nova_vhpc.control import fair_share, model
from nova_vhpc.control.gang import (
    competitors,
    demand,
    entitlement,
    gangs,
    leeway,
    reach,
    reserved_cpus,
    schedule,
    unpinned,
    window_width,
)
from nova_vhpc.control.gang import (
    weights as gang_contest,
)
from nova_vhpc.control.pinning import usable_cpus
from nova_vhpc.control.slices import base

# To look up a member of an enum takes long, for each VM, each tick.
_LATENCY, _PARALLEL = model.Workload.LATENCY, model.Workload.PARALLEL

LEAST_PART = 0.08
"""VMs that want less are served within the windows: they sleep, and the
kernel prefers whoever wakes up."""

STEPS = 32
"""The others' part is rounded to 1/32: hosts then agree, and small changes
of demand do not make a new schedule every period."""

LEAST_MOVE = 0.75 / STEPS
"""Smaller changes of the others' part change nothing."""

OUT_OF_TURN = 50
"""A VM that is not favoured weighs its own share divided by this, or what it
weighs in its window if that is less: little enough, and still more than
nothing if the player should come late."""

_Rotated = tuple[list[schedule.Gang], int, float, frozenset[int]]
_Decided = tuple[
    schedule.Timeline,
    Mapping[str, int],
    Mapping[str, int],
    model.ActuatorLimits,
    frozenset[int],
    frozenset[str],
    frozenset[str],
]


class GangPolicy:
    """Favours one gang at a time.

    :ivar room: how many CPUs gangs are to be kept off.
    """

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Take window, favour and bounds from the configuration."""
        self._config = config
        self._demands = demand.DemandTracker()
        self._width = window_width.WindowWidth(
            config.gang_window_us, config.gang_max_window_us
        )
        self._usable = usable_cpus.UsableCpus()
        self._lineups = gangs.Lineups()
        self.room = reserved_cpus.ReservedCpus(config.rebalance_periods)
        self._resting = unpinned.NonParticipants(config.rebalance_periods)
        self._part = 0.0
        self._most: gang_contest.Bounds | None = None
        self._leeway = leeway.WakeupHeadroom(config.rebalance_periods)
        # What is as it was is not made anew: nearly always all of it.
        self._gentle: (
            tuple[gangs.GangSet, model.ActuatorLimits, dict[str, int]] | None
        ) = None
        self._rotated: tuple[_Rotated, schedule.Timeline] | None = None
        self._decided: tuple[_Decided, base.SliceDecision] | None = None

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Find who spins, who shares CPUs, and how long others need."""
        self._usable.update(context.view.cpus)
        view = reach.near(context.view, self._usable)
        context = dataclasses.replace(context, view=view)
        parallel = [vm for vm in view.vms if vm.workload == _PARALLEL]
        self._demands.advance([*view.vms, *view.others])
        if view.limits.max_shares < max(1, view.limits.min_shares):
            # Windows are played by shares, and this actuator takes none.
            return base.SliceDecision()
        spins = self._demands.spins
        spinning = [vm for vm in parallel if spins(vm.uuid)]
        self._resting.advance(parallel, spinning, self._demands.cpus)
        pinned = [
            vm
            for vm in spinning
            if vm.uuid not in context.in_io_pool and vm.uuid in context.pins
        ]
        own = fair_share.own_weights(view) if pinned else {}
        lineup = self._lineups.of(pinned, context.pins, own)
        sides = self._sides(context, lineup, own)
        found = entitlement.contenders(view, sides, self._demands)
        if self.room.is_due():
            self.room.look(
                reserved_cpus.need(
                    view,
                    sides,
                    self._demands,
                    found,
                    pinned,
                    context.pins,
                    self.room.clear_cpus,
                )
            )
        part, contested, weights = self._weigh(view, lineup, sides, found)
        timeline = self._timeline(
            lineup.gangs,
            self._width.advance(view.window_late_us),
            part,
            contested,
        )
        if not any(window.favoured for window in timeline):
            return base.SliceDecision(
                clear_cpus=self.room.clear_cpus,
                loose=self._resting.loose,
                idle=self._resting.idle,
            )
        return self._decision(view, timeline, weights, own)

    def _timeline(
        self,
        gangs: list[schedule.Gang],
        width_us: int,
        part: float,
        contested: frozenset[int],
    ) -> schedule.Timeline:
        """One rotation of all gangs; the same object while they stay.

        :param contested: CPUs on which gangs leave others something: there one
            that shares its CPUs with no other has a window, too.
        """
        asked = (gangs, width_us, part, contested)
        if self._rotated is not None and self._rotated[0] == asked:
            return self._rotated[1]
        rotations: list[schedule.Timeline] = []
        for island in schedule.islands(gangs):
            touched = any(not contested.isdisjoint(one.cpus) for one in island)
            rotations.append(
                schedule.rotation(
                    island,
                    width_us,
                    part if touched else 0.0,
                    self._config.gang_min_window_us,
                    alone=touched,
                )
            )
        timeline = schedule.merge(rotations)
        self._rotated = asked, timeline
        return timeline

    def _sides(
        self,
        context: base.SliceContext,
        lineup: gangs.GangSet,
        weights: Mapping[str, int],
    ) -> competitors.Competition:
        """Who is in a gang, and who competes with the gangs."""
        gangs, members = lineup.gangs, lineup.members
        if not gangs:
            return competitors.Competition()
        view = context.view
        shown: list[model.VmView | model.OtherVm] = [
            vm
            for vm in view.vms
            # Who says that its answers are urgent is no hog.
            if vm.workload != _LATENCY and vm.uuid not in members
        ]
        shown += view.others
        is_hungry = self._demands.hungry
        hungry = {vm.uuid: vm for vm in shown if is_hungry(vm.uuid)}
        host = self._usable.all_cpus
        return competitors.Competition(
            members,
            frozenset(hungry),
            lineup.cpus,
            lineup.places,
            sum(len(gang.cpus) for gang in gangs) / len(gangs),
            weights,
            host,
            {
                uuid: pins
                for uuid, vm in hungry.items()
                if (pins := context.pins.get(uuid) or reach.bound(vm, host))
            },
        )

    def _weigh(
        self,
        view: model.HostView,
        lineup: gangs.GangSet,
        sides: competitors.Competition,
        found: Collection[entitlement.CpuBoundVm],
    ) -> tuple[float, frozenset[int], dict[str, int]]:
        """What VMs that never sleep get, and what gangs weigh against them.

        The others are served within the windows.

        :param found: those that never sleep.
        :returns: the part of the time that is to be pauses; the CPUs on
            which gangs must leave them something; by member, what it weighs
            in its window.
        """
        nobody: frozenset[int] = frozenset()
        claim = entitlement.fair_claim(sides, found)
        if not claim.needs:
            return 0.0, nobody, self._weigh_gently(view, lineup, sides)
        if claim.touches_few(sides):
            most = gang_contest.bounds(view, sides, self._demands, claim)
            if self._most is None or most.moves(self._most) > LEAST_MOVE:
                self._most = most
            weights = gang_contest.yielding(view, sides, self._most)
            return 0.0, sides.contested_cpus(), weights
        beside_sleepers = self._leeway.advance(
            gang_contest.leaves_sleepers(view, sides, self._demands)
        )
        strong = gang_contest.strong(
            view, sides, beside_sleepers, self._config.gang_favour
        )
        part = claim.pause(
            gang_contest.in_windows(sides, strong),
            sum(sides.weights[uuid] for uuid in sides.members)
            / OUT_OF_TURN
            / len(sides.cpus),
        )
        self._part = _steady(self._part, part if part >= LEAST_PART else 0.0)
        if self._part <= 0:
            return 0.0, nobody, self._weigh_gently(view, lineup, sides)
        part = min(self._part, 1 - 1 / STEPS)
        return part, sides.contested_cpus(), strong

    def _weigh_gently(
        self,
        view: model.HostView,
        lineup: gangs.GangSet,
        sides: competitors.Competition,
    ) -> dict[str, int]:
        known = self._gentle
        # A lineup that is the same has members of the same weights.
        if (
            known is not None
            and known[0] is lineup
            and known[1] == view.limits
        ):
            return known[2]
        weights = gang_contest.gentle(view, sides)
        self._gentle = lineup, view.limits, weights
        return weights

    def _decision(
        self,
        view: model.HostView,
        timeline: schedule.Timeline,
        high: Mapping[str, int],
        own: Mapping[str, int],
    ) -> base.SliceDecision:
        playing = frozenset().union(*(window.favoured for window in timeline))
        originals = {
            vm.uuid: own[vm.uuid] for vm in view.vms if vm.uuid in playing
        }
        clear_cpus = self.room.clear_cpus
        loose, idle = self._resting.loose, self._resting.idle
        asked = (
            *(timeline, high, originals, view.limits),
            *(clear_cpus, loose, idle),
        )
        if self._decided is not None and self._decided[0] == asked:
            return self._decided[1]
        waiting = {
            uuid: max(
                view.limits.min_shares, min(shares, high[uuid]) // OUT_OF_TURN
            )
            for uuid, shares in originals.items()
        }
        turns = tuple(
            model.Turn(
                width_us=window.width_us,
                favoured=window.favoured,
                shares=waiting
                | {uuid: high[uuid] for uuid in window.favoured},
            )
            for window in timeline
        )
        decision = base.SliceDecision(
            vms=dict.fromkeys(
                originals,
                base.VmSlice(
                    slice_us=self._width.width_us,
                    reason='gang window',
                    by_windows=True,
                ),
            ),
            windows=model.WindowSchedule(turns, originals),
            clear_cpus=clear_cpus,
            loose=loose,
            idle=idle,
        )
        self._decided = asked, decision
        return decision


def _steady(held: float, now: float) -> float:
    """The same as before, but for changes that count, and those in steps."""
    if abs(now - held) > LEAST_MOVE:
        return round(now * STEPS) / STEPS
    return held
