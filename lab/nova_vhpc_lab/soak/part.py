# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What a part of the soak is, and how long it runs."""

import dataclasses
import time
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long a part runs; it does its first input or round in any case.

    :ivar until_s: end, of :func:`time.monotonic`; None if only the count ends
        the part.
    :ivar count: most inputs or rounds; None if only the time ends the part.
    """

    until_s: float | None
    count: int | None = None

    def lasts(self, done: int) -> bool:
        """Return whether to go on after some inputs or rounds."""
        if done == 0:
            return True
        if self.count is not None and done >= self.count:
            return False
        return self.until_s is None or time.monotonic() < self.until_s


class Part(Protocol):
    """Attacks one thing with seeded inputs or rounds.

    :ivar name: what the command line calls the part.
    :ivar counted: option that gives the count, such as ``rounds``.
    """

    name: str
    counted: str

    def run(self, seed: int, first: int, budget: Budget) -> bool:
        """Print what is found and how to repeat it; True if nothing is.

        :param first: number of the first input or round.
        """
        ...
