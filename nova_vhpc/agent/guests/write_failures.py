# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Failed writes to one guest, and the quarantine that follows from them."""

import dataclasses
import time

LONGEST_QUARANTINE = 10
"""Longest quarantine, as a multiple of ``quarantine_seconds``."""


@dataclasses.dataclass(slots=True, eq=False)
class Failures:
    """Failed writes to one guest.

    :ivar count: number of failures in all.
    :ivar in_row: number of failures since the last write that succeeded.
    :ivar quarantines: number of quarantines since that write.
    :ivar quarantined_until: end of the quarantine, in seconds of the
        monotonic clock.
    :ivar problem: text of the last failure; empty after a success.
    """

    count: int = 0
    in_row: int = 0
    quarantines: int = 0
    quarantined_until: float = 0.0
    problem: str = ''

    @property
    def quarantined(self) -> bool:
        """Whether the guest is not written for a while."""
        return time.monotonic() < self.quarantined_until

    def add(self, problem: str, limit: int, seconds: float) -> bool:
        """Count a failure.

        :param limit: number of failures in a row that cause a quarantine.
        :param seconds: length of the first quarantine, in seconds; each
            further one is twice as long as the one before.
        :returns: whether a quarantine has begun.
        """
        self.count += 1
        self.in_row += 1
        self.problem = problem
        if self.in_row < limit:
            return False
        factor = min(2**self.quarantines, LONGEST_QUARANTINE)
        self.quarantined_until = time.monotonic() + seconds * factor
        self.quarantines += 1
        return True

    def end(self) -> None:
        """End the row of failures after a write that succeeded."""
        self.in_row = 0
        self.quarantines = 0
        self.quarantined_until = 0.0
        self.problem = ''
