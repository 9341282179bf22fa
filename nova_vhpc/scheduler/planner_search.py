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

The best patterns are improved by moving members. The work is bounded,
whatever the number of hosts.
"""

import heapq
from collections.abc import Iterator, Sequence

from nova_vhpc.scheduler.planner_field import Field
from nova_vhpc.scheduler.planner_objective import Counts, Value
from nova_vhpc.scheduler.planner_patterns import balanced, patterns

MOST_STARTS = 3
"""Patterns of each field that are improved by moves."""

MOVE_WORK = 6000
"""Hosts that the moves of a field's patterns together may look at."""

PAIR_WORK = 0.1
"""What it costs to see that a host has no room for another one's members,
against a look at a host: thousands of full hosts make millions of pairs."""


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
    starts: list[tuple[Value, int, Counts]] = []
    seen: set[tuple[tuple[int, int], ...]] = set()
    for part in starts_in or (field,):
        ranked: list[tuple[Value, int, Counts]] = []
        for pattern in patterns(part):
            for counts in (pattern, balanced(pattern, part.room)):
                key = tuple(sorted(counts.items()))
                if key not in seen:
                    seen.add(key)
                    ranked.append((objective.value(counts), len(seen), counts))
        # Some of each: what is cheapest to begin with need not be in the end.
        starts += heapq.nsmallest(
            MOST_STARTS, ranked, key=lambda item: item[:2]
        )
    each = min(len(starts), MOST_STARTS)
    improved = [
        improve(field, counts, value, MOVE_WORK // each)
        for value, _, counts in starts
    ]
    return min(improved, key=lambda item: item[0])[1]


def improve(
    field: Field, counts: Counts, value: Value, work: float = MOVE_WORK
) -> tuple[Value, Counts]:
    """Move members while that pays and the work allows it.

    :param work: hosts that all moves together may look at.
    """
    objective = field.objective
    spare = _spare_hosts(field, counts)
    paid = True
    while paid and work > 0:
        paid = False
        for pairs, changed in _moves(field, counts, spare):
            work -= pairs * PAIR_WORK
            if changed is not None:
                new_value = objective.value(changed)
                work -= max(len(changed), objective.looked_at)
                if new_value < _less(value):
                    counts, value = changed, new_value
                    paid = True
                    break
            if work <= 0:
                break
    return value, {index: new for index, new in counts.items() if new}


def _less(value: Value) -> Value:
    """A value that is better by more than rounding."""
    return value[0], value[1] - 1e-9 * abs(value[1])


def _spare_hosts(field: Field, counts: Counts) -> list[int]:
    """Unused hosts worth moving to: the roomiest near by and anywhere."""
    objective = field.objective
    hosts = objective.hosts
    merged = objective.merged(counts)
    found: list[int] = []
    near = {hosts[index].switch for index in merged}
    for name, group in field.switches.items():
        if name in near:
            found += [i for i in group.order[:12] if i not in counts][:4]
    found += [i for i in field.everything.order[:24] if i not in counts][:8]
    found += [i for i in objective.existing if field.room[i]][:8]
    return [i for i in dict.fromkeys(found) if i not in counts]


def _moves(
    field: Field, counts: Counts, spare: list[int]
) -> Iterator[tuple[int, Counts | None]]:
    """Neighbours of a placement: empty a host, or move one or half.

    :returns: pairs of hosts looked at since the last answer, and a
        placement; None when a host has no (further) one.
    """
    room = field.room
    used = sorted(
        (index for index, new in counts.items() if new),
        key=lambda index: counts[index],
    )
    # What was emptied on the way may be worth coming back to.
    unused = dict.fromkeys((*spare, *counts))
    targets = used[::-1] + [i for i in unused if not counts.get(i)]
    for source in used:
        have = counts[source]
        amounts = dict.fromkeys((have, 1, have // 2))
        pairs = 0
        for target in targets:
            pairs += 1
            if target == source:
                continue
            free = room[target] - counts.get(target, 0)
            for amount in amounts:
                if 0 < amount <= free:
                    changed = dict(counts)
                    changed[source] = have - amount
                    changed[target] = counts.get(target, 0) + amount
                    yield pairs, changed
                    pairs = 0
        yield pairs, None
