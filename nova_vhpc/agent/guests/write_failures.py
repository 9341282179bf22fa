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

"""Writes to one VM that failed, and the quarantine that they bring."""

import dataclasses
import time

LONGEST_QUARANTINE = 10
"""Times ``quarantine_seconds``."""


@dataclasses.dataclass(slots=True, eq=False)
class Failures:
    """Of one VM.

    :ivar count: in all.
    :ivar in_row: since the last write that went through.
    :ivar quarantines: since then, too.
    :ivar quarantined_until: by the monotonic clock, in seconds.
    :ivar problem: the last one, for people; empty when it is over.
    """

    count: int = 0
    in_row: int = 0
    quarantines: int = 0
    quarantined_until: float = 0.0
    problem: str = ''

    @property
    def quarantined(self) -> bool:
        """Whether the VM is left alone for a while."""
        return time.monotonic() < self.quarantined_until

    def add(self, problem: str, limit: int, seconds: float) -> bool:
        """A write failed.

        :param limit: failures in a row that bring the quarantine.
        :param seconds: its length; doubles each time.
        :returns: whether the VM is in quarantine from now on.
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
        """A write went through."""
        self.in_row = 0
        self.quarantines = 0
        self.quarantined_until = 0.0
        self.problem = ''
