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


"""From gangs and their CPUs to windows (an Ousterhout matrix, in effect).

Gangs that share a CPU take turns; gangs on disjoint CPUs do not mind each
other and have windows at the same time. What a turn leaves free goes to
whoever fits there: alternate selection, in Ousterhout's words.
"""

import bisect
import dataclasses
import functools
import operator
from collections.abc import Sequence

MOST_TURNS = 24
"""In a rotation, unless more gangs than that have to take turns."""

NEARLY = 0.95
"""Of what is possible for whoever has least, for a short rotation."""


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in which no weight changes.

    :ivar favoured: who is to run; nobody in a pause, which belongs to the
        VMs that take no part.
    """

    width_us: int
    favoured: frozenset[str]


Timeline = list[Window]
"""One rotation."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gang:
    """VMs whose vCPUs are to run at the same time.

    :ivar key: what hosts agree on: the cluster's id, or the VM's uuid.
    :ivar members: VM uuids.
    :ivar cpus: host CPUs that they are pinned to.
    :ivar weight: of one of its vCPUs, to divide time by.
    """

    key: str
    members: frozenset[str]
    cpus: frozenset[int]
    weight: float


def islands(gangs: Sequence[Gang]) -> list[list[Gang]]:
    """Group gangs that share CPUs, directly or through others.

    Inside an island gangs are in order of their keys, so that hosts with
    the same clusters rotate in the same order.
    """
    # By CPU, a place in the list; an island that was joined to another is
    # left empty there, so that time grows with CPUs and not with pairs.
    found: list[list[Gang]] = []
    of_cpu: dict[int, int] = {}
    cpus: list[set[int]] = []
    for gang in gangs:
        touching = {of_cpu[cpu] for cpu in gang.cpus if cpu in of_cpu}
        if touching:
            home = max(touching, key=lambda place: (len(cpus[place]), place))
        else:
            home = len(found)
            found.append([])
            cpus.append(set())
        for place in sorted(touching - {home}):
            found[home] += found[place]
            found[place] = []
            for cpu in cpus[place]:
                of_cpu[cpu] = home
            cpus[home] |= cpus[place]
            cpus[place] = set()
        found[home].append(gang)
        cpus[home] |= gang.cpus
        for cpu in gang.cpus:
            of_cpu[cpu] = home
    sorted_islands = [
        sorted(island, key=lambda one: one.key) for island in found if island
    ]
    return sorted(sorted_islands, key=lambda island: island[0].key)


def turns(island: Sequence[Gang]) -> list[frozenset[str]]:
    """Who runs in each turn of an island's rotation.

    All turns are equally long. Whoever has had least of them for its weight
    is first, with all others that then find their CPUs free, in the same
    order: stride scheduling (Waldspurger and Weihl, 1995), of gangs. Among
    equals the widest are first, and the narrow ones fill what these leave:
    that makes fewer turns. After so many turns everybody has had one, and he
    who has least for his weight has nearly as much as after more of them.

    :returns: members by turn, in order of the gangs' keys, and those of equal
        turns apart from each other.
    """
    gangs = sorted(island, key=lambda one: (-len(one.cpus), one.key))
    # Many gangs, few different sets of CPUs.
    mask_of = {
        cpus: sum(1 << cpu for cpu in cpus)
        for cpus in {gang.cpus for gang in gangs}
    }
    masks = [mask_of[gang.cpus] for gang in gangs]
    narrowest = min(len(gang.cpus) for gang in gangs)
    every_cpu = functools.reduce(operator.or_, masks, 0)
    had = [0] * len(gangs)
    waiting = len(gangs)
    queue = [(0.0, place) for place in range(len(gangs))]
    chosen: list[list[int]] = []
    least: list[float] = []
    while waiting or len(chosen) < MOST_TURNS:
        free = every_cpu
        served: list[int] = []
        for number, (_, place) in enumerate(queue):
            mask = masks[place]
            if free & mask == mask:
                free ^= mask
                served.append(number)
                if free.bit_count() < narrowest:
                    break
        turn = [queue[number][1] for number in served]
        # From the last, which leaves the numbers of those before it.
        for number in reversed(served):
            del queue[number]
        for place in turn:
            waiting -= not had[place]
            had[place] += 1
            bisect.insort(queue, (had[place] / gangs[place].weight, place))
        chosen.append(turn)
        least.append(queue[0][0] / len(chosen))
    enough = NEARLY * max(least)
    number = next(n for n, one in enumerate(least, 1) if one >= enough)
    return _in_order(
        [[gangs[place] for place in turn] for turn in chosen[:number]]
    )


