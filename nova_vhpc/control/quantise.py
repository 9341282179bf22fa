# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""I/O events to discrete states and back (I/O-perception, section III.A).

The paper encodes "at a precision of 50 times/100ms (for example, a
frequency of 125 [...] will be encoded to state 3)". State *n* therefore
covers the *n*-th bin of 50 events: 0..49 is state 1, 100..149 is state 3.
Rounding to the nearest multiple would also give 3 for 125, but it splits
the traces elsewhere: with it RLE loses 14 points on SP, and only bins that
begin at multiples of 50 give the figures that were measured for RLE.
"""

EVENTS_PER_STATE = 50
"""Width of a state in I/O events per sampling period of 100 ms."""

IDLE_STATE = 1
"""State of a VM without any I/O."""

MAX_STATE = 1_000_000
"""More than a network can carry in 100 ms; greater states are cut off."""

_MAX_EVENTS = MAX_STATE * EVENTS_PER_STATE


def to_state(events: float) -> int:
    """Return the state of a number of I/O events; 125 gives state 3.

    Never raises: NaN and negative numbers count as no events.

    :param events: I/O events per 100 ms.
    :returns: 1 (:data:`IDLE_STATE`) to :data:`MAX_STATE`.
    """
    if not events > 0:
        return IDLE_STATE
    if events >= _MAX_EVENTS:
        return MAX_STATE
    return int(events // EVENTS_PER_STATE) + 1


def to_events(state: int) -> float:
    """Return the I/O events per 100 ms in the middle of a state's bin.

    :returns: 0 for :data:`IDLE_STATE`, because most periods in it have none.
    """
    if state <= IDLE_STATE:
        return 0.0
    return (state - 0.5) * EVENTS_PER_STATE
