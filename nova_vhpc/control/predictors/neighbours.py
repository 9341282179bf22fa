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

WINDOW = 40
"""Moments of the past that are compared: 4 s."""

_SHARES = (0.63, 0.4)
"""How much less the last period but one counts, and the one before it."""

_WIDTH = 250.0
"""Squared distance at which a neighbour's weight is down to a quarter."""

_CUT = 45.0
"""Distance from which on the weight, below 2%, is taken as none."""


class Neighbours:
    """Kernel estimate of the next state from the history of I/O events.

    Each moment of the window is compared with now by the Euclidean
    distance of the events of its last three periods, on a scale that is
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
        self._moments: collections.deque[tuple[float, float, float]] = (
            collections.deque(maxlen=WINDOW)
        )
        self._followers: collections.deque[int] = collections.deque(
            maxlen=WINDOW
        )
        self._now: tuple[float, float, float] | None = None
        self._before = (0.0, 0.0)
        self.votes: dict[int, float] = {}

    def observe(self, state: int, events: float) -> None:
        """Take a period and vote for the one after it."""
        level = 100.0 * math.log1p(events / 100.0)
        last, last_but_one = self._before
        self._before = (level, last)
        followers = self._followers
        moments = self._moments
        if self._now is not None:
            moments.append(self._now)
            followers.append(state)
        now = (level, _SHARES[0] * last, _SHARES[1] * last_but_one)
        self._now = now
        votes = dict.fromkeys(followers, 0.0)
        for follower, distance in zip(
            followers,
            map(math.dist, moments, itertools.repeat(now)),
            strict=False,
        ):
            if distance < _CUT:
                weight = _WIDTH / (_WIDTH + distance * distance)
                votes[follower] += weight * weight
        self.votes = votes
