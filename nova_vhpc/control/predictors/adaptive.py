# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``adaptive``: a mixture of five experts, weighted by their success.

Ours, not from the papers; built from RLE, Markov, GPHT and nearest histories.
"""

import math

from nova_vhpc.control.predictors import base, context_counts
from nova_vhpc.control.predictors.mixture import (
    change_bias,
    shared,
)

_IDLE_STATE = base.IDLE_STATE

_PRIOR_NEAREST = 4.5
_PRIOR_FREQUENCY = 3.0
_PRIOR_MARKOV = 3.0
_PRIOR_GPHT = 0.3
"""Weight of each expert before the first period; that of the runs is 1. In a
short program there is little more to learn than which states are frequent and
how long they last."""

_DOUBT = 0.04
"""Probability that is divided among all states when the likelihood of an
expert is computed, relative to that of all its predictions: no expert rules
out a state."""

_PSEUDO_STAY = 0.7
_PSEUDO_MEAN = 1.5
_MEAN_ALPHA = 0.8
"""Pseudo-counts of the frequency expert: for the current state, and for the
mean state, which is the state of a short moving average of the events (with
this alpha). An outlier just over the edge of a state mostly falls back."""

_PSEUDO_SELF = 2.5
"""Pseudo-count of the Markov expert: a state follows itself."""

_BACK_NEAREST = 1.0
_BACK_MARKOV = 3.0
_BACK_RUNS = 1.0
"""Pseudo-counts of the simpler expert on which each expert falls back."""

_MAX_RUN = 12
"""Longer runs count as runs of this length, in periods."""


class AdaptivePredictor:
    """Bayesian mixture of five experts, followed by a biased decision.

    * *nearest history*: what followed the moments that were most like the
      present one, by the raw events of all members of the virtual cluster,
    * *frequency*: how often each state has occurred,
    * *Markov*: what followed the last state,
    * *runs*: what followed the last state when it had lasted as long, after
      the same other state; RLE's table with one more state, and with counts
      instead of the last successor,
    * *GPHT*: what followed the last eight states.

    As in prediction by partial matching, an expert that has seen too little
    falls back on a simpler one: Markov on frequency, all others on Markov.
    Experts are weighted by the discounted likelihood of the states that came
    (a Bayesian mixture with forgetting). Whether to predict the likeliest
    change or the current state is the decision of
    :class:`~.change_bias.ChangeBias`. The change bias, the weights and the
    nearest history belong to all members together
    (:class:`~.shared.SharedLearning`), the rest to each.

    There is nothing to tune per program, and no randomness.

    :param shared_learning: that of the virtual cluster; None for a VM alone.
    """

    __slots__ = (
        '_after_run',
        '_after_state',
        '_baselines',
        '_frequencies',
        '_gpht_expert',
        '_has_predicted',
        '_is_new',
        '_is_outlier',
        '_likeliest_change',
        '_mean',
        '_mean_state',
        '_member',
        '_normalisers',
        '_prediction',
        '_previous',
        '_ratio',
        '_run',
        '_shared_learning',
        '_state',
        '_table',
        '_votes',
    )

    def __init__(
        self, shared_learning: shared.SharedLearning | None = None
    ) -> None:
        self._shared_learning = (
            shared.SharedLearning()
            if shared_learning is None
            else shared_learning
        )
        self._member = self._shared_learning.join()
        self._table = context_counts.CountTable(
            max_contexts=96, max_successors=32, ceiling=1000
        )
        self._gpht_expert = shared.GphtExpert()
        self._votes: dict[int, float] = {}
        self._normalisers = (1.0, 1.0, 1.0, 1.0, 1.0)
        # Counts of what followed any state, the last state, and its run.
        self._frequencies = context_counts.Counts()
        self._after_state = context_counts.Counts()
        self._after_run = context_counts.Counts()
        self._state: int | None = None
        # How long the state has lasted, in periods, and the state before it.
        self._run = 0
        self._previous: int | None = None
        self._mean = 0.0
        self._mean_state = base.IDLE_STATE
        self._baselines = change_bias.Baselines()
        # The last prediction, and whether it is for the next period.
        self._has_predicted = False
        self._likeliest_change = base.IDLE_STATE
        self._ratio = math.inf
        self._is_new = False
        self._is_outlier = False
        self._prediction = base.IDLE_STATE

    def for_peer(self) -> 'AdaptivePredictor':
        """See :class:`~.base.PeerPredictor`."""
        return AdaptivePredictor(self._shared_learning)

    def observe(self, state: int, events: float) -> None:
        """Learn from a period, and judge the prediction for it, if any."""
        state = base.clean_state(state)
        events = base.clean_events(events)
        shared_learning = self._shared_learning
        if not shared_learning.observe(self._member, state, events):
            self._has_predicted = False
        table = self._table
        current = self._state
        if current is None:
            self._mean = events
            self._baselines.begin(events)
            table.learn(state, self._frequencies)
        else:
            baselines_right = self._baselines.observe(
                current, state, events, self._after_state
            )
            if self._has_predicted:
                self._judge(current, state, baselines_right)
            table.learn(
                state, self._after_state, self._after_run, self._frequencies
            )
            self._mean += _MEAN_ALPHA * (events - self._mean)
        if state != current:
            self._previous = current
            self._run = 1
            self._after_state = table.use(state)
            self._after_run = table.use((current, state, 1))
        elif self._run < _MAX_RUN:
            self._run += 1
            self._after_run = table.use((self._previous, state, self._run))
        self._state = state
        self._mean_state = base.to_state(self._mean)
        self._gpht_expert.observe(state)
        self._has_predicted = False

    def predict(self) -> int:
        """Return the state on which mixture and change bias decide.

        All members should have observed their period before; a member that
        observes later counts with its last one.
        """
        if not self._has_predicted and self._state is not None:
            shared_learning = self._shared_learning
            if shared_learning.observed:
                shared_learning.end_period()
            self._votes = shared_learning.nearest_history.votes(self._member)
            self._decide(self._state)
            self._has_predicted = True
        return self._prediction

    @property
    def state_bytes(self) -> int:
        """Bytes held, including the share of what the members share."""
        shared_bytes = base.deep_bytes(self._shared_learning)
        return (
            base.deep_bytes(self)
            - shared_bytes
            + -(-shared_bytes // len(self._shared_learning))
        )

    def _judge(
        self, current: int, state: int, baselines_right: change_bias.Outcomes
    ) -> None:
        """Record which probability each expert gave to the state that came.

        :param current: state of the period before.
        :param state: state that came.
        :param baselines_right: which of the baselines predicted it.
        """
        stayed = state == current
        frequencies = self._frequencies.by_state
        shared_learning = self._shared_learning
        by_frequency, by_markov, by_run, by_nearest, back = self._normalisers
        count: float = frequencies.get(state, 0)
        following: float = self._after_state.by_state.get(state, 0)
        if stayed:
            count += _PSEUDO_STAY
            following += _PSEUDO_SELF
        if state == self._mean_state:
            count += _PSEUDO_MEAN
        frequency = count * by_frequency
        markov = (following + _BACK_MARKOV * frequency) * by_markov
        run = (
            self._after_run.by_state.get(state, 0) + _BACK_RUNS * markov
        ) * by_run
        nearest = (self._votes.get(state, 0.0) + back * markov) * by_nearest
        trust = self._gpht_expert.trust
        pattern = (1.0 - trust) * markov
        if state == self._gpht_expert.expected:
            pattern += trust
        doubt = _DOUBT / (len(frequencies) + 2)
        shared_learning.likelihoods.append(
            (
                doubt + nearest,
                doubt + frequency,
                doubt + markov,
                doubt + run,
                doubt + pattern,
            )
        )
        shared_learning.change_bias.learn(
            self._ratio,
            self._is_outlier,
            stayed,
            state == self._likeliest_change,
            self._prediction == state,
            baselines_right,
            shared_learning.share,
        )

    def _decide(self, state: int) -> None:
        """Mix the experts, then decide between staying and changing."""
        frequencies = self._frequencies
        after_state = self._after_state
        after_run = self._after_run
        votes = self._votes
        expected = self._gpht_expert.expected
        trust = self._gpht_expert.trust
        by_frequency = 1.0 / (frequencies.total + _PSEUDO_STAY + _PSEUDO_MEAN)
        by_markov = 1.0 / (after_state.total + _PSEUDO_SELF + _BACK_MARKOV)
        by_run = 1.0 / (after_run.total + _BACK_RUNS)
        shared_learning = self._shared_learning
        nearest_history = shared_learning.nearest_history
        back = _BACK_NEAREST / nearest_history.unit
        by_nearest = 1.0 / (nearest_history.total + back)
        self._normalisers = (by_frequency, by_markov, by_run, by_nearest, back)

        a, b, c, d, e = shared_learning.weights
        w_nearest = _PRIOR_NEAREST * a * by_nearest
        w_run = d * by_run
        w_gpht = _PRIOR_GPHT * e
        # The part of an expert that falls back is added to the simpler one.
        w_markov = w_nearest * back + w_run * _BACK_RUNS
        w_markov += _PRIOR_MARKOV * c + w_gpht * (1.0 - trust)
        w_markov *= by_markov
        w_frequency = (
            _PRIOR_FREQUENCY * b + w_markov * _BACK_MARKOV
        ) * by_frequency

        # Candidates are the states that followed a moment of the window, the
        # mean state, and the one that GPHT expects.
        mean_state = self._mean_state
        if mean_state not in votes:
            votes[mean_state] = 0.0
        if expected not in votes:
            votes[expected] = 0.0
        counted = frequencies.by_state
        counted_after_state = after_state.by_state
        counted_after_run = after_run.by_state
        often = counted.get(state, 0)
        stay = (
            votes.get(state, 0.0) * w_nearest
            + (often + _PSEUDO_STAY) * w_frequency
            + (counted_after_state.get(state, 0) + _PSEUDO_SELF) * w_markov
            + counted_after_run.get(state, 0) * w_run
        )
        change = state
        likeliest = 0.0
        for key, vote in votes.items():
            if key == state:
                continue
            weight = vote * w_nearest
            # A state too rare to have a count is known to nearest history
            # only. Looking up the other counts would take most of the time
            # in programs in which all states are rare.
            if key in counted:
                known = counted[key] * w_frequency
                if key in counted_after_state:
                    known += counted_after_state[key] * w_markov
                if key in counted_after_run:
                    known += counted_after_run[key] * w_run
                weight += known
            if key == mean_state:
                weight += _PSEUDO_MEAN * w_frequency
            if key == expected:
                weight += trust * w_gpht
            if weight > likeliest:
                change = key
                likeliest = weight
        if state == mean_state:
            stay += _PSEUDO_MEAN * w_frequency
        if state == expected:
            stay += trust * w_gpht
        self._likeliest_change = change
        self._ratio = ratio = stay / likeliest if likeliest else math.inf
        # The idle state is no outlier: every program pauses, and begins with
        # setting up. Nor is a new state that follows another new one: a new
        # phase has begun, unless the change leads back towards the other.
        is_new = often <= 1 and state != _IDLE_STATE
        self._is_outlier = is_outlier = is_new and (
            not self._is_new or self._is_back(state, change)
        )
        self._is_new = is_new
        is_change = shared_learning.change_bias.is_change(ratio, is_outlier)
        self._prediction = change if is_change else state

    def _is_back(self, state: int, change: int) -> bool:
        """Return whether a change leads back towards the previous state."""
        before = self._previous
        return before is not None and abs(change - before) < abs(
            state - before
        )
