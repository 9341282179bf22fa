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

"""How readily a change is predicted: hits against transitions seen."""

import bisect

EVEN = 1.0
BOLD = 1.5
BOLDER = 1.8
NEW = 3.0
"""A change is predicted where staying is less than so many times as likely.

1 gives most hits if the probabilities are right; more sees more of the
transitions, at the price of false ones. The last is for states that were
never met before: such are mostly strays, unless idle."""

_THRESHOLDS = (0.3, 0.5, 0.7, 0.85, EVEN, 1.25, BOLD, BOLDER)
_CAUTIOUS = 1.25
"""What is tried at first, and how much of it is used then at most."""

_YOUNG_TRANSITIONS = 30
"""Transitions until there is enough to be bold on. Short programs see
fewer: in these only hits count."""

_DISTRUST = 0.6
"""Hits that each step away from the even threshold has to win first."""

_MARGIN = 1.0
_MARGIN_SHARE = 0.02
"""Hits, and share of all periods, by which predictions must be better or
worse than staying all the time before that counts."""

_PAYS = 3
"""Margins by which they must be ahead before that pays for more boldness."""

_NOTHING = -1e-9
"""Gains are sums of shares; rounding may leave one of 0 slightly below."""


class Boldness:
    """Decides between staying and the likeliest change.

    The paper holds transitions to be the more important (section III.A),
    but a false one costs a hit that staying would have won. While few
    transitions were seen probabilities are vague, and the likeliest of
    many changes looks likelier than it is. So the threshold is used that
    has brought most hits so far. Later the bold one is used. What was
    really predicted is compared with staying all the time then. Boldness
    ends where it has brought fewer hits, by the margin: changes do not
    come true there as their probabilities promise. Where it has brought
    more, by some margins, these pay for even more boldness.

    All counts are means over the members of a virtual cluster: each adds
    its *share*, which is 1 for a VM alone.
    """

    __slots__ = (
        '_hits',
        '_lead',
        '_new_gain',
        '_periods',
        '_threshold',
        '_transitions',
    )

    def __init__(self) -> None:
        even = _THRESHOLDS.index(EVEN)
        self._periods = 0.0
        self._transitions = 0.0
        self._threshold = EVEN
        # Of each threshold, as if it had been in force all the time.
        self._hits = [
            -_DISTRUST * abs(place - even) for place in range(len(_THRESHOLDS))
        ]
        # Hits of what was predicted less those of staying, and hits that
        # changes from new states have won.
        self._lead = 0.0
        self._new_gain = 0.0

    def is_change(self, ratio: float, is_new: bool) -> bool:
        """Whether to predict the change.

        :param ratio: how many times as likely it is to stay.
        :param is_new: the current state was never met before, and is not
            idle.
        """
        return ratio < self._threshold or (is_new and self._strays(ratio))

    def learn(
        self,
        ratio: float,
        is_new: bool,
        changing: bool,
        stayed: bool,
        expected: bool,
        share: float,
    ) -> None:
        """Count a member's period that has ended.

        :param ratio: what :meth:`is_change` was told, as ``is_new``.
        :param changing: what it answered.
        :param stayed: the state stayed.
        :param expected: it changed to the very state that was likeliest.
        :param share: of the member in the cluster, 0..1.
        """
        if stayed:
            won = -share
        else:
            self._transitions += share
            if not expected:
                return
            won = share
        if changing:
            self._lead += won
        if self._transitions < _YOUNG_TRANSITIONS:
            self._try(ratio, is_new, stayed, share)
        if is_new and EVEN <= ratio < NEW:
            self._new_gain += won

    def settle(self, share: float) -> None:
        """A period was counted.

        :param share: of the members that had one, 0..1.
        """
        self._periods += share
        if self._transitions < _YOUNG_TRANSITIONS:
            hits = self._hits
            best = hits.index(max(hits))
            self._threshold = min(_THRESHOLDS[best], _CAUTIOUS)
            return
        margin = _MARGIN + _MARGIN_SHARE * self._periods
        if self._lead < -margin:
            self._threshold = EVEN
        elif self._lead > _PAYS * margin:
            self._threshold = BOLDER
        else:
            self._threshold = BOLD

    def _strays(self, ratio: float) -> bool:
        """Whether a new state is left, whatever the threshold."""
        return ratio < NEW and self._new_gain >= _NOTHING

    def _try(
        self, ratio: float, is_new: bool, stayed: bool, share: float
    ) -> None:
        """Give each threshold that was right its hit.

        Where all were it makes no difference.
        """
        if is_new and self._strays(ratio):
            return
        changing = bisect.bisect_right(_THRESHOLDS, ratio)
        hits = self._hits
        if stayed:
            if changing < len(hits):
                for place in range(changing):
                    hits[place] += share
        elif changing:
            for place in range(changing, len(hits)):
                hits[place] += share
