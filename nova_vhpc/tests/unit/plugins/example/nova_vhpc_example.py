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

"""A predictor for programs whose iterations all take the same time."""

import collections

from nova_vhpc.control.predictors import base

PERIOD = 10
"""Length of an iteration, in sampling periods of 100 ms."""


class PeriodicPredictor:
    """The state of one iteration ago."""

    def __init__(self) -> None:
        self._states: collections.deque[int] = collections.deque(maxlen=PERIOD)

    def observe(self, state: int, events: float) -> None:
        """Remember the state; the deque forgets what is too old."""
        self._states.append(base.clean_state(state))

    def predict(self) -> int:
        """What came next one iteration ago; the last state until then."""
        if not self._states:
            return 0
        full = len(self._states) == PERIOD
        return self._states[0] if full else self._states[-1]

    @property
    def state_bytes(self) -> int:
        """Bytes held."""
        return base.deep_bytes(self)
