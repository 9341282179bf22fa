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


"""The search for a good placement: patterns first, then small moves.

The best patterns are improved by moving members: what looks best by its
prices first, then, from where that leads no further, whatever pays. The work
is bounded, whatever the number of hosts.
"""

import bisect
import heapq
from collections.abc import Sequence

from nova_vhpc.scheduler.planner import moves
from nova_vhpc.scheduler.planner.host_groups import Field
from nova_vhpc.scheduler.planner.marginal_cost import Prices
from nova_vhpc.scheduler.planner.objective import Counts, Value
from nova_vhpc.scheduler.planner.seeds import balanced, patterns

MOST_STARTS = 3
"""Patterns of each field that are improved by moves."""

MOVE_WORK = 6000
"""Hosts that the moves of a field's patterns together may look at."""

PAIR_WORK = 0.1
"""What it costs to see that a host has no room for another one's members,
against a look at a host: thousands of full hosts make millions of pairs."""

PRICE_WORK = 3
"""What a price costs, against a look at a host."""

MOST_LOST = 6
"""Promising moves that may turn out not to pay before others are tried."""

MOST_EMPTIED = 6
"""Hosts, those of the slowest members, that are tried to do without."""

_Key = tuple[tuple[int, int], ...]


def search(field: Field, starts_in: Sequence[Field] = ()) -> Counts | None:
    """Least-cost placement that was found, None if there is no room.

    Deterministic: the hosts' order breaks ties.

    :param starts_in: fields of the same hosts, with no more room, to find
        patterns in; the field itself if none is given.
    """
    objective = field.objective
    members = objective.request.members
    if field.everything.holds(members) < members:
        return None
    starts: dict[_Key, Counts] = {}
    values: dict[_Key, Value] = {}
    for part in starts_in or (field,):
        found: dict[_Key, Counts] = {}
        best: list[Value] = []

        def hopeless(least: Value, best: Sequence[Value] = best) -> bool:
            """Whether no start comes of placements of at least a value."""
            return len(best) == MOST_STARTS and least > best[-1]

        for pattern in patterns(part, hopeless):
            evened = balanced(pattern, part.room)
            both = (pattern, evened) if evened is not pattern else (pattern,)
            for counts in both:
                key = tuple(sorted(counts.items()))
                if key not in values:
                    values[key] = objective.value(counts)
                if key not in starts and key not in found:
                    found[key] = counts
                    bisect.insort(best, values[key])
                    del best[MOST_STARTS:]
        # Some of each: what is cheapest to begin with need not be in the end.
        for key in heapq.nsmallest(MOST_STARTS, found, key=values.__getitem__):
            starts[key] = found[key]
    each = min(len(starts), MOST_STARTS)
    improved = [
        improve(field, counts, values[key], MOVE_WORK // each)
        for key, counts in starts.items()
    ]
    return min(improved, key=lambda item: item[0])[1]


def improve(
    field: Field, counts: Counts, value: Value, work: float = MOVE_WORK
) -> tuple[Value, Counts]:
    """Move members while that pays and the work allows it.

    :param work: hosts that all moves together may look at.
    """
    climb = _Climb(field, counts, value, work)
    while climb.work > 0 and climb.step():
        pass
    return climb.value, {i: new for i, new in climb.counts.items() if new}


class _Climb:
    """One placement on its way to a better one.

    :ivar work: what is left to be spent.
    """

    def __init__(
        self, field: Field, counts: Counts, value: Value, work: float
    ) -> None:
        self.counts = counts
        self.value = value
        self.work = work
        self._field = field
        self._spare = moves.spare_hosts(field, counts)

    def step(self) -> bool:
        """Make it better; False if no move was found that does."""
        # What was emptied on the way may be worth coming back to.
        spare = list(dict.fromkeys((*self._spare, *self.counts)))
        prices = Prices(self._field.objective, self.counts)
        paid = self._promising(prices, spare)
        return paid or self._emptied(prices, spare) or self._any(spare)

    def _promising(self, prices: Prices, spare: list[int]) -> bool:
        room = self._field.room
        found = moves.promising(prices, room, spare)
        self.work -= PRICE_WORK * prices.work
        paid = False
        lost = 0
        for move in found:
            if lost == MOST_LOST or self.work <= 0:
                break
            # The prices of a host that has changed since may be wrong.
            changed = move.of(self.counts, room)
            if changed is not None:
                if self._take(changed):
                    paid = True
                else:
                    lost += 1
        return paid

    def _emptied(self, prices: Prices, spare: list[int]) -> bool:
        for source in prices.dearest[:MOST_EMPTIED]:
            rest = {i: new for i, new in self.counts.items() if i != source}
            if self.work <= 0 or not any(rest.values()):
                break
            after = Prices(self._field.objective, rest)
            changed = moves.emptied(
                after,
                self._field.room,
                [index for index in spare if index != source],
                self.counts[source],
            )
            self.work -= PRICE_WORK * after.work
            if changed is not None and self._take(changed):
                return True
        return False

    def _any(self, spare: list[int]) -> bool:
        for pairs, changed in moves.neighbours(
            self._field, self.counts, spare
        ):
            self.work -= pairs * PAIR_WORK
            if changed is not None and self._take(changed):
                return True
            if self.work <= 0:
                break
        return False

    def _take(self, changed: Counts) -> bool:
        """Go on with a placement if it is better by more than rounding."""
        objective = self._field.objective
        first, cost_us = objective.value(changed)
        self.work -= max(len(changed), objective.looked_at)
        most = self.value[1] - 1e-9 * abs(self.value[1])
        if (first, cost_us) >= (self.value[0], most):
            return False
        self.counts, self.value = changed, (first, cost_us)
        return True
