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
import math

from nova_vhpc.control.predictors.mixture import baselines

EVEN = 1.0
BIAS = 1.5
STRONGEST_BIAS = 2.5
OUTLIER = 3.0
"""A change is predicted where staying is less than so many times as likely.

1 gives most hits if the probabilities are right; more sees more of the
transitions, at the price of false ones. The last is for strays."""

_THRESHOLDS = (0.3, 0.5, 0.7, 0.85, EVEN, 1.25)
"""What is tried at first."""

_LEARNING_TRANSITIONS = 22
"""Transitions until there is enough to be bold on. Short programs see
fewer: in these only hits count."""

_DISTRUST = 1.0
"""Hits that each step away from the even threshold has to win first."""

_LEAD = 16.0
_LEAD_SHARE = 1 / 30
"""Hits, and share of all periods, by which the best rival has to be behind
for boldness e times as great; or ahead, for one as much smaller."""

_HALVING_PERIODS = 2_000.0
"""Periods until what has come of predictions counts half: another program may
run by then."""

_ROUNDING = -1e-9
"""Hits and gains are sums of shares; rounding may leave them so far below what
they come to."""


class ChangeBias:
    """Decides between staying and the likeliest change.

    The paper holds transitions to be the more important (section III.A),
    but a false one costs a hit that staying would have won. While few
    transitions were seen probabilities are vague, and the likeliest of
    many changes looks likelier than it is. So the threshold is used that
    has brought most hits so far. Later the bold one is used. What was
    really predicted is compared with what simple predictors would have
    had: a lead on the best of them is spent on more boldness, and where one
    of them is ahead boldness fades. So changes that do not come true as
    their probabilities promise are predicted no longer.

    All counts are means over the members of a virtual cluster: each adds
    its *share*, which is 1 for a VM alone.
    """

    __slots__ = (
        '_hits',
        '_leads',
        '_outlier_gain',
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
        # Hits of what was predicted less those of each rival, and hits that
        # changes from strays have won.
        self._leads = [0.0, 0.0, 0.0]
        self._outlier_gain = 0.0

    def is_change(self, ratio: float, is_outlier: bool) -> bool:
        """Whether to predict the change.

        :param ratio: how many times as likely it is to stay.
        :param is_outlier: the current state was never met before, and does not
            look like a new phase.
        """
        return ratio < self._threshold or (
            is_outlier and self._leaves_outlier(ratio)
        )

    def learn(
        self,
        ratio: float,
        is_outlier: bool,
        stayed: bool,
        change_right: bool,
        right: bool,
        baselines_right: baselines.Outcomes,
        share: float,
    ) -> None:
        """Count a member's period that has ended.

        :param ratio: what :meth:`is_change` was told, as ``is_outlier``.
        :param stayed: the state stayed.
        :param change_right: it changed to the very state that was likeliest.
        :param right: what was predicted came true.
        :param baselines_right: the same of each rival.
        :param share: of the member in the cluster, 0..1.
        """
        leads = self._leads
        gain = share if right else -share
        # A loop takes longer.
        last, average, likeliest = baselines_right
        if last is not right:
            leads[0] += gain
        if average is not right:
            leads[1] += gain
        if likeliest is not right:
            leads[2] += gain
        if stayed:
            won = -share
        else:
            self._transitions += share
            if not change_right:
                return
            won = share
        if self._transitions < _LEARNING_TRANSITIONS:
            self._count_thresholds(ratio, is_outlier, stayed, share)
        if is_outlier and EVEN <= ratio < OUTLIER:
            self._outlier_gain += won

    def end_period(self, share: float) -> None:
        """A period was counted.

        :param share: of the members that had one, 0..1.
        """
        self._periods += share
        if self._periods >= _HALVING_PERIODS:
            self._periods /= 2
            self._outlier_gain /= 2
            self._leads = [lead / 2 for lead in self._leads]
        if self._transitions < _LEARNING_TRANSITIONS:
            hits = self._hits
            # Of equals the lowest, for any number of members.
            most = max(hits) + _ROUNDING
            self._threshold = next(
                threshold
                for threshold, count in zip(_THRESHOLDS, hits, strict=True)
                if count >= most
            )
            return
        lead = min(self._leads) / (_LEAD + _LEAD_SHARE * self._periods)
        self._threshold = min(max(BIAS * math.exp(lead), EVEN), STRONGEST_BIAS)

    def _leaves_outlier(self, ratio: float) -> bool:
        """Whether a stray is left, whatever the threshold."""
        return ratio < OUTLIER and self._outlier_gain >= _ROUNDING

    def _count_thresholds(
        self, ratio: float, is_outlier: bool, stayed: bool, share: float
    ) -> None:
        """Give each threshold that was right its hit.

        Where all were it makes no difference.
        """
        if is_outlier and self._leaves_outlier(ratio):
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
