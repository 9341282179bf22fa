# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Pack gangs into a frame of slots that other hosts play, too.

The hosts of a virtual cluster agreed on its slots
(:mod:`nova_vhpc.control.slots`); there it runs on all of them at the same
time. Gangs without an agreement are packed beside, and slots that no cluster
of this host has (*free* slots) are shared out among whoever lacks time
(Ousterhout's alternative slots). No window begins or ends where the agreement
says otherwise: a slot's windows begin with it, and what they leave of it is a
pause.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence

from nova_vhpc.control import model
from nova_vhpc.control.gang import matrix
from nova_vhpc.control.slots import frame

SHORTEST = 0.1
"""Shortest window, as a part of a slot. Borders cost time, too."""

LEAST_EXTRA = 0.07
"""Least part of the free slots that is set aside for each gang."""

NEXT_TO_NOTHING = 1e-3
"""A gang that is in a rotation must have a part of it."""

ONE_SLOT = 0.98
"""Slots that a gang must be owed to get one beside a cluster, nearly one."""


@dataclasses.dataclass(frozen=True)
class Packing:
    """Gangs of each slot of a frame.

    :ivar slots: gangs of each slot; empty for free ones.
    :ivar parts: part of the time that each gang should have, by key.
    :ivar free: windows that are played in the free slots one after the other,
        as parts of all free slots together.
    :ivar is_shared: whether VMs in no gang need the rest.
    """

    slots: tuple[frozenset[str], ...]
    parts: Mapping[str, float]
    free: matrix.Rotation
    is_shared: bool

    @functools.cached_property
    def rotation(self) -> matrix.Rotation:
        """The same as one rotation, for what depends on no order."""
        free = _free_part(self.slots)
        served = dict(self._held)
        for key, part in self.free.served.items():
            served[key] += free * part
        parts: dict[frozenset[str], float] = {}
        for gangs in self.slots:
            parts[gangs] = parts.get(gangs, 0.0) + 1 / len(self.slots)
        return matrix.Rotation(
            tuple(matrix.Slot(part, gangs) for gangs, part in parts.items()),
            {key: part for key, part in served.items() if part > 0},
            frozenset(key for key, part in served.items() if part <= 0),
        )

    def windows(
        self, corrections: Mapping[str, float], pause: float
    ) -> tuple[matrix.Slot, ...]:
        """Return windows and pauses of the frame, in order.

        :param corrections: by key, what to add to a gang's part, as a part of
            it.
        :param pause: what to add to the part in which no gang runs.
        """
        free_part = _free_part(self.slots)
        # Pauses grow at the expense of windows, and the reverse.
        busy_part = (
            1
            - free_part
            + free_part
            * sum(slot.part for slot in self.free.slots if slot.gangs)
        )
        stretch = max(0.0, 1 - pause / max(busy_part, SHORTEST))
        wanted = {
            key: part * (1 + corrections.get(key, 0.0)) * stretch
            for key, part in self.parts.items()
        }
        least = NEXT_TO_NOTHING if self.is_shared else LEAST_EXTRA
        extras = {
            key: max(least, (wanted[key] - self._held[key]) / free_part) / part
            for key, part in self.free.served.items()
        }
        queue = _Queue(
            matrix.corrected(
                self.free,
                {key: factor - 1 for key, factor in extras.items()},
                0.0,
            ),
            self.slots.count(frozenset()),
        )
        windows: list[matrix.Slot] = []
        for gangs in self.slots:
            if not gangs:
                windows += _slot(queue.next_slot(), self.is_shared)
                continue
            length = 1.0
            if self.is_shared:
                length = max(
                    min(1.0, wanted[key] / self._held[key]) for key in gangs
                )
            windows += _slot([(length, gangs)], self.is_shared)
        return _merged(windows, len(self.slots))

    @functools.cached_property
    def _held(self) -> Mapping[str, float]:
        """Part of the frame that each gang has in slots of its own."""
        return _held_parts(self.slots, self.parts)


def pack(
    demands: Sequence[matrix.Demand],
    agreed: Mapping[str, model.ClusterSlot],
    cpus: int,
    is_shared: bool,
    outside: Sequence[matrix.Outside] = (),
) -> Packing:
    """Fill a frame.

    :param agreed: slots of clusters, by key.
    :param cpus: number of CPUs.
    :param is_shared: whether VMs in no gang need the rest; without them, gangs
        get it, too.
    :param outside: CPU-bound VMs in no gang.
    """
    widths = {one.key: one.width for one in demands}
    slots: list[set[str]] = [set() for _ in range(frame.SLOTS)]
    left = [cpus] * frame.SLOTS
    wide_first = sorted(demands, key=lambda one: (-one.width, one.key))
    for one in wide_first:
        if one.key in agreed:
            for number in frame.numbers(agreed[one.key].slots):
                if one.width <= left[number]:
                    slots[number].add(one.key)
                    left[number] -= one.width
    _fill_beside(demands, slots, left, is_shared)
    packed = tuple(frozenset(gangs) for gangs in slots)
    held = _held_parts(packed, widths)
    free_part = _free_part(packed)
    lacking = {
        one.key: max(0.0, one.part - held[one.key]) / free_part
        for one in demands
        if free_part > 0
    }
    # A gang whose own slots are just enough may need more for the borders.
    aside = LEAST_EXTRA * sum(widths[key] for key in lacking)
    if aside + sum(widths[key] * lacking[key] for key in lacking) > cpus:
        aside = 0.0
    extra = [
        one._replace(
            part=min(1.0, max(LEAST_EXTRA if aside else 0.0, lacking[one.key]))
        )
        for one in demands
        if aside or lacking.get(one.key, 0.0) > NEXT_TO_NOTHING
    ]
    free = matrix.Rotation()
    if extra:
        needed = [one._replace(cpus=one.cpus / free_part) for one in outside]
        free = matrix.rotation(extra, cpus, is_shared, needed)
    return Packing(
        packed, {one.key: one.part for one in demands}, free, is_shared
    )


def _fill_beside(
    demands: Sequence[matrix.Demand],
    slots: Sequence[set[str]],
    left: list[int],
    is_shared: bool,
) -> None:
    """Give CPUs beside clusters to gangs that lack time.

    Free slots are left: these are shared out more finely.

    :param left: CPUs that are left in each slot.
    """
    due = {
        one.key: one.part * len(slots)
        - sum(one.key in gangs for gangs in slots)
        for one in demands
    }
    least = ONE_SLOT if is_shared else -float(len(slots))
    for number in [number for number, gangs in enumerate(slots) if gangs]:
        for one in sorted(
            demands, key=lambda one: (-due[one.key], -one.width, one.key)
        ):
            if (
                one.key not in slots[number]
                and one.width <= left[number]
                and due[one.key] >= least
            ):
                slots[number].add(one.key)
                left[number] -= one.width
                due[one.key] -= 1


class _Queue:
    """Windows that are played in the free slots, one after the other.

    :param windows: windows, as parts of all free slots.
    :param count: number of free slots.
    """

    def __init__(self, windows: Sequence[matrix.Slot], count: int) -> None:
        lengths = {
            window.gangs: window.part * count
            for window in windows
            if window.gangs
        }
        pieces = {
            gangs: math.ceil(length - SHORTEST)
            for gangs, length in lengths.items()
            if length >= SHORTEST
        }
        pauses = count - sum(pieces.values())
        # With enough pauses each window begins with a slot of its own.
        self._is_aligned = pauses >= 0
        if not self._is_aligned:
            pieces = {gangs: max(1, round(lengths[gangs])) for gangs in pieces}
        elif pauses:
            pieces[frozenset()] = pauses
        order = [
            ((piece + 0.5) / number, gangs)
            for gangs, number in pieces.items()
            for piece in range(number)
        ]
        order.sort(key=lambda one: (one[0], sorted(one[1])))
        self._left = [
            (lengths.get(gangs, 0.0) / pieces[gangs], gangs)
            for _, gangs in order
        ]

    def next_slot(self) -> list[tuple[float, frozenset[str]]]:
        """Return windows of the next free slot, and their lengths."""
        room = 1.0
        played: list[tuple[float, frozenset[str]]] = []
        while self._left and room >= SHORTEST:
            length, gangs = self._left.pop(0)
            if length - room >= SHORTEST:
                self._left.insert(0, (length - room, gangs))
            length = min(length, room)
            played.append((length, gangs))
            room -= length
            if self._is_aligned:
                break
        return played


def _slot(
    windows: Sequence[tuple[float, frozenset[str]]], is_shared: bool
) -> list[matrix.Slot]:
    """Return windows, and a pause if VMs need one, that fill one slot."""
    slots = [
        matrix.Slot(length, gangs)
        for length, gangs in windows
        if length >= SHORTEST
    ]
    rest = 1.0 - sum(slot.part for slot in slots)
    if not slots:
        return [matrix.Slot(1.0, frozenset())]
    if rest >= SHORTEST and is_shared:
        return [*slots, matrix.Slot(rest, frozenset())]
    slots[-1] = slots[-1]._replace(part=slots[-1].part + rest)
    return slots


def _merged(
    windows: Sequence[matrix.Slot], slots: int
) -> tuple[matrix.Slot, ...]:
    """Return windows in parts of the frame, equal neighbours as one.

    :param windows: with parts of one slot.
    """
    merged: list[matrix.Slot] = []
    for window in windows:
        if merged and merged[-1].gangs == window.gangs:
            merged[-1] = matrix.Slot(
                merged[-1].part + window.part, window.gangs
            )
        else:
            merged.append(window)
    return tuple(
        matrix.Slot(window.part / slots, window.gangs) for window in merged
    )


def _held_parts(
    slots: Sequence[frozenset[str]], keys: Iterable[str]
) -> dict[str, float]:
    """Return the part of the frame that each gang has in slots of its own."""
    return {
        key: sum(key in gangs for gangs in slots) / len(slots) for key in keys
    }


def _free_part(slots: Sequence[frozenset[str]]) -> float:
    return sum(not gangs for gangs in slots) / len(slots)
