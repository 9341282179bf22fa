# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Simple predictors against which the mixture is measured."""

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import context_counts, ewma

Outcomes = tuple[bool, bool, bool]
"""Whether last value, EWMA and Markov of order 1 were right. Of the paper's
predictors these are mostly the best, and they cost almost no extra time."""


class Baselines:
    """Follows what last value, EWMA and Markov would predict for one VM."""

    __slots__ = ('_average',)

    def __init__(self) -> None:
        self._average = 0.0

    def begin(self, events: float) -> None:
        """Take the first period.

        :param events: I/O events of the period.
        """
        self._average = events

    def observe(
        self,
        current: int,
        state: int,
        events: float,
        after: context_counts.Counts,
    ) -> Outcomes:
        """Take one period and return which baselines predicted its state.

        :param current: state of the period before.
        :param state: state of the period.
        :param events: I/O events of the period.
        :param after: counts of what followed ``current``, without the period.
        """
        average = self._average
        self._average = average + ewma.ALPHA * (events - average)
        likeliest = after.likeliest
        if likeliest is None:
            likeliest = current
        by_likeliest = state == likeliest
        if not by_likeliest:
            # No search for the most frequent state is needed: only the state
            # of this period can have become it. Of equals the current wins.
            by_state = after.by_state
            more = by_state.get(state, 0) + (state == current)
            if more >= by_state.get(likeliest, 0):
                after.likeliest = state
        return (
            state == current,
            quantise.to_state(average) == state,
            by_likeliest,
        )