def _in_order(chosen: Sequence[Sequence[Gang]]) -> list[frozenset[str]]:
    """Hosts with the same gangs are to have them at the same time."""
    alike: dict[frozenset[str], list[str]] = {}
    for turn in chosen:
        members = frozenset().union(*(gang.members for gang in turn))
        alike.setdefault(members, []).append(min(gang.key for gang in turn))
    ordered = sorted(
        ((number + 0.5) / len(keys), key, sorted(members))
        for members, keys in alike.items()
        for number, key in enumerate(keys)
    )
    return [frozenset(members) for _, _, members in ordered]


def rotation(
    island: Sequence[Gang],
    window_us: int,
    others_part: float,
    min_window_us: int,
    alone: bool = False,
) -> Timeline:
    """One rotation of an island: a window for each turn, and for others.

    :param window_us: width of the turns' windows.
    :param others_part: part of the whole time in which no gang of the
        island is favoured; 0 for none.
    :param min_window_us: windows for others are not made shorter; there
        are fewer instead.
    :param alone: whether a gang without others has a window all the same, as
        what it weighs in it leaves others something.
    :returns: empty if there is nothing to take turns with.
    """
    if len(island) < 2 and others_part <= 0 and not alone:
        return []
    in_turn = turns(island)
    others_us = round(
        len(in_turn) * window_us * others_part / (1 - others_part)
    )
    pauses = min(len(in_turn), max(1, others_us // min_window_us))
    timeline: Timeline = []
    paused_us = 0
    for number, members in enumerate(in_turn, start=1):
        timeline.append(Window(window_us, members))
        due_us = others_us * (number * pauses // len(in_turn)) // pauses
        if others_us and due_us > paused_us:
            timeline.append(Window(due_us - paused_us, frozenset()))
            paused_us = due_us
    return timeline


def merge(rotations: Sequence[Timeline]) -> Timeline:
    """Play several islands' rotations side by side.

    All are stretched to the longest one; shorter ones are repeated within
    it, as often as they fit. A stretched window is at most twice as long.
    """
    turning = [one for one in rotations if one]
    if len(turning) < 2:
        return turning[0] if turning else []
    cycle_us = max(length_us(one) for one in turning)
    borders: set[int] = set()
    plans: list[list[tuple[int, Window]]] = []
    for one in turning:
        times = cycle_us // length_us(one)
        total_us = length_us(one) * times
        at_us = 0
        plan: list[tuple[int, Window]] = []
        for window in one * times:
            at_us += window.width_us
            end_us = at_us * cycle_us // total_us
            plan.append((end_us, window))
            borders.add(end_us)
        plans.append(plan)
    merged: Timeline = []
    begin_us = 0
    playing = [0] * len(plans)
    for border_us in sorted(borders):
        if border_us == begin_us:
            continue
        for number, plan in enumerate(plans):
            while plan[playing[number]][0] <= begin_us:
                playing[number] += 1
        merged.append(
            Window(
                border_us - begin_us,
                frozenset().union(
                    *(
                        plan[place][1].favoured
                        for plan, place in zip(plans, playing, strict=True)
                    )
                ),
            )
        )
        begin_us = border_us
    return merged


def length_us(timeline: Timeline) -> int:
    """Of one whole rotation."""
    return sum(window.width_us for window in timeline)
