# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bounded tables: how often each state followed each context."""

import sys
from collections.abc import Hashable

MAX_CONTEXTS = 256
MAX_SUCCESSORS = 16


class Counts:
    """How often each state followed one context.

    :ivar by_state: number of times that each state followed; read-only.
    :ivar total: sum of these numbers.
    :ivar likeliest: state that followed most often, if the context is a
        single state; None while that is the state itself. Kept up to date
        by :class:`~.mixture.change_bias.Baselines`.
    """

    __slots__ = ('by_state', 'likeliest', 'total')

    def __init__(self) -> None:
        self.by_state: dict[int, int] = {}
        self.total = 0
        self.likeliest: int | None = None


class CountTable:
    """Counts of successors by context, in bounded memory.

    :param max_contexts: number of contexts kept; the least recently used is
        dropped.
    :param max_successors: number of states kept per context; the rarest is
        dropped.
    :param ceiling: count at which all counts of its context are halved, so
        that old periods weigh less; None to never forget.
    """

    __slots__ = ('_ceiling', '_contexts', '_max_contexts', '_max_successors')

    def __init__(
        self,
        max_contexts: int = MAX_CONTEXTS,
        max_successors: int = MAX_SUCCESSORS,
        ceiling: int | None = None,
    ) -> None:
        self._contexts: dict[Hashable, Counts] = {}
        self._max_contexts = max_contexts
        self._max_successors = max_successors
        self._ceiling = sys.maxsize if ceiling is None else ceiling

    def use(self, context: Hashable) -> Counts:
        """Return the counts of a context; empty ones if it is new."""
        contexts = self._contexts
        # Removed and inserted again: a dict is in order of insertion, which
        # so becomes the order of last use.
        counts = contexts.pop(context, None)
        if counts is None:
            counts = Counts()
            if len(contexts) >= self._max_contexts:
                del contexts[next(iter(contexts))]
        contexts[context] = counts
        return counts

    def add(self, counts: Counts, state: int) -> None:
        """Count one occurrence of a state after the context of ``counts``."""
        by_state = counts.by_state
        count = by_state.get(state)
        if count is None:
            if len(by_state) >= self._max_successors:
                rarest = min(by_state, key=by_state.__getitem__)
                counts.total -= by_state.pop(rarest)
            by_state[state] = 1
            counts.total += 1
        elif count < self._ceiling:
            by_state[state] = count + 1
            counts.total += 1
        else:
            by_state[state] = count + 1
            _halve(counts)

    def learn(self, state: int, *contexts: Counts) -> None:
        """Count one occurrence of a state after each of several contexts.

        The common case, in which no limit is reached, is handled here
        because a call of :meth:`add` takes longer than the rest.
        """
        ceiling = self._ceiling
        for counts in contexts:
            by_state = counts.by_state
            count = by_state.get(state, ceiling)
            if count < ceiling:
                by_state[state] = count + 1
                counts.total += 1
            else:
                self.add(counts, state)


def _halve(counts: Counts) -> None:
    counts.by_state = {
        key: value // 2 for key, value in counts.by_state.items() if value > 1
    }
    counts.total = sum(counts.by_state.values())
