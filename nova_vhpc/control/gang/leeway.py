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

"""How much gangs may weigh beside VMs that sleep now and then."""

NOTICEABLE = 0.25
"""Smaller changes, as part of what they may, change nothing. Those who sleep
are left three times what they use."""


class WakeupHeadroom:
    """Follows it: less at once, more only when it was more for long.

    What such VMs use goes up and down, and what they leave much more: next to
    nothing where the busiest uses a third of a CPU. Weights that follow each
    breath would make new windows of another length all the time.

    :param patience: looks in a row that must find more.
    """

    def __init__(self, patience: int) -> None:
        """Know of nobody yet."""
        self._patience = max(1, patience)
        self._held: float | None = None
        self._more: list[float] = []

    def advance(self, now: float) -> float:
        """Take in one look; what counts from now on.

        :param now: what they would leave, as ``cpu_shares`` on a CPU.
        """
        held = self._held
        if held is None or now < held - NOTICEABLE * abs(held):
            return self._hold(now)
        if now <= held + NOTICEABLE * abs(held):
            self._more.clear()
            return held
        self._more.append(now)
        if len(self._more) >= self._patience:
            return self._hold(min(self._more))
        return held

    def _hold(self, weight: float) -> float:
        self._held = weight
        self._more.clear()
        return weight
