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

import collections
import itertools
import math

WINDOW = 24
"""Moments of the past that are compared: 2.4 s. More would cost time per
prediction and win nothing."""

_LAST = 25
"""How much the period before the newest counts, in percent of it. What was
before that would win nothing."""

_WIDTH = 200.0
"""Squared distance at which a neighbour's weight is down to a quarter."""

_CUT = 45.0
"""Distance from which on the weight, below 2%, is taken as none."""


Moment = tuple[int, int]
"""Scaled events of a period and of the one before it.

Whole numbers, as Python has the small ones but once: with a thousand VMs
the time goes into fetching floats from memory.
"""


class Neighbours:
    """Kernel estimate of the next state from the history of I/O events.

    Each moment of the window is compared with now by the Euclidean
    distance of the events of its last two periods, on a scale that is
    linear below some 100 events and logarithmic above. A moment at
    distance *d* votes for the state that followed it with weight
    ``1 / (1 + d * d / width) ** 2``. The heavy tail does without a scale
    to be tuned per program: with close matches these decide, without any
    the more distant ones have a say.

    :ivar votes: weight by state, for the coming period; all states that
        followed anything in the window are in it.
    """

    __slots__ = ('_before', '_followers', '_moments', '_now', 'votes')

    def __init__(self) -> None:
        # By what followed them, so that each group sums up to one vote.
        self._moments: dict[int, list[Moment]] = {}
        self._followers: collections.deque[int] = collections.deque()
        self._now: Moment | None = None
        self._before = 0
        self.votes: dict[int, float] = {}

    def observe(self, state: int, events: float) -> None:
        """Take a period and vote for the one after it."""
        level = int(100.0 * math.log1p(events / 100.0))
        last = self._before
        self._before = level
        if self._now is not None:
            self._remember(self._now, state)
        now = (level, last * _LAST // 100)
        self._now = now
        # A good third of the time of a prediction is spent here: distances
        # are left to C, and all that the loop needs is local.
        votes = {}
        dist, cut, width = math.dist, _CUT, _WIDTH
        again = itertools.repeat(now)
        for follower, group in self._moments.items():
            vote = 0.0
            for distance in map(dist, group, again):
                if distance < cut:
                    weight = width / (width + distance * distance)
                    vote += weight * weight
            votes[follower] = vote
        self.votes = votes

    def _remember(self, moment: Moment, follower: int) -> None:
        """Add a moment to the window, the oldest gives way."""
        moments = self._moments
        followers = self._followers
        if len(followers) == WINDOW:
            oldest = followers.popleft()
            group = moments[oldest]
            if len(group) > 1:
                del group[0]
            else:
                del moments[oldest]
        followers.append(follower)
        known = moments.get(follower)
        if known is None:
            moments[follower] = [moment]
        else:
            known.append(moment)
