# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Nearest histories: what followed the moments most like the present one.

An expert of the mixture, after k-nearest neighbours, but with a kernel: all
moments of a window vote, with a weight that falls with their distance.
"""

import itertools
import math
from collections.abc import Callable, Collection

from nova_vhpc.control.predictors import base

WINDOW = 60
WINDOW_ALONE = 24
WINDOW_PER_PEER = 12
"""Moments of the past that are compared, at most; for a VM alone; and
additional ones per further member.

With four members they are 6 s, in which most programs that repeat themselves
do so once. The time of comparing is shared by the members, so each further
member allows for more moments."""

_WIDTH = 200.0
_FADING = 0.5
_COURSE_WIDTH = _WIDTH / (1.0 - _FADING)
"""Kernel widths, as squared distances per member at which the vote of a moment
is down to a quarter, for moments and courses; and the rate per period at which
the distance of a course fades. If all moments of a course are equally distant,
its distance is ``1 / (1 - _FADING)`` times that of one moment."""

VOTE = 12.0
"""Weight of the vote of a moment that is, like its course, equal to now."""

_UNKNOWN_WIDTHS = 10.0
"""Distance, in course widths, of the course before the first period."""

_SCALE = 100.0
"""I/O events up to which levels are about linear."""

_LEVELS = tuple(
    float(level)
    for level in range(1 + int(_SCALE * math.log1p(base.MAX_EVENTS / _SCALE)))
)
"""All levels, one object for each: with 1,000 VMs most of the time goes into
fetching floats from memory."""

_SPARE_CLASSES = 8
"""Classes that may have left the window before the unused ones are dropped, in
addition to as many as there are in it."""

Moment = tuple[float, ...]
"""Levels of all members in one period, in the order of members."""

States = tuple[int, ...]
"""States of all members in one period, in the order of members."""


class NearestHistory:
    """Kernel estimate of the members' next states from all their events.

    A *moment* is the I/O events of all members of a virtual cluster in one
    period, as levels on a scale that is linear below some 100 events and
    logarithmic above. The *course* to a moment is the series of moments that
    led to it, of which older ones weigh less. In a program that repeats
    itself, the course distinguishes the same point of the iteration from
    others that only look alike.

    Each moment of the window is compared with the present one, and its course
    with the present course, by Euclidean distance. It votes, for each member,
    for the state that followed it there. At squared distances *d* and *c* per
    member, the vote has ``1 / ((1 + d / width) * (1 + c / course width)) **
    2`` of the greatest weight. Because this kernel has a heavy tail, no scale
    has to be tuned per program: close matches decide if there are any, and
    more distant ones otherwise.

    All members together identify a moment better than one alone: they run
    the same program, and the noise of one is not that of the others. The
    states of all members in a period are its *class*. Most classes come
    again, so votes are counted by class, for all members at once.

    :ivar unit: factor that turns votes into weights.
    :ivar total: sum of the votes for one member's states.
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
        # By member, in the same order: newest level and state. By member that
        # took part before this period: index into moments and classes.
        self._levels: dict[int, float] = {}
        self._states: dict[int, int] = {}
        self._indexes: dict[int, int] = {}
        self._moments: list[Moment] = []
        self._now: Moment | None = None
        # By moment of the window: number of the class that followed. By that
        # number: votes for the class.
        self._followers: list[int] = []
        self._classes: dict[States, int] = {}
        self._max_classes = _SPARE_CLASSES
        self._votes: list[float] = []
        # By moment: width and faded squared distance of its course, as of
        # the last period, so of the course to the moment before it.
        self._courses: list[float] = []
        # Number of moments kept, which depends on the number of members.
        self._window = WINDOW_ALONE
        self.total = 0.0
        self.unit = 1.0

    def remove_members(self, members: Collection[int]) -> None:
        """Remove members from all moments and classes."""
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
        """Take the period of a member, which may be a new member."""
        self._levels[member] = _LEVELS[
            int(_SCALE * math.log1p(events / _SCALE))
        ]
        self._states[member] = state

    def end_period(self) -> None:
        """Store the moment, after all members observed, and compare it.

        A member that observed nothing in this period counts with its last
        one.
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
        """Let the moments of the window vote by their likeness to ``now``.

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
        """Return the votes for each state of a member's next period.

        They have to be multiplied with :attr:`unit`. All states that
        followed a moment of the window are included; for a number that is
        not (or no longer) that of a member, the result is empty.
        """
        index = self._indexes.get(member)
        if index is None:
            return {}
        votes: dict[int, float] = {}
        vote_of = votes.get
        # strict=True takes longer than three classes do.
        for states, vote in zip(self._classes, self._votes):  # noqa: B905
            if vote:
                state = states[index]
                votes[state] = vote_of(state, 0.0) + vote
        return votes

    def _record_follower(self, states: States) -> None:
        """Record the class that followed the newest moment."""
        number = self._classes.get(states)
        if number is None:
            number = len(self._classes)
            if number >= self._max_classes:
                self._reclassify(lambda known: known)
                number = len(self._classes)
            self._classes[states] = number
        self._followers.append(number)

    def _reclassify(self, change: Callable[[States], States]) -> None:
        """Change all classes and drop those that left the window.

        :param change: function from the old to the new states of a class.
        """
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
        """Add new members to all moments, with their present level and state.

        So they make no moment differ from another until they change, and
        no moment has to be dropped because of them.
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
        """Fit window and course widths to the number of members."""
        members = len(self._levels)
        wider = _COURSE_WIDTH * (members - len(self._indexes))
        self._courses = [course + wider for course in self._courses]
        self._indexes = {
            member: index for index, member in enumerate(self._levels)
        }
        self._window = min(
            WINDOW, WINDOW_ALONE + WINDOW_PER_PEER * (members - 1)
        )
