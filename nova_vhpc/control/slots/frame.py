# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""The slots of a frame, and which of them a cluster takes.

Time is cut into slots of equal length by the wall clock, and a frame has
:data:`SLOTS` of them. A cluster may have any of them, so what is free on all
of its hosts is of use, wherever it is.

Sets of slots are bit masks: bit *n* stands for slot *n* of the frame.
"""

import math
from collections.abc import Iterator, Sized

SLOTS = 16
"""Slots of a frame."""

ALL = (1 << SLOTS) - 1
"""All slots of a frame."""

EXCESS = 1.05
"""Times its part that a cluster may get, to have more slots in a frame. What
VMs then lack is given back in pauses."""

LASTING_EXCESS = 1.3
LASTING_LACK = 0.8
"""Times its part that it may keep: small changes of what VMs are entitled to
must not move clusters on other hosts."""

LEAST = ((15, 1.0), (11, 0.75), (6, 1 / 3), (1, 2 / 3))
"""From so many wanted slots on, this part of them is needed to be no slower
than under stock Linux. Chosen by simulation: whoever is entitled to nearly all
of the time meets its siblings nearly always there, and whoever is entitled to
a half seldom does; very few slots do not pay for their borders."""


def numbers(mask: int) -> Iterator[int]:
    """Return the numbers of the slots in a mask, in order."""
    return (slot for slot in range(SLOTS) if mask >> slot & 1)


def part(slots: Sized) -> float:
    """Return which part of the time some slots are, 0 to 1."""
    return len(slots) / SLOTS


def count_for(part: float, before: int | None = None) -> int:
    """Return the number of slots for a part of the time.

    :param part: part of the time that a cluster is entitled to, 0 to 1.
    :param before: what was returned before; kept if it is near enough.
    """
    exact = part * SLOTS
    if before is not None and (
        exact * LASTING_LACK <= before <= max(1, exact * LASTING_EXCESS)
    ):
        return before
    return max(1, min(SLOTS, int(exact * EXCESS)))


def least(wanted: int) -> int:
    """Return how many slots a cluster needs to be no slower than without.

    :param wanted: number of slots that it is entitled to.
    """
    part = next(part for count, part in LEAST if wanted >= count)
    return math.ceil(wanted * part - 1e-9)


def choose(wanted: int, blocked: int, avoided: int, held: int) -> int:
    """Return the slots of a cluster; 0 if none is free.

    The cluster keeps what it has and may have. What it lacks it takes where it
    drives away fewest others, and as evenly over the frame as that allows.

    :param wanted: number of slots.
    :param blocked: slots that it must not have.
    :param avoided: slots that others would have to leave.
    :param held: its slots now.
    """
    chosen = held & ~blocked
    while chosen.bit_count() > wanted:
        chosen &= ~_crowded(chosen, avoided)
    while chosen.bit_count() < wanted:
        free = ALL & ~(blocked | chosen)
        if not free:
            break
        chosen |= 1 << max(
            numbers(free),
            key=lambda slot: (
                not avoided >> slot & 1,
                _distance(slot, chosen),
                -slot,
            ),
        )
    return chosen


def _crowded(mask: int, avoided: int) -> int:
    """Return the slot of a mask, as a mask, that is missed least."""
    slot = max(
        numbers(mask),
        key=lambda slot: (
            avoided >> slot & 1,
            -_distance(slot, mask & ~(1 << slot)),
            slot,
        ),
    )
    return 1 << slot


def _distance(slot: int, mask: int) -> int:
    """Return how far a slot is from the nearest one of a mask, in slots."""
    return min(
        (
            min((slot - other) % SLOTS, (other - slot) % SLOTS)
            for other in numbers(mask)
        ),
        default=SLOTS,
    )
