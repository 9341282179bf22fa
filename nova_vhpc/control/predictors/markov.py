# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Markov predictor."""

from nova_vhpc.control.predictors import base, context_counts

ORDER = 1
"""Order of the paper's "standard Markov predictor"."""


class MarkovPredictor:
    """Markov of order k (I/O-perception paper, section III.A, [13]).

    Predicts the state that most often followed the last k states. If these
    were never seen before, the last k-1 decide, and so on; if the last state
    is new, it is expected to stay. Of states that followed equally often,
    the current one wins, then the one that was seen first.

    :param order: number of states in a context, at least 1.
    :raises ValueError: ``order`` is below 1.
    """

    __slots__ = ('_followers', '_history', '_order', '_table')

    def __init__(self, order: int = ORDER) -> None:
        if order < 1:
            raise ValueError(f'order must be at least 1, not {order}')
        self._order = order
        self._history: tuple[int, ...] = ()
        self._table = context_counts.CountTable()
        # Counts of what followed the history, the longest context first.
        self._followers: list[context_counts.Counts] = []

    def observe(self, state: int, events: float) -> None:
        """Count the transition for contexts of every length."""
        state = base.clean_state(state)
        table = self._table
        for counts in self._followers:
            table.add(counts, state)
        history = self._history = (*self._history, state)[-self._order :]
        # The longest context is used first here, so it is dropped first.
        self._followers = [
            table.use(history[start:]) for start in range(len(history))
        ]

    def predict(self) -> int:
        """Return the most frequent successor of the longest known context."""
        history = self._history
        if not history:
            return base.IDLE_STATE
        current = history[-1]
        for counts in self._followers:
            by_state = counts.by_state
            if by_state:
                most = max(by_state.values())
                if by_state.get(current) == most:
                    return current
                return next(s for s, n in by_state.items() if n == most)
        return current

    @property
    def state_bytes(self) -> int:
        """See :class:`~.base.Predictor`."""
        return base.deep_bytes(self)
