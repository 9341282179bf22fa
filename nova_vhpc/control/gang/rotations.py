# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The rotation of a host's gangs over time; small changes change nothing."""

import dataclasses
from collections.abc import Mapping, Sequence

from nova_vhpc.control import memo, model
from nova_vhpc.control.gang import (
    demand,
    feedback,
    frame_packing,
    gangs,
    matrix,
)

SMALL_CHANGE = 0.02
"""A smaller change of a part of the time changes nothing: else each small
change of demand would make a new schedule."""

SMALL_CORRECTION = 0.004
HELD_PERIODS = 5
"""Smaller corrections of a window's part are left, and others are made after
this many control periods only: each new schedule disturbs the rotation."""


class Rotations:
    """Chooses which gangs run in which slots, and for how long.

    :ivar demands: what each gang that has a part is entitled to.
    :ivar packing: slots on which hosts agreed; None for a local rotation.
    """

    def __init__(self, demand_tracker: demand.DemandTracker) -> None:
        self._demand_tracker = demand_tracker
        self._rotation = memo.LastCall(matrix.rotation)
        self._pack = memo.LastCall(frame_packing.pack)
        self._slots: tuple[matrix.Slot, ...] = ()
        self._held_periods = 0
        self.demands: tuple[matrix.Demand, ...] = ()
        self.packing: frame_packing.Packing | None = None

    def choose(
        self,
        gang_list: Sequence[gangs.Gang],
        vms: Sequence[model.VmView | model.OtherVm],
        fair: Mapping[str, float],
        own_weights: Mapping[str, int],
        agreed: Mapping[str, model.ClusterSlot | None],
        cpus: int,
    ) -> matrix.Rotation:
        """Return the slots for what gangs are entitled to.

        Where hosts agreed on slots a gang may get less than it is entitled
        to: what one host plays at another time serves nobody.

        :param agreed: slots on which the hosts of a cluster agreed; a gang
            with None is left out.
        :param cpus: number of CPUs.
        """
        earlier = {one.key: one for one in self.demands}
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
        self.demands = tuple(demands)
        denied = {key for key, slot in agreed.items() if slot is None}
        packed = tuple(one for one in demands if one.key not in denied)
        in_gangs = {
            member.uuid
            for gang in gang_list
            if gang.key not in denied
            for member in gang.members
        }
        outside = sum(
            part for uuid, part in fair.items() if uuid not in in_gangs
        )
        is_shared = outside > SMALL_CHANGE * cpus
        cpu_bound = tuple(
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
        held = {
            one.key: slot
            for one in packed
            if (slot := agreed.get(one.key)) is not None
        }
        if held:
            self.packing = self._pack(packed, held, cpus, is_shared, cpu_bound)
            rotation = self.packing.rotation
        else:
            self.packing = None
            rotation = self._rotation(packed, cpus, is_shared, cpu_bound)
        return dataclasses.replace(
            rotation, excluded=rotation.excluded | denied
        )

    def corrected(
        self,
        rotation: matrix.Rotation,
        gang_list: Sequence[gangs.Gang],
        measured: feedback.Feedback,
    ) -> tuple[matrix.Slot, ...]:
        """Return the slots of a rotation with corrected lengths."""
        corrections = {
            gang.key: measured.correction(
                member.uuid for member in gang.members
            )
            for gang in gang_list
        }
        pause = measured.pause_correction
        if self.packing is None:
            slots = matrix.corrected(rotation, corrections, pause)
        else:
            slots = self.packing.windows(corrections, pause)
        held = self._slots
        self._held_periods += 1
        if [slot.gangs for slot in slots] == [
            slot.gangs for slot in held
        ] and (
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
