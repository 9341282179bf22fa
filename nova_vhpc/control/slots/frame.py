# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""The slots of a frame, and how clusters share them like buddies.

Time is cut into slots of equal length by the wall clock, and a frame has
:data:`SLOTS` of them. A cluster has every ``every``-th slot, beginning with
number ``first``, and ``every`` is a power of two. So any two clusters either
share no slot, or the slots of one are among those of the other: what is free
is never cut into pieces that fit nobody, as with a buddy allocator.

Sets of slots are bit masks: bit *n* stands for slot *n* of the frame.
"""

import functools
from typing import NamedTuple

SLOTS = 16
"""Slots of a frame."""

COUNTS = (1, 2, 4, 8, 16)
"""A cluster has every first, second, fourth ... slot."""

ALL = (1 << SLOTS) - 1
"""All slots of a frame."""

EXCESS = 1.15
"""Times its part that a cluster may get, to have more slots in a frame. What
VMs then lack is given back in pauses."""

LASTING_EXCESS = 1.3
"""The same if it has so many slots already: small changes of what VMs are
entitled to must not move clusters on other hosts."""


class Place(NamedTuple):
    """Slots of a cluster: every ``every``-th, beginning with ``first``."""

    first: int
    every: int


@functools.cache
def mask(first: int, every: int) -> int:
    """Return the slots of a place."""
    return sum(1 << slot for slot in range(first, SLOTS, every))


def count_for(part: float, before: int | None = None) -> int:
    """Return the least ``every`` that gives no more than a part of the time.

    :param part: part of the time that a cluster is entitled to, 0 to 1.
    :param before: what was returned before; kept if it is near enough.
    """
    if before is not None and (
        1 / before <= part * LASTING_EXCESS and 2 / before > part * EXCESS
    ):
        return before
    return next(
        (count for count in COUNTS if 1 / count <= part * EXCESS), SLOTS
    )


@functools.cache
def _in_buddy_order(count: int) -> tuple[int, ...]:
    """Return all indexes so that neighbours share the slots of a buddy."""
    bits = count.bit_length() - 1
    return tuple(
        sorted(
            range(count),
            key=lambda index: int(f'{index:0{bits}b}'[::-1], 2) if bits else 0,
        )
    )


def choose(
    count: int, blocked: int, avoided: int, held: Place | None
) -> Place | None:
    """Return the place of a cluster; None if there is none.

    The cluster stays where it is if it may. Otherwise it goes where it drives
    away fewest others. If it finds no place of the size wanted, it gets half
    as many slots, or a quarter, and so on.

    :param count: the cluster wants every ``count``-th slot.
    :param blocked: slots that it must not have.
    :param avoided: slots that others would have to leave.
    :param held: its place now; None for none.
    """
    kept = 0 if held is None else mask(*held)
    for wanted in COUNTS:
        if wanted < count:
            continue
        if held is not None and held.every == wanted and not kept & blocked:
            return held
        free = [
            index
            for index in _in_buddy_order(wanted)
            if not mask(index, wanted) & blocked
        ]
        if free:
            index = min(
                free,
                key=lambda one: (
                    (mask(one, wanted) & avoided).bit_count(),
                    # Other hosts that have not heard it yet play the old one.
                    not mask(one, wanted) & kept,
                ),
            )
            return Place(index, wanted)
    return None
