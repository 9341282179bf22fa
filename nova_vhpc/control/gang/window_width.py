# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How long gang windows are: as short as the cost of their borders allows.

Between two windows, until the new weights are in force, no gang runs together.
What that costs does not depend on the window's length, so the window is
lengthened until the cost is a small part of it. This bounds the time slice
from below by what the actuator can bring about, as the kernel's tick does for
quotas. Above that bound, shorter windows mean that gangs pause for less time.
"""

LATE_PART = 0.06
"""Largest part of a window that may pass before its weights are in force."""

SHORTER_BELOW = 0.7
"""Windows are shortened if the late part would stay below this part of
:data:`LATE_PART`."""


ENOUGH_BORDERS = 10
"""Number of borders before the mean is meaningful."""

FIRST_BORDERS = 5
"""Number of first borders that are not counted: at these the control groups
and threads of all guests are looked up, which takes longer than any later
border."""

MEMORY_BORDERS = 100
"""Number of borders over which the mean runs."""


class MeanLateness:
    """Running mean of the time from a border until its last write is done.

    :ivar borders: number of borders so far.
    :ivar total_us: sum of the times of all borders, in microseconds.
    :ivar mean_us: running mean, in microseconds; 0 before a border was
        counted.
    """

    def __init__(self) -> None:
        self.borders = 0
        self.total_us = 0.0
        self.mean_us = 0.0

    def add(self, late_us: float) -> None:
        """Take in one border."""
        self.borders += 1
        self.total_us += late_us
        counted = min(self.borders - FIRST_BORDERS, MEMORY_BORDERS)
        if counted > 0:
            self.mean_us += (late_us - self.mean_us) / counted

    @property
    def known_us(self) -> float:
        """The mean for the controller; 0 while it is unknown."""
        return self.mean_us if self.borders >= ENOUGH_BORDERS else 0.0


class WindowWidth:
    """Adapts the length of windows to the time that writing weights takes.

    Lengths are the least one times a power of two. Hosts of one cluster then
    mostly agree, and windows of two lengths still share every other border.

    :param least_us: length on a host on which borders cost little, in
        microseconds.
    :param most_us: greatest length; ``least_us`` if that is more.
    """

    def __init__(self, least_us: int, most_us: int) -> None:
        self._least_us = least_us
        self._most_us = max(least_us, most_us)
        self.width_us = least_us

    def advance(self, late_us: float) -> int:
        """Return the length of the coming windows, in microseconds.

        :param late_us: mean time from a window's border until its last write
            is done, in microseconds. Unknown if it is not a finite number
            above 0; the length then stays.
        """
        if not 0 < late_us < float('inf'):
            return self.width_us
        while (
            late_us > LATE_PART * self.width_us
            and self.width_us * 2 <= self._most_us
        ):
            self.width_us *= 2
        while (
            self.width_us > self._least_us
            and late_us < SHORTER_BELOW * LATE_PART * self.width_us / 2
        ):
            self.width_us //= 2
        return self.width_us
