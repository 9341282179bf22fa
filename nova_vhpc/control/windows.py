# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows as values."""

import dataclasses
from collections.abc import Mapping

IDLE_SHARES = -1
"""In a :class:`Turn`: make the control group of the VM idle (``cpu.idle``)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """One gang window: its length, and the weight of each VM in it.

    :ivar width_us: length of the window.
    :ivar favoured: uuids of the VMs whose vCPUs are to run together.
    :ivar shares: ``cpu_shares`` of every VM of the schedule, by uuid, or
        :data:`IDLE_SHARES`.
    :ivar cpus: by uuid, the CPU of each vCPU in this window; an empty tuple
        for all CPUs that the VM's pins allow. The vCPUs of a VM that is
        missing stay where they are.
    """

    width_us: int
    favoured: frozenset[str]
    shares: Mapping[str, int]
    cpus: Mapping[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True, slots=True)
class WindowSchedule:
    """Gang windows, to be played in turn until the next plan.

    The turn at wall-clock time *t* is found by *t* modulo the length of the
    rotation, so hosts with synchronised clocks and equal schedules favour the
    members of a cluster in the same windows without any message.

    :ivar shares_after: ``cpu_shares`` of each VM when the schedule ends, by
        uuid.
    """

    turns: tuple[Turn, ...]
    shares_after: Mapping[str, int]

    @property
    def cycle_us(self) -> int:
        """Length of one whole rotation, in microseconds."""
        return sum(turn.width_us for turn in self.turns)

    def turn_at(self, wall_us: int) -> tuple[int, int]:
        """Return the index of a time's turn, and how long it still lasts.

        :param wall_us: wall-clock time, in microseconds.
        :raises ValueError: the schedule has no turns.
        """
        cycle_us = self.cycle_us
        if not self.turns or cycle_us <= 0:
            raise ValueError('a schedule without turns has no turn to play')
        offset_us = wall_us % cycle_us
        for index, turn in enumerate(self.turns):
            if offset_us < turn.width_us:
                return index, turn.width_us - offset_us
            offset_us -= turn.width_us
        raise AssertionError('unreachable: offset is within the cycle')

    def part_of(self, uuid: str) -> float:
        """Return the part of the rotation that favours a VM, 0.0 to 1.0."""
        return sum(
            turn.width_us for turn in self.turns if uuid in turn.favoured
        ) / max(1, self.cycle_us)

    def shares_of_leavers(
        self, successor: 'WindowSchedule | None'
    ) -> dict[str, int]:
        """Return ``shares_after`` of the VMs that the successor lacks.

        :param successor: the schedule that replaces this one; None if this
            one ends.
        """
        staying = () if successor is None else successor.shares_after.keys()
        return {
            uuid: shares
            for uuid, shares in self.shares_after.items()
            if uuid not in staying
        }
