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

from collections.abc import Hashable, Mapping

MAX_CONTEXTS = 256
MAX_SUCCESSORS = 16

NOTHING: Mapping[int, int] = {}


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
        self._contexts: dict[Hashable, dict[int, int]] = {}
        self._max_contexts = max_contexts
        self._max_successors = max_successors
        self._ceiling = ceiling

    def add(self, context: Hashable, state: int) -> None:
        """Count that a state followed a context."""
        contexts = self._contexts
        # Taken out and put back, so that the order is that of last use.
        counts = contexts.pop(context, None)
        if counts is None:
            counts = {}
            if len(contexts) >= self._max_contexts:
                del contexts[next(iter(contexts))]
        contexts[context] = counts
        count = counts.get(state)
        if count is not None:
            counts[state] = count + 1
            if self._ceiling is not None and count >= self._ceiling:
                contexts[context] = {
                    key: value // 2
                    for key, value in counts.items()
                    if value > 1
                }
        else:
            if len(counts) >= self._max_successors:
                del counts[min(counts, key=counts.__getitem__)]
            counts[state] = 1

    def get(self, context: Hashable) -> Mapping[int, int]:
        """Counts of what followed a context; empty if it was never met."""
        return self._contexts.get(context, NOTHING)
