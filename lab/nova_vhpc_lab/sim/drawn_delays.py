# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Delays of the agent's work, drawn at random, on hosts that it costs nothing.

Borders of windows are late by the time that a thread needs to wake up, and
each weight takes the time of a write to a control group's file.
"""

import random
from collections.abc import Callable, Sequence

from nova_vhpc_lab.sim.agenda import Agenda

WAKE_UP_US = (60, 150)
"""Least and mean additional time until the player's thread runs."""

STALL_PART = 0.005
STALL_US = 4_000
"""This part of the borders is late by up to a tick of the kernel."""

WRITERS = 4
WRITE_US = 100
"""Threads that write at a time, and the duration of one write."""

DECIDE_US = 2_000

Action = Callable[[], None]


class DrawnDelays:
    """Has the agent's work done after a while.

    :param decide_us: time from reading the counters until the plan is carried
        out.
    """

    def __init__(
        self,
        agenda: Agenda,
        chance: random.Random,
        decide_us: int = DECIDE_US,
    ) -> None:
        self._agenda = agenda
        self._chance = chance
        self._decide_us = decide_us

    def decide(self, then: Action) -> None:
        """Do the work of a control period, then carry the plan out."""
        self._agenda.at(self._agenda.now_us + self._decide_us, then)

    def at_border(self, border_us: int, then: Action) -> None:
        """Wake the player's thread at a window's border."""
        self._agenda.at(border_us + self._wake_up_us(), then)

    def write(self, writes: Sequence[Action], then: Action) -> None:
        """Carry out all writes, then call this."""
        at_us = float(self._agenda.now_us)
        for first in range(0, len(writes), WRITERS):
            at_us += WRITE_US
            for write in writes[first : first + WRITERS]:
                self._agenda.at(at_us, write)
        self._agenda.at(at_us, then)

    def _wake_up_us(self) -> float:
        least_us, mean_us = WAKE_UP_US
        late_us = least_us + self._chance.expovariate(1 / mean_us)
        if self._chance.random() < STALL_PART:
            late_us += self._chance.uniform(0, STALL_US)
        return late_us
