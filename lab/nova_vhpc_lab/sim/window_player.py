# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Plays gang windows on a simulated host, as the agent's player does.

What differs is the clock and the threads: when they come to run, and when a
weight is written, is up to :class:`Delays`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from nova_vhpc.control import model
from nova_vhpc.control.gang import window_width
from nova_vhpc_lab.sim.agenda import Agenda

Setting = tuple[int, tuple[int, ...]]
"""Weight of a VM, and the CPU of each vCPU; none for all that pins allow."""

NOTHING: Setting = (0, ())

Action = Callable[[], None]


class Delays(Protocol):
    """Says when the work of the agent's threads is done."""

    def at_border(self, border_us: int, then: Action) -> None:
        """Wake the player's thread at a window's border."""

    def write(self, writes: Sequence[Action], then: Action) -> None:
        """Carry out all writes, then call this."""


class WindowPlayer:
    """Plays one schedule at a time.

    :param set_shares: writes the weight of one VM, given its name.
    :param place: lets a VM's vCPUs run on certain CPUs, given its name and the
        CPU of each vCPU; none for all that its pins allow.
    :param clock_offset_us: by which the host's wall clock is fast.
    """

    def __init__(
        self,
        agenda: Agenda,
        set_shares: Callable[[str, int], None],
        place: Callable[[str, tuple[int, ...]], None],
        delays: Delays,
        clock_offset_us: int = 0,
    ) -> None:
        self._agenda = agenda
        self._clock_offset_us = clock_offset_us
        self._set_shares = set_shares
        self._place = place
        self._delays = delays
        self._schedule: model.WindowSchedule | None = None
        self._turn: int | None = None
        self._wanted: dict[str, Setting] = {}
        self._written: dict[str, Setting] = {}
        self._lateness = window_width.MeanLateness()

    def play(self, schedule: model.WindowSchedule | None) -> None:
        """Play this schedule from now on; None ends the one in force."""
        if schedule == self._schedule:
            return
        old, self._schedule = self._schedule, schedule
        self._turn = None
        if old is not None:
            leavers = old.shares_of_leavers(schedule)
            self._submit(leavers, dict.fromkeys(leavers, ()))
            for name in leavers:
                del self._wanted[name]
        if schedule is not None:
            self._begin_turn(schedule, self._agenda.now_us)

    def late_us(self) -> float:
        """Return the mean lateness of windows; 0 while unknown."""
        return self._lateness.known_us

    def _begin_turn(
        self, schedule: model.WindowSchedule, border_us: int
    ) -> None:
        if schedule is not self._schedule:
            return
        now_us = self._agenda.now_us
        index, left_us = schedule.turn_at(now_us + self._clock_offset_us)
        turn = schedule.turns[index]
        # The first turn of a schedule may begin in the middle.
        is_timed = self._turn is not None
        self._turn = index

        def note_late() -> None:
            if is_timed:
                self._lateness.add(self._agenda.now_us - border_us)

        self._submit(turn.shares, turn.cpus, note_late)
        next_us = now_us + left_us
        self._delays.at_border(
            next_us, lambda: self._begin_turn(schedule, next_us)
        )

    def _submit(
        self,
        shares: Mapping[str, int],
        cpus: Mapping[str, tuple[int, ...]],
        then: Action = lambda: None,
    ) -> None:
        """Write weights and CPUs, then call this."""
        wanted = {
            name: (value, cpus.get(name, self._wanted.get(name, NOTHING)[1]))
            for name, value in shares.items()
        }
        self._wanted.update(wanted)
        changed = [
            name
            for name, value in wanted.items()
            if self._written.get(name) != value
        ]
        self._delays.write(
            [
                functools.partial(self._write, name, wanted[name])
                for name in changed
            ],
            then,
        )

    def _write(self, name: str, value: Setting) -> None:
        # A newer value may have been set meanwhile.
        newest = self._wanted.get(name, value)
        if self._written.get(name) != newest:
            self._set_shares(name, newest[0])
            if self._written.get(name, NOTHING)[1] != newest[1]:
                self._place(name, newest[1])
            self._written[name] = newest
