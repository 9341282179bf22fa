# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Find a good placement: construct seeds, then improve the best of them.

A local search moves members between hosts while that lowers the value of the
placement. A budget of work bounds it, whatever the number of hosts.
"""

import heapq
from collections.abc import Iterator, Sequence

from nova_vhpc.scheduler.planner.host_groups import HostPool
from nova_vhpc.scheduler.planner.objective import Counts, Value
from nova_vhpc.scheduler.planner.seeds import balanced, seeds

MOST_IMPROVED = 3
"""Most seeds of each pool that the local search improves."""

MOVE_WORK = 9000
"""Budget of work for improving the seeds of one pool, in visited hosts."""

PAIR_WORK = 0.1
"""Work of finding that one host cannot take another's members, in visited
hosts. It counts because thousands of full hosts make millions of pairs."""

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
        for seed in seeds(part):
            evened = balanced(seed, part.capacity)
            for counts in (seed, evened) if evened is not seed else (seed,):
                key = tuple(sorted(counts.items()))
                if key not in values:
                    values[key] = objective.value(counts)
                if key not in chosen:
                    candidates[key] = counts
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

    :param value: value of the placement.
    :param work: budget of work, in visited hosts.
    :returns: value of the improved placement, and the placement.
    """
    objective = pool.objective
    spare = _spare_hosts(pool, counts)
    improved = True
    while improved and work > 0:
        improved = False
        # Hosts that earlier moves emptied may be worth using again.
        targets = list(dict.fromkeys((*spare, *counts)))
        for pairs, changed in _neighbours(pool, counts, targets):
            work -= pairs * PAIR_WORK
            if changed is not None:
                changed_value = objective.value(changed)
                work -= max(len(changed), objective.looked_at)
                # Rounding must not pass for an improvement.
                most = (value[0], value[1] - 1e-9 * abs(value[1]))
                if changed_value < most:
                    counts, value, improved = changed, changed_value, True
                    break
            if work <= 0:
                break
    return value, {index: new for index, new in counts.items() if new}


def _neighbours(
    pool: HostPool, counts: Counts, spare: Sequence[int]
) -> Iterator[tuple[int, Counts | None]]:
    """Yield all placements that are one move away.

    All members of a host, or one of them, move.

    :param spare: unused hosts that members may move to.
    :returns: number of pairs of hosts visited since the last item, and a
        placement, or None at the end of a source host's targets.
    """
    capacity = pool.capacity
    objective = pool.objective
    merged = objective.merged(counts)
    switches, racks = objective.spread(counts)
    used = [index for index, new in counts.items() if new]
    targets = sorted(used, key=counts.__getitem__, reverse=True) + [
        index for index in spare if not counts.get(index)
    ]
    each_us = {
        index: objective.walk({index: merged[index]}, counts, switches, racks)[
            1
        ]
        for index in used
    }
    used.sort(key=lambda index: (-each_us[index], counts[index]))
    for source in used:
        have = counts[source]
        amounts = dict.fromkeys((have, 1))
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


def _spare_hosts(pool: HostPool, counts: Counts) -> list[int]:
    """Return unused hosts worth moving to: the largest, then those near by."""
    objective = pool.objective
    hosts = objective.hosts
    spare = [i for i in pool.everything.order[:24] if i not in counts][:8]
    spare += [i for i in objective.existing if pool.capacity[i]][:8]
    for name in dict.fromkeys(hosts[index].switch for index in counts):
        if name is not None and name in pool.switches:
            near = pool.switches[name].order[:12]
            spare += [i for i in near if i not in counts][:4]
    return [i for i in dict.fromkeys(spare) if i not in counts]
