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

"""What a predictor is, and how it is kept from garbage.

I/O-perception paper, section III.A: each sampling period a predictor is
told the state that was observed and answers with the state of the coming
period. Predictors are plugins of the namespace ``nova_vhpc.predictors``;
:mod:`~nova_vhpc.control.predictors.last_value` is the smallest.
"""

import collections
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from nova_vhpc.control import quantise

_MAX_STATE = quantise.MAX_STATE
MAX_EVENTS = float(quantise.MAX_STATE * quantise.EVENTS_PER_STATE)


@runtime_checkable
class Predictor(Protocol):
    """One VM's predictor; made by its class without arguments.

    It is deterministic, needs bounded memory, and never raises whatever
    it is told.
    """

    def observe(self, state: int, events: float) -> None:
        """Take the state of the period that has just ended.

        :param state: of :func:`nova_vhpc.control.quantise.to_state`.
        :param events: the I/O events per 100 ms that it was made of.
        """

    def predict(self) -> int:
        """State of the coming period; the idle state before any other."""

    @property
    def state_bytes(self) -> int:
        """Bytes of memory it holds now, tables included."""


@runtime_checkable
class PeerPredictor(Protocol):
    """A predictor that learns together with those of other members.

    Each period all members observe before the first predicts; who does not
    keep to that, or leaves periods out, gets worse predictions, no errors.
    """

    def for_peer(self) -> Predictor:
        """A predictor for another member of the same virtual cluster."""


def for_member(predictor: object, make: Callable[[], Predictor]) -> Predictor:
    """Predictor of one more member of a virtual cluster.

    :param predictor: that of any member so far; None for the first.
    :param make: the predictor's factory.
    """
    if isinstance(predictor, PeerPredictor):
        return predictor.for_peer()
    return make()


def clean_state(state: object) -> int:
    """A state within bounds, whatever came in."""
    if type(state) is int and quantise.IDLE_STATE <= state <= _MAX_STATE:
        return state
    try:
        number = int(state)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return quantise.IDLE_STATE
    return int(min(max(number, quantise.IDLE_STATE), quantise.MAX_STATE))


def clean_events(events: object) -> float:
    """A number of events within bounds; 0 for what is no number."""
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
    """Bytes of an object and of everything that only it can reach.

    Classes, functions and modules are shared and not counted; an object
    met twice is counted once.
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
