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

"""From gangs and their CPUs to windows (in effect, an Ousterhout matrix).

Gangs that share a CPU take turns; gangs on disjoint CPUs run at the same time.
CPUs that a turn leaves free go to any gang that fits there: "alternate
selection" in Ousterhout's words.
"""

import bisect
import dataclasses
import functools
import operator
from collections.abc import Sequence

MAX_TURNS = 24
"""Turns of a rotation, unless more gangs than that have to take turns."""

NEARLY_FAIR = 0.95
"""Part of the best possible service, for the gang that is served worst, with
which a shorter rotation is good enough."""


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in which no weight changes.

    :ivar width_us: length, in microseconds.
    :ivar favoured: uuids of the VMs that are to run; empty in a pause, which
        belongs to the VMs that are in no gang.
    """

    width_us: int
    favoured: frozenset[str]


Timeline = list[Window]
"""The windows of one rotation."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gang:
    """VMs whose vCPUs are to run at the same time.

    :ivar key: the same on all hosts: the cluster's id, or the VM's uuid.
    :ivar members: VM uuids.
    :ivar cpus: host CPUs that the members are pinned to.
    :ivar weight: mean own ``cpu_shares`` of one vCPU; time is divided by it.
    """

    key: str
    members: frozenset[str]
    cpus: frozenset[int]
    weight: float


def islands(gangs: Sequence[Gang]) -> list[list[Gang]]:
    """Group gangs that share CPUs, directly or through other gangs.

    Inside an island gangs are in order of their keys, so that hosts with the
    same clusters rotate in the same order.
    """
    # Islands by number, and the number of each CPU's island. An island that
    # is joined to another is left empty in the list, so that the time this
    # takes grows with the number of CPUs, not with that of pairs of gangs.
    members: list[list[Gang]] = []
    island_of_cpu: dict[int, int] = {}
    cpus: list[set[int]] = []
    for gang in gangs:
        touching = {
            island_of_cpu[cpu] for cpu in gang.cpus if cpu in island_of_cpu
        }
        if touching:
            home = max(
                touching, key=lambda number: (len(cpus[number]), number)
            )
        else:
            home = len(members)
            members.append([])
            cpus.append(set())
        for number in sorted(touching - {home}):
            members[home] += members[number]
            members[number] = []
            for cpu in cpus[number]:
                island_of_cpu[cpu] = home
            cpus[home] |= cpus[number]
            cpus[number] = set()
        members[home].append(gang)
        cpus[home] |= gang.cpus
        for cpu in gang.cpus:
            island_of_cpu[cpu] = home
    sorted_islands = [
        sorted(island, key=lambda gang: gang.key)
        for island in members
        if island
    ]
    return sorted(sorted_islands, key=lambda island: island[0].key)


def turns(island: Sequence[Gang]) -> list[frozenset[str]]:
    """Choose which gangs of an island run in each turn of its rotation.

    Stride scheduling (Waldspurger and Weihl, 1995) of gangs: all turns are
    equally long; the gang that has had least of them for its weight comes
    first, then, in the same order, all gangs whose CPUs are still free. Among
    equals the widest gangs come first and narrow ones fill the gaps: that
    makes fewer turns. The rotation ends as soon as every gang has had a turn
    and the worst served gang has nearly as much for its weight as after more
    turns.

    :returns: uuids of the members by turn, in order of the gangs' keys; equal
        turns are spread over the rotation.
    """
    gangs = sorted(island, key=lambda gang: (-len(gang.cpus), gang.key))
    # There may be many gangs, but few different sets of CPUs.
    mask_of = {
        cpus: sum(1 << cpu for cpu in cpus)
        for cpus in {gang.cpus for gang in gangs}
    }
    masks = [mask_of[gang.cpus] for gang in gangs]
    narrowest = min(len(gang.cpus) for gang in gangs)
    every_cpu = functools.reduce(operator.or_, masks, 0)
    turns_had = [0] * len(gangs)
    unserved = len(gangs)
    # Pairs of turns had per weight and the gang's index.
    queue = [(0.0, index) for index in range(len(gangs))]
    chosen: list[list[int]] = []
    least_served: list[float] = []
    while unserved or len(chosen) < MAX_TURNS:
        free = every_cpu
        served: list[int] = []
        for position, (_, index) in enumerate(queue):
            mask = masks[index]
            if free & mask == mask:
                free ^= mask
                served.append(position)
                if free.bit_count() < narrowest:
                    break
        turn = [queue[position][1] for position in served]
        # From the last one, which leaves earlier positions as they are.
        for position in reversed(served):
            del queue[position]
        for index in turn:
            unserved -= not turns_had[index]
            turns_had[index] += 1
            bisect.insort(
                queue, (turns_had[index] / gangs[index].weight, index)
            )
        chosen.append(turn)
        least_served.append(queue[0][0] / len(chosen))
    enough = NEARLY_FAIR * max(least_served)
    count = next(n for n, one in enumerate(least_served, 1) if one >= enough)
    return _in_order(
        [[gangs[index] for index in turn] for turn in chosen[:count]]
    )


