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

WINDOW = 60
WINDOW_ALONE = 24
WINDOW_PER_PEER = 12
"""Moments of the past that are compared: 6 s with four members, in which most
programs that repeat themselves do it once. Who is alone has nobody to share
the time of comparing with; each peer that shares it makes room for more."""

_LAST = 25
"""How much the period before the newest counts, in percent of it. What was
before that is left to the course."""

_WIDTH = 100.0
"""Squared distance per member at which a neighbour's weight is down to a
quarter."""

_FADING = 0.5
_COURSE_WIDTH = 200.0
_COURSE_CUT = 9.0
_COURSE_GAIN = 20.0
"""The distance of a course fades at this rate per period. The gain of a
moment is down to a quarter at the squared width per member, and taken as
none from that many times the width on."""

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

    The *course* to a moment is all that was until then, fading. With a
    program that repeats itself every so many periods it tells the same
    point of the iteration from others that only look alike. So what was
    reached on a course like the one to now has many times the weight.

    All members together tell a moment better than one alone: they run the
    same program, and what is noise in one is not in the others.

    Events are kept as whole numbers, as Python has the small ones but
    once: with a thousand VMs the time goes into fetching floats from
    memory.
    """

    __slots__ = (
        '_courses',
        '_followers',
        '_levels',
        '_moments',
        '_now',
        '_states',
        '_weights',
        '_window',
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
        # Faded squared distance of the course to each moment, in the last
        # period: of the course to what came one period before it.
        self._courses: list[float] = []
        # How much each moment of the window looks like now.
        self._weights: list[float] = []
        # How many moments are kept for so many members.
        self._window = WINDOW_ALONE

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
        self._resize()

    def observe(self, member: int, state: int, events: float) -> None:
        """Take a period of a member, which may be a new one."""
        level = int(100.0 * math.log1p(events / 100.0))
        moment = self._levels.get(member)
        last = level if moment is None else moment[0]
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
            moments.append(self._now)
            for member, followers in self._followers.items():
                followers.append(self._states[member])
            excess = len(moments) - self._window
            if excess > 0:
                del moments[:excess]
                for followers in self._followers.values():
                    del followers[:excess]
        self._now = tuple(itertools.chain.from_iterable(levels.values()))
        self._compare(moments, self._now)

    def _compare(
        self, moments: list[tuple[int, ...]], now: tuple[int, ...]
    ) -> None:
        """Weigh the moments of the window by their likeness to now.

        A third to a half of the time of a prediction is spent here.
        """
        courses = self._courses
        if len(courses) < len(moments):
            # What was before the first period is not known: as far as that.
            square = math.dist(moments[0], now) ** 2
            courses.insert(0, square / (1.0 - _FADING))
        elif len(courses) > len(moments):
            del courses[: -len(moments)]
        members = len(now) // _COLUMNS
        width = _WIDTH * members
        course_width = _COURSE_WIDTH * members
        cut = _COURSE_CUT * course_width
        fading, gain = _FADING, _COURSE_GAIN
        weights = self._weights
        # Renewed in place: so the memory of each number is used again.
        if len(weights) != len(courses):
            weights[:] = courses
        distances = map(math.dist, moments, itertools.repeat(now))
        for place, distance in enumerate(distances):
            square = distance * distance
            courses[place] = course = square + fading * courses[place]
            weight = width / (width + square)
            weight *= weight
            if course < cut:
                likeness = course_width / (course_width + course)
                weight *= 1.0 + gain * likeness * likeness
            weights[place] = weight

    def votes(self, member: int) -> dict[int, float]:
        """Weight by state, for a member's coming period.

        All states that followed anything in the window are in it; nothing
        for who is no member (any more).
        """
        followers = self._followers.get(member)
        if followers is None:
            return {}
        votes: dict[int, float] = {}
        vote = votes.get
        for follower, weight in zip(followers, self._weights, strict=False):
            votes[follower] = vote(follower, 0.0) + weight
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
        self._resize()

    def _resize(self) -> None:
        """Fit the window to the number of members."""
        peers = len(self._levels) - 1
        self._window = min(WINDOW, WINDOW_ALONE + WINDOW_PER_PEER * peers)
