# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""The mixture's GPHT expert: what followed the last eight states."""

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import gpht


class GphtExpert:
    """GPHT as an expert: its prediction and how probable that is.

    The probability is the share of predictions that came true. It is
    counted apart for predictions of staying and of a change, because these
    differ most; each begins at one half.

    :ivar expected: predicted state.
    :ivar trust: probability of ``expected``, 0 to 1.
    """

    __slots__ = (
        '_counts',
        '_gpht',
        '_of_changes',
        '_of_stays',
        'expected',
        'trust',
    )

    def __init__(self) -> None:
        self._gpht = gpht.GphtPredictor()
        # Predictions made and predictions that came true.
        self._of_stays = [2, 1]
        self._of_changes = [2, 1]
        self._counts = self._of_stays
        self.expected = quantise.IDLE_STATE
        self.trust = 0.5

    def observe(self, state: int) -> None:
        """Count whether the prediction came true and make the next one."""
        counts = self._counts
        counts[0] += 1
        if state == self.expected:
            counts[1] += 1
        self.expected = expected = self._gpht.learn(state)
        counts = self._of_stays if expected == state else self._of_changes
        self._counts = counts
        self.trust = counts[1] / counts[0]
