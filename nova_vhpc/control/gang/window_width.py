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


"""How wide gang windows are: as narrow as borders allow.

Between the last turn's weights and the next one's nobody runs together with
its siblings. What that costs does not depend on the window's width, so the
window is widened until it is a small part of it. This bounds the time slice
from below by what the actuator can really bring about, as the tick does for
quotas; above that bound, narrower windows mean shorter pauses.
"""

LATE_PART = 0.06
"""Part of a window that may be over before its weights are in force."""

CALM = 0.7
"""Windows get narrower again when borders cost only so much of that."""


class WindowWidth:
    """Follows how late windows begin.

    Widths are the least one times a power of two: hosts of one cluster then
    mostly agree, and windows of two widths still share every other border.

    :param least_us: width on a host whose borders cost little.
    :param most_us: never wider; ``least_us`` if that is more.
    """

    def __init__(self, least_us: int, most_us: int) -> None:
        self._least_us = least_us
        self._most_us = max(least_us, most_us)
        self.width_us = least_us

    def advance(self, late_us: float) -> int:
        """Width for the coming windows.

        :param late_us: mean time from a border until its last write is
            done; anything but a positive number is taken as not known.
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
            and late_us < CALM * LATE_PART * self.width_us / 2
        ):
            self.width_us //= 2
        return self.width_us
