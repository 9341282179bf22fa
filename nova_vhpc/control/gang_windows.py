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

import dataclasses
from collections.abc import Sequence


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


def rows(island: Sequence[Gang]) -> list[list[Gang]]:
    """Pack an island's gangs so that those of one row share no CPU.

    The widest are packed first, and the narrow ones fill what these leave:
    that makes fewer rows. Rows are in order of their least keys.
    """
    packed: list[list[Gang]] = []
    taken: list[set[int]] = []
    for gang in sorted(island, key=lambda one: (-len(one.cpus), one.key)):
        for row, cpus in zip(packed, taken, strict=True):
            if cpus.isdisjoint(gang.cpus):
                row.append(gang)
                cpus |= gang.cpus
                break
        else:
            packed.append([gang])
            taken.append(set(gang.cpus))
    return sorted(packed, key=lambda row: min(gang.key for gang in row))


def fill(
    packed: Sequence[Sequence[Gang]], widths: Sequence[int]
) -> list[frozenset[str]]:
    """Give the CPUs that a row leaves to gangs of other rows that fit there.

    Where many gangs cross each other's CPUs, rows have gaps. There gangs
    would run against each other. Who has had least for its weight comes
    first.

    :param widths: of the rows' windows, in microseconds.
    :returns: by row, the members of all gangs that are to run.
    """
    gangs = [gang for row in packed for gang in row]
    cpus = frozenset().union(*(gang.cpus for gang in gangs))
    had = {
        gang.key: width_us / gang.weight
        for row, width_us in zip(packed, widths, strict=True)
        for gang in row
    }
    filled: list[frozenset[str]] = []
    for row, width_us in zip(packed, widths, strict=True):
        favoured = set().union(*(gang.members for gang in row))
        free = cpus.difference(*(gang.cpus for gang in row))
        if free:
            gangs.sort(key=lambda gang: (had[gang.key], gang.key))
            for gang in gangs:
                if gang.cpus <= free:
                    favoured |= gang.members
                    free -= gang.cpus
                    had[gang.key] += width_us / gang.weight
        filled.append(frozenset(favoured))
    return filled


def rotation(
    island: Sequence[Gang],
    window_us: int,
    others_part: float,
    min_window_us: int,
) -> Timeline:
    """One rotation of an island: a window for each row, and for others.

    :param window_us: mean width of the rows' windows.
    :param others_part: part of the whole time in which no gang of the
        island is favoured; 0 for none.
    :param min_window_us: windows for others are not made shorter; there
        are fewer instead.
    :returns: empty if there is nothing to take turns with.
    """
    packed = rows(island)
    if len(packed) < 2 and others_part <= 0:
        return []
    weights = [sum(gang.weight for gang in row) / len(row) for row in packed]
    mean = sum(weights) / len(weights)
    # However little one weighs, a turn of no length cannot be played.
    widths = [max(1, round(window_us * weight / mean)) for weight in weights]
    others_us = round(sum(widths) * others_part / (1 - others_part))
    pauses = min(len(packed), max(1, others_us // min_window_us))
    timeline: Timeline = []
    paused_us = 0
    for number, (members, width_us) in enumerate(
        zip(fill(packed, widths), widths, strict=True), start=1
    ):
        timeline.append(Window(width_us, members))
        due_us = others_us * (number * pauses // len(packed)) // pauses
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
