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
from collections.abc import Callable, Collection

from nova_vhpc.control.predictors import base

WINDOW = 60
WINDOW_ALONE = 24
WINDOW_PER_PEER = 12
"""Moments of the past that are compared: 6 s with four members, in which most
programs that repeat themselves do it once. Who is alone has nobody to share
the time of comparing with; each peer that shares it makes room for more."""

_WIDTH = 200.0
_FADING = 0.5
_COURSE_WIDTH = _WIDTH / (1.0 - _FADING)
"""Squared distance per member at which the vote of a moment is down to a
quarter. The distance of a course fades at this rate per period, and is as
much greater where all its moments are as far."""

VOTE = 12.0
"""Weight of the vote of a moment just like now, reached on the same course."""

_UNKNOWN_WIDTHS = 10.0
"""Widths from now to what was before the first period."""

_SCALE = 100.0
"""Events up to which levels are linear, about."""

_LEVELS = tuple(
    float(level)
    for level in range(1 + int(_SCALE * math.log1p(base.MAX_EVENTS / _SCALE)))
)
"""All levels there are. With a thousand VMs the time goes into fetching floats
from memory, so each is there but once."""

_SPARE_CLASSES = 8
"""Classes that may have left the window, beside as many as are in it."""

Moment = tuple[float, ...]
"""Levels of all members in one period."""

States = tuple[int, ...]
"""States of all members in one period."""


