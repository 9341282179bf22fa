# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
