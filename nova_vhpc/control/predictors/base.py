# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The interface of predictors, and the states that they predict.

I/O-perception paper, section III.A: in each sampling period a predictor
observes a state and predicts the state of the next period. Predictors are
plugins of the namespace ``nova_vhpc.predictors``;
:mod:`~nova_vhpc.control.predictors.last_value` is the smallest example.

The paper encodes I/O events "at a precision of 50 times/100ms (for example, a
frequency of 125 [...] will be encoded to state 3)". State *n* therefore
covers the *n*-th bin of 50 events: 0..49 is state 1, 100..149 is state 3.
Rounding to the nearest multiple would also give 3 for 125, but it splits
the traces elsewhere: with it RLE loses 14 points on SP, and only bins that
begin at multiples of 50 give the figures that were measured for RLE.
"""

import collections
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

EVENTS_PER_STATE = 50
"""Width of a state in I/O events per sampling period of 100 ms."""

IDLE_STATE = 1
"""State of a VM without any I/O."""

MAX_STATE = 1_000_000
"""More than a network can carry in 100 ms; greater states are cut off."""

MAX_EVENTS = float(MAX_STATE * EVENTS_PER_STATE)


def to_state(events: float) -> int:
    """Return the state of a number of I/O events; 125 gives state 3.

    Never raises: NaN and negative numbers count as no events.

    :param events: I/O events per 100 ms.
    :returns: 1 (:data:`IDLE_STATE`) to :data:`MAX_STATE`.
    """
    if not events > 0:
        return IDLE_STATE
    if events >= MAX_EVENTS:
        return MAX_STATE
    return int(events // EVENTS_PER_STATE) + 1


def to_events(state: int) -> float:
    """Return the I/O events per 100 ms in the middle of a state's bin.

    :returns: 0 for :data:`IDLE_STATE`, because most periods in it have none.
    """
    if state <= IDLE_STATE:
        return 0.0
    return (state - 0.5) * EVENTS_PER_STATE


@runtime_checkable
class Predictor(Protocol):
    """Predicts the I/O of one VM.

    Its class is called without arguments. A predictor is deterministic,
    needs bounded memory, and raises nothing, whatever it observes.
    """

    def observe(self, state: int, events: float) -> None:
        """Learn from the sampling period that has just ended.

        :param state: state of the period, as
            :func:`to_state` gives it.
        :param events: I/O events per 100 ms from which the state was made.
        """

    def predict(self) -> int:
        """Return the state of the next period; the idle state at first."""

    @property
    def state_bytes(self) -> int:
        """Bytes of memory that the predictor holds now, tables included."""


@runtime_checkable
class PeerPredictor(Protocol):
    """A predictor that learns together with those of a cluster's members.

    In each period all members should observe before the first predicts. A
    caller that does otherwise, or leaves periods out, gets worse
    predictions, but no errors.
    """

    def for_peer(self) -> Predictor:
        """Return a predictor for another member of the virtual cluster."""


def for_member(predictor: object, make: Callable[[], Predictor]) -> Predictor:
    """Return the predictor of one more member of a virtual cluster.

    :param predictor: predictor of any other member; None for the first.
    :param make: factory of predictors, used unless ``predictor`` is a
        :class:`PeerPredictor`.
    """
    if isinstance(predictor, PeerPredictor):
        return predictor.for_peer()
    return make()


def clean_state(state: object) -> int:
    """Return a state within bounds; the idle state for invalid input."""
    if type(state) is int and IDLE_STATE <= state <= MAX_STATE:
        return state
    try:
        number = int(state)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return IDLE_STATE
    return int(min(max(number, IDLE_STATE), MAX_STATE))


def clean_events(events: object) -> float:
    """Return a number of events within bounds; 0 for invalid input."""
    if type(events) is float and 0.0 <= events <= MAX_EVENTS:
        return events
    try:
        number = float(events)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0
    if not number > 0:
        return 0.0
    return min(number, MAX_EVENTS)


def deep_bytes(root: object) -> int:
    """Return the bytes of an object and of all objects it refers to.

    Classes and functions are not counted, since all instances share them;
    an object that is referred to twice is counted once.
    """
    seen: set[int] = set()
    total = 0
    stack = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, type) or callable(item):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        stack.extend(_parts(item))
    return total


def _parts(item: object) -> Iterator[object]:
    if isinstance(item, dict):
        return itertools.chain(item.keys(), item.values())
    if isinstance(item, list | tuple | set | frozenset | collections.deque):
        return iter(item)
    names = itertools.chain.from_iterable(
        getattr(kind, '__slots__', ()) for kind in type(item).__mro__
    )
    slots = (
        getattr(item, name)
        for name in names
        if hasattr(item, name) and not name.startswith('__')
    )
    own = getattr(item, '__dict__', None)
    return itertools.chain(slots, () if own is None else (own,))
