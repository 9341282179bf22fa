# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Moves of members between hosts, which the local search tries.

:func:`promising` and :func:`emptied` choose by marginal costs;
:func:`neighbours` lists all neighbouring placements.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nova_vhpc.scheduler.planner.host_groups import HostPool
from nova_vhpc.scheduler.planner.marginal_cost import MarginalCosts
from nova_vhpc.scheduler.planner.objective import Counts

MOST_SPARE = 48
"""Most unused hosts whose marginal costs are computed."""

MOST_TARGETS = 3
"""Most hosts, the cheapest ones, to which a host's members may move."""


class Move(NamedTuple):
    """A move of new members from one host to another.

    :ivar source: position of the host that loses members.
    :ivar target: position of the host that gains them.
    :ivar amount: number of moved members.
    """

    source: int
    target: int
    amount: int

    def of(self, counts: Counts, capacity: Sequence[int]) -> Counts | None:
        """Return the placement after the move, None if it is impossible."""
        have = counts.get(self.source, 0) - self.amount
        there = counts.get(self.target, 0) + self.amount
        if have < 0 or there > capacity[self.target]:
            return None
        return {**counts, self.source: have, self.target: there}


def promising(
    marginal_costs: MarginalCosts,
    capacity: Sequence[int],
    spare: Sequence[int],
) -> list[Move]:
    """Return moves that pay according to marginal costs.

    All members of a host, half of them, or one may move.

    :param spare: unused hosts that members may move to.
    :returns: moves, the most promising first.
    """
    counts = marginal_costs.counts
    targets = list(dict.fromkeys((*counts, *spare[:MOST_SPARE])))
    rest_us = marginal_costs.worst_without(marginal_costs.dearest[0])
    valued_moves: list[tuple[int, float, Move]] = []
    for amount, sources in _amounts(counts).items():
        offers = []
        for target in targets:
            if capacity[target] - counts.get(target, 0) >= amount:
                addition = marginal_costs.change(target, amount)
                value_us = marginal_costs.objective.value_us(
                    addition.total_us, max(addition.each_us, rest_us)
                )
                offers.append((addition.first, value_us, target, addition))
        offers.sort(key=lambda offer: offer[:3])
        # One more than needed, because a host may be its own best target.
        offers = offers[: MOST_TARGETS + 1]
        for source in sources:
            removal = marginal_costs.change(source, -amount)
            for _, _, target, addition in offers:
                worst_us = max(
                    marginal_costs.worst_without(source, target),
                    addition.each_us,
                    removal.each_us,
                )
                value = (
                    addition.first + removal.first,
                    marginal_costs.objective.value_us(
                        addition.total_us + removal.total_us,
                        worst_us - marginal_costs.worst_us,
                    ),
                )
                if target != source and value < (0, 0.0):
                    valued_moves.append((*value, Move(source, target, amount)))
    valued_moves.sort()
    return [move for _, _, move in valued_moves]


def emptied(
    marginal_costs: MarginalCosts,
    capacity: Sequence[int],
    spare: Sequence[int],
    have: int,
) -> Counts | None:
    """Return the placement after the members of a host were spread.

    The members may need several other hosts, which a sequence of single
    moves does not find if each of the moves makes the placement worse.

    :param marginal_costs: marginal costs of the placement without the host.
    :param spare: unused hosts, the emptied one excluded.
    :param have: number of members of the emptied host.
    :returns: None if the members do not fit on the other hosts.
    """
    counts = marginal_costs.counts
    offers = []
    for target in dict.fromkeys((*counts, *spare[:MOST_SPARE])):
        free = min(capacity[target] - counts.get(target, 0), have)
        if free > 0:
            addition = marginal_costs.change(target, free)
            slower_us = max(0.0, addition.each_us - marginal_costs.worst_us)
            value_us = marginal_costs.objective.value_us(
                addition.total_us, slower_us
            )
            offers.append((addition.first, value_us / free, target, free))
    offers.sort()
    changed = dict(counts)
    for _, _, target, free in offers:
        more = min(have, free)
        changed[target] = changed.get(target, 0) + more
        have -= more
        if not have:
            return changed
    return None


def neighbours(
    pool: HostPool, counts: Counts, spare: Sequence[int]
) -> Iterator[tuple[int, Counts | None]]:
    """Yield all placements that are one move away.

    All members of a host, half of them, or one move.

    :returns: number of pairs of hosts visited since the last item, and a
        placement, or None at the end of a source host's targets.
    """
    capacity = pool.capacity
    used = sorted(
        (index for index, new in counts.items() if new),
        key=lambda index: counts[index],
    )
    targets = used[::-1] + [index for index in spare if not counts.get(index)]
    for source in used:
        have = counts[source]
        amounts = dict.fromkeys((have, 1, have // 2))
        pairs = 0
        for target in targets:
            pairs += 1
            if target == source:
                continue
            free = capacity[target] - counts.get(target, 0)
            for amount in amounts:
                if 0 < amount <= free:
                    changed = dict(counts)
                    changed[source] = have - amount
                    changed[target] = counts.get(target, 0) + amount
                    yield pairs, changed
                    pairs = 0
        yield pairs, None


def spare_hosts(pool: HostPool, counts: Counts) -> list[int]:
    """Return unused hosts worth moving to: the largest, near by and anywhere.

    Hosts near running members come last, because there may be hundreds.
    """
    objective = pool.objective
    hosts = objective.hosts
    spare = [i for i in pool.everything.order[:24] if i not in counts][:8]
    spare += [i for i in objective.existing if pool.capacity[i]][:8]
    for part in (counts, objective.existing):
        for name in dict.fromkeys(hosts[index].switch for index in part):
            if name is not None and name in pool.switches:
                near = pool.switches[name].order[:12]
                spare += [i for i in near if i not in counts][:4]
    return [i for i in dict.fromkeys(spare) if i not in counts]


def _amounts(counts: Counts) -> dict[int, list[int]]:
    """Return, by number of members to move, the hosts to move them from."""
    sources: dict[int, list[int]] = {}
    for index, have in counts.items():
        for amount in dict.fromkeys((have, 1, have // 2)):
            if amount:
                sources.setdefault(amount, []).append(index)
    return sources
