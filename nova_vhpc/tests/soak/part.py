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