class NearestHistory:
    """Kernel estimate of the members' next states from all their events.

    A *moment* is what the I/O events of all members of a virtual cluster
    were in a period, on a scale that is linear below some 100 events and
    logarithmic above. The *course* to a moment is all that was until then,
    fading: with a program that repeats itself every so many periods it tells
    the same point of the iteration from others that only look alike.

    Each moment of the window is compared with now, and the course to it with
    the one to now, by the Euclidean distance. It votes, for each member, for
    the state that followed it there. At the squared distances *d* and *c* per
    member the vote has the weight ``1 / ((1 + d / width) * (1 + c / course
    width)) ** 2`` of the greatest. The heavy tail does without a scale to be
    tuned per program: with close matches these decide, without any the more
    distant ones have a say.

    All members together tell a moment better than one alone: they run the
    same program, and what is noise in one is not in the others. What all
    did, the *class* of a period, mostly comes again, too, so votes are
    counted by class, for all members at once.

    :ivar unit: by this the votes have to be multiplied.
    :ivar total: all votes for one member's states.
    """

    __slots__ = (
        '_classes',
        '_courses',
        '_followers',
        '_indexes',
        '_levels',
        '_max_classes',
        '_moments',
        '_now',
        '_states',
        '_votes',
        '_window',
        'total',
        'unit',
    )

    def __init__(self) -> None:
        # By member: the newest level and state, in the same order; and where
        # those that were there before are in moments and classes.
        self._levels: dict[int, float] = {}
        self._states: dict[int, int] = {}
        self._indexes: dict[int, int] = {}
        self._moments: list[Moment] = []
        self._now: Moment | None = None
        # What followed the moments of the window, as numbers of classes; and
        # the votes for these.
        self._followers: list[int] = []
        self._classes: dict[States, int] = {}
        self._max_classes = _SPARE_CLASSES
        self._votes: list[float] = []
        # Width and faded squared distance of the course to each moment, in
        # the last period: of the course to what came one period before it.
        self._courses: list[float] = []
        # How many moments are kept for so many members.
        self._window = WINDOW_ALONE
        self.total = 0.0
        self.unit = 1.0

    def remove_members(self, members: Collection[int]) -> None:
        """Forget members, and what they did in all moments."""
        kept = [member not in members for member in self._levels]
        self._moments = [
            tuple(itertools.compress(moment, kept)) for moment in self._moments
        ]
        if self._now is not None:
            self._now = tuple(itertools.compress(self._now, kept))
        for member in members:
            self._levels.pop(member, None)
            self._states.pop(member, None)
        self._reclassify(
            lambda states: tuple(itertools.compress(states, kept))
        )
        self._resize()

    def observe(self, member: int, state: int, events: float) -> None:
        """Take a period of a member, which may be a new one."""
        self._levels[member] = _LEVELS[
            int(_SCALE * math.log1p(events / _SCALE))
        ]
        self._states[member] = state

    def end_period(self) -> None:
        """All members' periods are in: remember it, and look for the like.

        A member that has no new period counts with its last one.
        """
        levels = self._levels
        if len(self._indexes) < len(levels):
            self._add_members()
        moments = self._moments
        if self._now is not None:
            moments.append(self._now)
            self._record_follower(tuple(self._states.values()))
            excess = len(moments) - self._window
            if excess > 0:
                del moments[:excess]
                del self._followers[:excess]
        self._now = now = tuple(levels.values())
        self._compare(moments, now)

    def _compare(self, moments: list[Moment], now: Moment) -> None:
        """Let the moments of the window vote by their likeness to now.

        A third of the time of a prediction is spent here.
        """
        width = _WIDTH * len(now)
        course_width = _COURSE_WIDTH * len(now)
        self.unit = VOTE * (width * course_width) ** 2
        courses = self._courses
        if len(courses) < len(moments):
            courses.insert(0, _UNKNOWN_WIDTHS * course_width)
        elif len(courses) > len(moments):
            del courses[: -len(moments)]
        fading = _FADING
        followers = self._followers
        self._votes = votes = [0.0] * len(self._classes)
        distances = map(math.dist, moments, itertools.repeat(now))
        for index, distance in enumerate(distances):
            near = width + distance * distance
            courses[index] = course = near + fading * courses[index]
            both = near * course
            votes[followers[index]] += 1.0 / (both * both)
        self.total = sum(votes)

    def votes(self, member: int) -> dict[int, float]:
        """Weight by state, in units, for a member's coming period.

        All states that followed anything in the window are in it; nothing
        for who is no member (any more).
        """
        index = self._indexes.get(member)
        if index is None:
            return {}
        votes: dict[int, float] = {}
        vote_of = votes.get
        # strict takes longer than three classes do.
        for states, vote in zip(self._classes, self._votes):  # noqa: B905
            if vote:
                state = states[index]
                votes[state] = vote_of(state, 0.0) + vote
        return votes

    def _record_follower(self, states: States) -> None:
        """Note what followed the newest moment."""
        number = self._classes.get(states)
        if number is None:
            number = len(self._classes)
            if number >= self._max_classes:
                self._reclassify(lambda known: known)
                number = len(self._classes)
            self._classes[states] = number
        self._followers.append(number)

    def _reclassify(self, change: Callable[[States], States]) -> None:
        """Change all classes; drop those that are in the window no more."""
        known = list(self._classes)
        votes = self._votes
        classes: dict[States, int] = {}
        self._classes = classes
        self._votes = []
        numbers: dict[int, int] = {}
        for old in dict.fromkeys(self._followers):
            states = change(known[old])
            if states not in classes:
                classes[states] = len(classes)
                self._votes.append(0.0)
            numbers[old] = number = classes[states]
            if old < len(votes):
                self._votes[number] += votes[old]
        self._followers = [numbers[old] for old in self._followers]
        self._max_classes = 2 * len(classes) + _SPARE_CLASSES

    def _add_members(self) -> None:
        """Make room for new members, as if they had always been as now.

        So they tell no moment from another until they have done something,
        and nobody forgets anything because of them.
        """
        known = len(self._indexes)
        levels = tuple(self._levels.values())[known:]
        new = tuple(self._states.values())[known:]
        self._moments = [moment + levels for moment in self._moments]
        if self._now is not None:
            self._now += levels
        self._reclassify(lambda states: states + new)
        self._resize()

    def _resize(self) -> None:
        """Fit the window and the width to the number of members."""
        members = len(self._levels)
        wider = _COURSE_WIDTH * (members - len(self._indexes))
        self._courses = [course + wider for course in self._courses]
        self._indexes = {
            member: index for index, member in enumerate(self._levels)
        }
        self._window = min(
            WINDOW, WINDOW_ALONE + WINDOW_PER_PEER * (members - 1)
        )