def _in_order(chosen: Sequence[Sequence[Gang]]) -> list[frozenset[str]]:
    """Order turns so that hosts with the same gangs agree on the order."""
    keys_of: dict[frozenset[str], list[str]] = {}
    for turn in chosen:
        members = frozenset().union(*(gang.members for gang in turn))
        keys_of.setdefault(members, []).append(min(gang.key for gang in turn))
    ordered = sorted(
        ((number + 0.5) / len(keys), key, sorted(members))
        for members, keys in keys_of.items()
        for number, key in enumerate(keys)
    )
    return [frozenset(members) for _, _, members in ordered]


def rotation(
    island: Sequence[Gang],
    window_us: int,
    pause_part: float,
    min_pause_us: int,
    single_gang_window: bool = False,
) -> Timeline:
    """Return one rotation of an island: a window for each turn, and pauses.

    :param window_us: length of a turn's window, in microseconds.
    :param pause_part: part of the whole time in which no gang of the island is
        favoured; 0 for none.
    :param min_pause_us: least length of a pause; rather than shorter ones
        there are fewer.
    :param single_gang_window: whether an island of one gang has a window even
        without pauses, because its weight in it leaves other VMs something.
    :returns: empty if there is nothing to take turns with.
    """
    if len(island) < 2 and pause_part <= 0 and not single_gang_window:
        return []
    in_turn = turns(island)
    all_pauses_us = round(
        len(in_turn) * window_us * pause_part / (1 - pause_part)
    )
    pauses = min(len(in_turn), max(1, all_pauses_us // min_pause_us))
    timeline: Timeline = []
    paused_us = 0
    for number, members in enumerate(in_turn, start=1):
        timeline.append(Window(window_us, members))
        due_us = all_pauses_us * (number * pauses // len(in_turn)) // pauses
        if all_pauses_us and due_us > paused_us:
            timeline.append(Window(due_us - paused_us, frozenset()))
            paused_us = due_us
    return timeline


def merge(rotations: Sequence[Timeline]) -> Timeline:
    """Return a timeline that plays several islands' rotations side by side.

    All are stretched to the length of the longest; shorter ones are repeated
    within it, as often as they fit. A window becomes at most twice as long.
    """
    nonempty = [one for one in rotations if one]
    if len(nonempty) < 2:
        return nonempty[0] if nonempty else []
    cycle_us = max(length_us(one) for one in nonempty)
    borders: set[int] = set()
    # By rotation: pairs of a window's end and the window.
    stretched: list[list[tuple[int, Window]]] = []
    for one in nonempty:
        times = cycle_us // length_us(one)
        total_us = length_us(one) * times
        at_us = 0
        windows: list[tuple[int, Window]] = []
        for window in one * times:
            at_us += window.width_us
            end_us = at_us * cycle_us // total_us
            windows.append((end_us, window))
            borders.add(end_us)
        stretched.append(windows)
    merged: Timeline = []
    begin_us = 0
    playing = [0] * len(stretched)
    for border_us in sorted(borders):
        if border_us == begin_us:
            continue
        for number, windows in enumerate(stretched):
            while windows[playing[number]][0] <= begin_us:
                playing[number] += 1
        merged.append(
            Window(
                border_us - begin_us,
                frozenset().union(
                    *(
                        windows[position][1].favoured
                        for windows, position in zip(
                            stretched, playing, strict=True
                        )
                    )
                ),
            )
        )
        begin_us = border_us
    return merged


def length_us(timeline: Timeline) -> int:
    """Return the length of one whole rotation, in microseconds."""
    return sum(window.width_us for window in timeline)
