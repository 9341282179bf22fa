# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Find a good placement: construct seeds, then improve the best of them.

A local search moves members between hosts. It first tries the moves that
look best by their marginal costs and, when these do not pay any more, all
neighbouring placements. A budget of work bounds the search, whatever the
number of hosts.
"""

import bisect
import heapq
from collections.abc import Sequence

from nova_vhpc.scheduler.planner import moves
from nova_vhpc.scheduler.planner.host_groups import HostPool
from nova_vhpc.scheduler.planner.marginal_cost import MarginalCosts
from nova_vhpc.scheduler.planner.objective import Counts, Value
from nova_vhpc.scheduler.planner.seeds import balanced, seeds

MOST_IMPROVED = 3
"""Most seeds of each pool that the local search improves."""

MOVE_WORK = 6000
"""Budget of work for improving the seeds of one pool, in visited hosts."""

PAIR_WORK = 0.1
"""Work of finding that one host cannot take another's members, in visited
hosts. It counts because thousands of full hosts make millions of pairs."""

MARGINAL_COST_WORK = 3
"""Work of computing one marginal cost, in visited hosts."""

MOST_LOST = 6
"""Promising moves that may fail to pay before other moves are tried."""

MOST_EMPTIED = 6
"""Most hosts, those of the slowest members, that are tried to empty."""

_Key = tuple[tuple[int, int], ...]


def search(
    pool: HostPool, seed_pools: Sequence[HostPool] = ()
) -> Counts | None:
    """Search for the placement of least value.

    Deterministic: the order of the hosts breaks ties.

    :param seed_pools: pools to construct seeds in, of the same hosts with
        the same or less capacity; if empty, ``pool`` itself.
    :returns: number of new members by host, None if they do not fit.
    """
    objective = pool.objective
    members = objective.request.members
    if pool.everything.holds(members) < members:
        return None
    chosen: dict[_Key, Counts] = {}
    values: dict[_Key, Value] = {}
    for part in seed_pools or (pool,):
        candidates: dict[_Key, Counts] = {}
        best: list[Value] = []

        def hopeless(least: Value, best: Sequence[Value] = best) -> bool:
            """Return whether a seed of this value would not be improved."""
            return len(best) == MOST_IMPROVED and least > best[-1]

        for seed in seeds(part, hopeless):
            evened = balanced(seed, part.capacity)
            both = (seed, evened) if evened is not seed else (seed,)
            for counts in both:
                key = tuple(sorted(counts.items()))
                if key not in values:
                    values[key] = objective.value(counts)
                if key not in chosen and key not in candidates:
                    candidates[key] = counts
                    bisect.insort(best, values[key])
                    del best[MOST_IMPROVED:]
        # Take some seeds of each pool: the cheapest seed need not lead to the
        # cheapest placement.
        for key in heapq.nsmallest(
            MOST_IMPROVED, candidates, key=values.__getitem__
        ):
            chosen[key] = candidates[key]
    each = min(len(chosen), MOST_IMPROVED)
    improved = [
        improve(pool, counts, values[key], MOVE_WORK // each)
        for key, counts in chosen.items()
    ]
    return min(improved, key=lambda item: item[0])[1]


def improve(
    pool: HostPool, counts: Counts, value: Value, work: float = MOVE_WORK
) -> tuple[Value, Counts]:
    """Improve a placement by moves while they pay and the budget lasts.

    :param work: budget of work, in visited hosts.
    """
    local_search = _LocalSearch(pool, counts, value, work)
    while local_search.work > 0 and local_search.step():
        pass
    return local_search.value, {
        i: new for i, new in local_search.counts.items() if new
    }


class _LocalSearch:
    """Hill climbing from one placement.

    :ivar counts: the best placement so far.
    :ivar value: the value of that placement.
    :ivar work: remaining budget, in visited hosts.
    """

    def __init__(
        self, pool: HostPool, counts: Counts, value: Value, work: float
    ) -> None:
        self.counts = counts
        self.value = value
        self.work = work
        self._pool = pool
        self._spare = moves.spare_hosts(pool, counts)

    def step(self) -> bool:
        """Improve the placement; return whether a move did."""
        # Hosts that earlier moves emptied may be worth using again.
        spare = list(dict.fromkeys((*self._spare, *self.counts)))
        marginal_costs = MarginalCosts(self._pool.objective, self.counts)
        paid = self._promising(marginal_costs, spare)
        return paid or self._emptied(marginal_costs, spare) or self._any(spare)

    def _promising(
        self, marginal_costs: MarginalCosts, spare: list[int]
    ) -> bool:
        capacity = self._pool.capacity
        promising_moves = moves.promising(marginal_costs, capacity, spare)
        self.work -= MARGINAL_COST_WORK * marginal_costs.work
        paid = False
        lost = 0
        for move in promising_moves:
            if lost == MOST_LOST or self.work <= 0:
                break
            # Marginal costs are those before the moves of this loop, so a
            # later move may not pay although it looked so.
            changed = move.of(self.counts, capacity)
            if changed is not None:
                if self._take(changed):
                    paid = True
                else:
                    lost += 1
        return paid

    def _emptied(
        self, marginal_costs: MarginalCosts, spare: list[int]
    ) -> bool:
        for source in marginal_costs.dearest[:MOST_EMPTIED]:
            rest = {i: new for i, new in self.counts.items() if i != source}
            if self.work <= 0 or not any(rest.values()):
                break
            after = MarginalCosts(self._pool.objective, rest)
            changed = moves.emptied(
                after,
                self._pool.capacity,
                [index for index in spare if index != source],
                self.counts[source],
            )
            self.work -= MARGINAL_COST_WORK * after.work
            if changed is not None and self._take(changed):
                return True
        return False

    def _any(self, spare: list[int]) -> bool:
        for pairs, changed in moves.neighbours(self._pool, self.counts, spare):
            self.work -= pairs * PAIR_WORK
            if changed is not None and self._take(changed):
                return True
            if self.work <= 0:
                break
        return False

    def _take(self, changed: Counts) -> bool:
        """Accept a placement if it is better by more than rounding.

        Charge the budget for valuing it, and return whether it was accepted.
        """
        objective = self._pool.objective
        first, cost_us = objective.value(changed)
        self.work -= max(len(changed), objective.looked_at)
        most = self.value[1] - 1e-9 * abs(self.value[1])
        if (first, cost_us) >= (self.value[0], most):
            return False
        self.counts, self.value = changed, (first, cost_us)
        return True
