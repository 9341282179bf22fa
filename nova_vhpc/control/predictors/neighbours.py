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

"""What followed the moments of the past that looked like this one."""

import itertools
import math
from collections.abc import Collection

WINDOW = 40
"""Moments of the past that are compared: 4 s. More would cost time per
prediction and win nothing."""

_LAST = 25
"""How much the period before the newest counts, in percent of it. What was
before that would win nothing."""

_WIDTH = 100.0
"""Squared distance per member at which a neighbour's weight is down to a
quarter."""

_COLUMNS = 2
Moment = tuple[int, int]
"""What one member did: the level of a period, and its share of the one
before it."""


class Neighbours:
    """Kernel estimate of the members' next states from all their events.

    A *moment* is what the I/O events of all members of a virtual cluster
    were in a period and in the one before it, on a scale that is linear
    below some 100 events and logarithmic above. Each moment of the window
    is compared with now by the Euclidean distance. One at the squared
    distance *d* per member votes, for each member, for the state that
    followed it there, with weight ``1 / (1 + d / width) ** 2``. The heavy
    tail does without a scale to be tuned per program: with close matches
    these decide, without any the more distant ones have a say.

    All members together tell a moment better than one alone: they run the
    same program, and what is noise in one is not in the others.

    Events are kept as whole numbers, as Python has the small ones but
    once: with a thousand VMs the time goes into fetching floats from
    memory.
    """

    __slots__ = (
        '_followers',
        '_levels',
        '_moments',
        '_now',
        '_states',
        '_weights',
    )

    def __init__(self) -> None:
        # By member, in the order of the columns of the moments: the newest
        # level and its share of the one before it; the states that followed
        # the moments of the window. The newest state, in any order.
        self._levels: dict[int, Moment] = {}
        self._followers: dict[int, list[int]] = {}
        self._states: dict[int, int] = {}
        self._moments: list[tuple[int, ...]] = []
        self._now: tuple[int, ...] | None = None
        # How much each moment of the window looks like now.
        self._weights: list[float] = []

    def leave(self, members: Collection[int]) -> None:
        """Forget members, and what they did in all moments."""
        kept = [member not in members for member in self._levels]
        columns = [keep for keep in kept for _ in range(_COLUMNS)]
        self._moments = [
            tuple(itertools.compress(moment, columns))
            for moment in self._moments
        ]
        if self._now is not None:
            self._now = tuple(itertools.compress(self._now, columns))
        for member in members:
            self._levels.pop(member, None)
            self._states.pop(member, None)
            self._followers.pop(member, None)

    def observe(self, member: int, state: int, events: float) -> None:
        """Take a period of a member, which may be a new one."""
        level = int(100.0 * math.log1p(events / 100.0))
        last, _ = self._levels.get(member, (level, 0))
        self._levels[member] = (level, last * _LAST // 100)
        self._states[member] = state

    def settle(self) -> None:
        """All members' periods are in: remember it, and look for the like.

        A member that has no new period counts with its last one.
        """
        levels = self._levels
        if len(self._followers) < len(levels):
            self._admit()
        moments = self._moments
        if self._now is not None:
            full = len(moments) == WINDOW
            if full:
                del moments[0]
            moments.append(self._now)
            for member, followers in self._followers.items():
                if full:
                    del followers[0]
                followers.append(self._states[member])
        now = tuple(itertools.chain.from_iterable(levels.values()))
        self._now = now
        # A good third of the time of a prediction is spent here, so
        # distances are left to C.
        width = _WIDTH * len(levels)
        self._weights = [
            (weight := width / (width + distance * distance)) * weight
            for distance in map(math.dist, moments, itertools.repeat(now))
        ]

    def votes(self, member: int) -> dict[int, float]:
        """Weight by state, for a member's coming period.

        All states that followed anything in the window are in it; nothing
        for who is no member (any more).
        """
        followers = self._followers.get(member)
        if followers is None:
            return {}
        votes = dict.fromkeys(followers, 0.0)
        for follower, weight in zip(followers, self._weights, strict=False):
            votes[follower] += weight
        return votes

    def _admit(self) -> None:
        """Make room for new members, as if they had always been as now.

        So they tell no moment from another until they have done something,
        and nobody forgets anything because of them.
        """
        new = {
            member: moment
            for member, moment in self._levels.items()
            if member not in self._followers
        }
        columns = tuple(itertools.chain.from_iterable(new.values()))
        self._moments = [moment + columns for moment in self._moments]
        if self._now is not None:
            self._now += columns
        for member in new:
            self._followers[member] = [self._states[member]] * len(
                self._moments
            )
