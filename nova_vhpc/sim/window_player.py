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

"""Plays gang windows on a simulated host, as the agent's player does.

What differs is the clock and the thread: borders are actions of the agenda,
late by the time that a thread needs to wake up, and each weight takes the time
of a write to a control group's file.
"""

import functools
import random
from collections.abc import Callable, Mapping

from nova_vhpc.control import lateness, model
from nova_vhpc.sim.agenda import Agenda

WAKE_UP_US = (60, 150)
"""Least and mean additional time until the player's thread runs."""

STALL_PART = 0.005
STALL_US = 4_000
"""This part of the borders is late by up to a tick of the kernel."""

Setting = tuple[int, tuple[int, ...]]
"""Weight of a VM, and the CPU of each vCPU; none for all that pins allow."""

NOTHING: Setting = (0, ())

WRITERS = 4
WRITE_US = 100
"""Threads that write at a time, and the duration of one write."""


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
        chance: random.Random,
        clock_offset_us: int = 0,
    ) -> None:
        self._agenda = agenda
        self._clock_offset_us = clock_offset_us
        self._set_shares = set_shares
        self._place = place
        self._chance = chance
        self._schedule: model.WindowSchedule | None = None
        self._turn: int | None = None
        self._wanted: dict[str, Setting] = {}
        self._written: dict[str, Setting] = {}
        self._lateness = lateness.MeanLateness()

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
        last_write_us = self._submit(turn.shares, turn.cpus)
        if self._turn is not None:
            self._lateness.add(last_write_us - border_us)
        self._turn = index
        next_us = now_us + left_us
        self._agenda.at(
            next_us + self._wake_up_us(),
            lambda: self._begin_turn(schedule, next_us),
        )

    def _wake_up_us(self) -> float:
        least_us, mean_us = WAKE_UP_US
        late_us = least_us + self._chance.expovariate(1 / mean_us)
        if self._chance.random() < STALL_PART:
            late_us += self._chance.uniform(0, STALL_US)
        return late_us

    def _submit(
        self,
        shares: Mapping[str, int],
        cpus: Mapping[str, tuple[int, ...]],
    ) -> float:
        """Write weights and CPUs; return when the last of them is in force."""
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
        at_us = float(self._agenda.now_us)
        for first in range(0, len(changed), WRITERS):
            at_us += WRITE_US
            batch = {
                name: wanted[name] for name in changed[first : first + WRITERS]
            }
            self._agenda.at(at_us, functools.partial(self._write, batch))
        return at_us

    def _write(self, batch: Mapping[str, Setting]) -> None:
        for name, value in batch.items():
            # A newer value may have been set meanwhile.
            newest = self._wanted.get(name, value)
            if self._written.get(name) != newest:
                self._set_shares(name, newest[0])
                if self._written.get(name, NOTHING)[1] != newest[1]:
                    self._place(name, newest[1])
                self._written[name] = newest
