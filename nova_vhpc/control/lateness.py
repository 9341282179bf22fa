# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How late the borders of gang windows are, on the mean."""

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
