# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What happens on a simulated host between two steps of its kernel."""

import heapq
import itertools
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What the agenda needs of a simulated host."""

    @property
    def now_us(self) -> int:
        """Return the simulated time, in microseconds."""

    def advance(self, until_us: int) -> None:
        """Run the host's kernel until this time."""


class Agenda:
    """Runs actions at their simulated times, in order.

    Actions of the same time run in the order in which they were added.

    :param clock: the simulated host.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def now_us(self) -> int:
        """Return the simulated time, in microseconds."""
        return self._clock.now_us

    def at(self, at_us: float, action: Callable[[], None]) -> None:
        """Add an action.

        :param at_us: its time; a time that is over counts as now.
        """
        due_us = max(self.now_us, round(at_us))
        heapq.heappush(self._due, (due_us, next(self._numbers), action))

    def run(self, until_us: int) -> None:
        """Run the host and all actions that are due until this time."""
        while self._due and self._due[0][0] <= until_us:
            at_us, _, action = heapq.heappop(self._due)
            if at_us > self.now_us:
                self._clock.advance(at_us)
            action()
        if until_us > self.now_us:
            self._clock.advance(until_us)
