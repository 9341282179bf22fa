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


"""What one VM's ``cpu_shares`` are to be, and what is known of them."""

import dataclasses
import time

BACK_OFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""How long a domain is left alone after 1, 2, ... failures in a row."""


@dataclasses.dataclass(slots=True, eq=False)
class Wish:
    """One VM's shares; guarded by the lock of who keeps it.

    :ivar value: what is wanted now.
    :ivar in_force: what was written last; None if that is not known.
    :ivar leaving: forgotten once its value is in force.
    :ivar queued: waits for a helper.
    :ivar since_s: when the call in progress began; None without one.
    :ivar not_before_s: left alone until then, after failures in a row.
    """

    uuid: str
    value: int
    in_force: int | None = None
    leaving: bool = False
    queued: bool = False
    since_s: float | None = None
    failures: int = 0
    not_before_s: float = 0.0

    @property
    def due(self) -> bool:
        """Whether it is to be written, and nobody is about to."""
        return (
            self.in_force != self.value
            and not self.queued
            and self.since_s is None
            and time.monotonic() >= self.not_before_s
        )

    def succeeded(self, value: int | None) -> None:
        """A value was written; None if the VM is left alone."""
        self.failures = 0
        self.not_before_s = 0.0
        self.in_force = value

    def failed(self) -> None:
        """Which weight is in force is not known any more."""
        back_off_s = BACK_OFF_S[min(self.failures, len(BACK_OFF_S) - 1)]
        self.failures += 1
        self.not_before_s = time.monotonic() + back_off_s
        self.in_force = None
