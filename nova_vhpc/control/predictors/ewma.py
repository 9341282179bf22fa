# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Exponentially weighted moving average of the I/O events."""

from nova_vhpc.control.predictors import base

ALPHA = 0.5
"""Weight of the newest period. None of 0.3, 0.5 and 0.7 is best on all
programs; this is the middle one."""


class EwmaPredictor:
    """EWMA (I/O-perception paper, section III.A and reference [12]).

    The average is one of events, not of states, so that only the prediction
    is rounded to a state.

    :param alpha: weight of the newest period, above 0 and at most 1.
    :raises ValueError: ``alpha`` is out of range.
    """

    __slots__ = ('_alpha', '_mean')

    def __init__(self, alpha: float = ALPHA) -> None:
        if not 0 < alpha <= 1:
            raise ValueError(f'alpha must be above 0 up to 1, not {alpha}')
        self._alpha = alpha
        self._mean: float | None = None

    def observe(self, state: int, events: float) -> None:
        """Move the average towards the new number of events."""
        events = base.clean_events(events)
        if self._mean is None:
            self._mean = events
        else:
            self._mean += self._alpha * (events - self._mean)

    def predict(self) -> int:
        """Return the state of the average."""
        return base.to_state(self._mean or 0.0)

    @property
    def state_bytes(self) -> int:
        """See :class:`~.base.Predictor`."""
        return base.deep_bytes(self)
