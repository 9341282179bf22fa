# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How strongly the mixture is biased towards predicting a change.

More bias sees more transitions but costs hits.
"""

import bisect
import math

from nova_vhpc.control.predictors import base, context_counts, ewma

EVEN = 1.0
BIAS = 1.5
STRONGEST_BIAS = 2.5
OUTLIER = 3.0
"""Thresholds: a change is predicted if the ratio, of the probability of
staying to that of the likeliest change, is below.

``EVEN`` gives most hits if the probabilities are right. Greater thresholds
foresee more transitions, and predict more that do not come. ``OUTLIER`` is for
states that are outliers."""

_THRESHOLDS = (0.3, 0.5, 0.7, 0.85, EVEN, 1.25)
"""Thresholds that are compared while few transitions were seen."""

_LEARNING_TRANSITIONS = 22
"""Transitions until the bias begins. Short programs see fewer: in these only
hits count."""

_DISTRUST = 1.0
"""Hits by which a threshold has to lead for each step that it is away from
``EVEN``."""

_LEAD = 16.0
_LEAD_SHARE = 1 / 30
"""Lead over the best baseline, in hits and as a share of all periods, that
makes the threshold e times as great; the baseline's lead makes it as much
smaller."""

_HALVING_PERIODS = 2_000.0
"""Periods after which all counts are halved, because another program may run
by then."""

_ROUNDING = -1e-9
"""Hits and gains are sums of shares, which rounding may leave this far below
their true value."""


Outcomes = tuple[bool, bool, bool]
"""Whether last value, EWMA and Markov of order 1 were right. Of the paper's
predictors these are mostly the best, and they cost almost no extra time."""


class ChangeBias:
    """Decides between staying and the likeliest change.

    The paper holds transitions to be more important than other periods
    (section III.A), but a predicted change that does not come costs a hit
    that staying would have won.

    While few transitions were seen, probabilities are vague, and the
    likeliest of many changes looks likelier than it is; the threshold that
    would have had most hits so far is used. After that the threshold is
    ``BIAS``, multiplied by a factor that follows from the lead, in hits of
    the actual predictions, over the best of the baselines. A lead is spent
    on more bias; if a baseline leads, the bias decreases. So a program whose
    changes do not come true as their probabilities promise has fewer changes
    predicted.

    All counts are means over the members of a virtual cluster: each member
    adds its *share*, which is 1 for a VM alone.
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
        # By threshold: hits, had it been in force all the time.
        self._hits = [
            -_DISTRUST * abs(place - even) for place in range(len(_THRESHOLDS))
        ]
        # Hits of the predictions less those of each baseline, and hits that
        # predicting changes from outliers has won.
        self._leads = [0.0, 0.0, 0.0]
        self._outlier_gain = 0.0

    def is_change(self, ratio: float, is_outlier: bool) -> bool:
        """Return whether to predict the likeliest change.

        :param ratio: probability of staying, as a multiple of that of the
            change.
        :param is_outlier: whether the current state was never seen before
            and does not look like the begin of a new phase.
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
        baselines_right: Outcomes,
        share: float,
    ) -> None:
        """Count the period of one member that has ended.

        :param ratio: argument of :meth:`is_change` for the period.
        :param is_outlier: argument of :meth:`is_change` for the period.
        :param stayed: whether the state stayed.
        :param change_right: whether it changed to the likeliest change.
        :param right: whether the prediction came true.
        :param baselines_right: whether those of the baselines did.
        :param share: share of the member in the cluster, 0 to 1.
        """
        leads = self._leads
        gain = share if right else -share
        # Written out, because a loop takes longer.
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
        """Renew the threshold after all members' periods were counted.

        :param share: share of the members that had a sample, 0 to 1.
        """
        self._periods += share
        if self._periods >= _HALVING_PERIODS:
            self._periods /= 2
            self._outlier_gain /= 2
            self._leads = [lead / 2 for lead in self._leads]
        if self._transitions < _LEARNING_TRANSITIONS:
            hits = self._hits
            # Of equally good thresholds the lowest, whatever the number of
            # members: sums of their shares differ by rounding.
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
        """Return whether to predict that an outlier is left at once."""
        return ratio < OUTLIER and self._outlier_gain >= _ROUNDING

    def _count_thresholds(
        self, ratio: float, is_outlier: bool, stayed: bool, share: float
    ) -> None:
        """Add a hit to each threshold that was right.

        If all were right nothing is added, as only differences count.
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


class Baselines:
    """Follows what last value, EWMA and Markov would predict for one VM."""

    __slots__ = ('_average',)

    def __init__(self) -> None:
        self._average = 0.0

    def begin(self, events: float) -> None:
        """Take the first period.

        :param events: I/O events of the period.
        """
        self._average = events

    def observe(
        self,
        current: int,
        state: int,
        events: float,
        after: context_counts.Counts,
    ) -> Outcomes:
        """Take one period and return which baselines predicted its state.

        :param current: state of the period before.
        :param state: state of the period.
        :param events: I/O events of the period.
        :param after: counts of what followed ``current``, without the period.
        """
        average = self._average
        self._average = average + ewma.ALPHA * (events - average)
        likeliest = after.likeliest
        if likeliest is None:
            likeliest = current
        by_likeliest = state == likeliest
        if not by_likeliest:
            # No search for the most frequent state is needed: only the state
            # of this period can have become it. Of equals the current wins.
            by_state = after.by_state
            more = by_state.get(state, 0) + (state == current)
            if more >= by_state.get(likeliest, 0):
                after.likeliest = state
        return (
            state == current,
            base.to_state(average) == state,
            by_likeliest,
        )
