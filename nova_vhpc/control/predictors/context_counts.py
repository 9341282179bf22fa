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

"""Bounded tables of how often which state followed which context."""

import sys
from collections.abc import Hashable

MAX_CONTEXTS = 256
MAX_SUCCESSORS = 16


class Counts:
    """How often each state followed one context.

    :ivar by_state: the counts; to be read only.
    :ivar total: their sum.
    :ivar likeliest: of what followed a state, the state that did so most
        often, kept by the baselines; None while it is that state.
    """

    __slots__ = ('by_state', 'likeliest', 'total')

    def __init__(self) -> None:
        self.by_state: dict[int, int] = {}
        self.total = 0
        self.likeliest: int | None = None


class CountTable:
    """Successor counts by context; forgets the longest unused context.

    :param max_contexts: contexts kept.
    :param max_successors: states kept per context; the rarest is dropped.
    :param ceiling: when a count reaches it, all of its context are halved,
        so that what is long past fades; None to never forget.
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
        """Counts of what followed a context, empty if it was never met."""
        contexts = self._contexts
        # Taken out and put back, so that the order is that of last use.
        counts = contexts.pop(context, None)
        if counts is None:
            counts = Counts()
            if len(contexts) >= self._max_contexts:
                del contexts[next(iter(contexts))]
        contexts[context] = counts
        return counts

    def add(self, counts: Counts, state: int) -> None:
        """Count that a state followed the context of these counts."""
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
        """The same for several contexts, quickly where nothing is new."""
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
