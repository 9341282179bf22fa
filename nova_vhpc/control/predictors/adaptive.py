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

"""Ours: mixes what the past tells in several ways, by how well each does."""

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import (
    base,
    boldness,
    counts,
    neighbours,
    patterns,
)

_PRIOR_FREQUENCY = 5.0
_PRIOR_1 = 0.5
_PRIOR_2 = 2.0
_PRIOR_PATTERNS = 0.3
"""Weight of each expert, the neighbours' being 1, before it has shown
anything. In a short program there is little more to learn than which states
are frequent."""

_MEMORY = 0.995
"""An expert's weight is the product of the probabilities that it gave to
what came, each forgotten at this rate per period."""

_LEAST = 1e-250
"""Weights are kept relative to the greatest; none may come down to 0, from
where there is no way back."""

_DOUBT = 0.03
"""Probability that all states share, whatever an expert says, to that of
all that it says, when experts are judged."""

_STAY = 0.5
_DRIFT = 0.5
_DRIFT_ALPHA = 0.75
"""Pseudo-counts of the frequencies: for the current state, and for the one
that a short moving average of the events is in: a value just over the edge
of a state mostly falls back."""

_SELF = 1.0
"""Pseudo-count of Markov 1: a state follows itself."""

_BACK_NEIGHBOURS = 0.3
_BACK_1 = 5.0
_BACK_2 = 2.0
"""Pseudo-counts with which each expert falls back on a simpler one."""


class AdaptivePredictor:
    """Weighted mixture of five experts, and a decision that is balanced.

    * *neighbours*: what followed similar stretches of the raw events,
    * *frequency*: how often each state has occurred at all,
    * *Markov 1* and *2*: what followed the last state, the last two,
    * *patterns*: what followed the last eight, as GPHT says.

    Each falls back on a simpler one as far as it has seen too little
    (Markov 2, the neighbours and the patterns on Markov 1, that on the
    frequencies), as in prediction by partial matching. Experts are weighted
    by the discounted likelihood of what really came, as in a Bayesian
    mixture with forgetting. Whether the likeliest other state is predicted,
    or the current one, is left to :class:`~.boldness.Boldness`.

    There is nothing to tune per program, and no randomness.
    """

    __slots__ = (
        '_after_1',
        '_after_2',
        '_boldness',
        '_change',
        '_drift',
        '_frequencies',
        '_mean',
        '_neighbours',
        '_patterns',
        '_prediction',
        '_scale',
        '_state',
        '_table',
        '_weights',
    )

    def __init__(self) -> None:
        self._neighbours = neighbours.Neighbours()
        self._table = counts.CountTable(
            max_contexts=192, max_successors=32, ceiling=1000
        )
        self._boldness = boldness.Boldness()
        self._patterns = patterns.Patterns()
        self._weights = (1.0, 1.0, 1.0, 1.0, 1.0)
        self._scale = (1.0, 1.0, 1.0, 1.0)
        # What followed anything, the last state, and the last two.
        self._frequencies = counts.Counts()
        self._after_1 = counts.Counts()
        self._after_2 = counts.Counts()
        self._state: int | None = None
        self._mean = 0.0
        self._drift = quantise.IDLE_STATE
        self._change = quantise.IDLE_STATE
        self._prediction = quantise.IDLE_STATE

    def observe(self, state: int, events: float) -> None:
        """Learn from what came, and work out the next prediction."""
        state = base.clean_state(state)
        events = base.clean_events(events)
        table = self._table
        current = self._state
        if current is None:
            self._mean = events
        else:
            stayed = state == current
            self._judge(stayed, state)
            self._boldness.learn(stayed, state == self._change)
            table.add(self._after_1, state)
            table.add(self._after_2, state)
            self._mean += _DRIFT_ALPHA * (events - self._mean)
        table.add(self._frequencies, state)
        self._after_1 = table.use(state)
        self._after_2 = table.use((current, state))
        self._state = state
        self._drift = quantise.to_state(self._mean)
        self._neighbours.observe(state, events)
        self._patterns.observe(state, events)
        self._decide(state)

    def predict(self) -> int:
        """The state that the mixture, boldly or not, decided on."""
        return self._prediction

    @property
    def state_bytes(self) -> int:
        """Bytes held."""
        return base.deep_bytes(self)

    def _judge(self, stayed: bool, state: int) -> None:
        """Weigh each expert by the probability it gave to what came."""
        frequencies = self._frequencies.by_state
        by_frequency, by_1, by_2, by_neighbours = self._scale
        count: float = frequencies.get(state, 0)
        following: float = self._after_1.by_state.get(state, 0)
        if stayed:
            count += _STAY
            following += _SELF
        if state == self._drift:
            count += _DRIFT
        frequency = count * by_frequency
        markov_1 = (following + _BACK_1 * frequency) * by_1
        markov_2 = (
            self._after_2.by_state.get(state, 0) + _BACK_2 * markov_1
        ) * by_2
        neighbour = (
            self._neighbours.votes.get(state, 0.0)
            + _BACK_NEIGHBOURS * markov_1
        ) * by_neighbours
        trust = self._patterns.trust
        pattern = (1.0 - trust) * markov_1
        if state == self._patterns.expected:
            pattern += trust
        doubt = _DOUBT / (len(frequencies) + 2)
        a, b, c, d, e = self._weights
        a = a**_MEMORY * (doubt + neighbour)
        b = b**_MEMORY * (doubt + frequency)
        c = c**_MEMORY * (doubt + markov_1)
        d = d**_MEMORY * (doubt + markov_2)
        e = e**_MEMORY * (doubt + pattern)
        scale = 1.0 / max(a, b, c, d, e)
        self._weights = (
            a * scale + _LEAST,
            b * scale + _LEAST,
            c * scale + _LEAST,
            d * scale + _LEAST,
            e * scale + _LEAST,
        )

    def _decide(self, state: int) -> None:
        """Mix the experts and choose between staying and changing."""
        frequencies = self._frequencies
        after_1 = self._after_1
        after_2 = self._after_2
        votes = self._neighbours.votes
        expected = self._patterns.expected
        trust = self._patterns.trust
        by_frequency = 1.0 / (frequencies.total + _STAY + _DRIFT)
        by_1 = 1.0 / (after_1.total + _SELF + _BACK_1)
        by_2 = 1.0 / (after_2.total + _BACK_2)
        by_neighbours = 1.0 / (sum(votes.values()) + _BACK_NEIGHBOURS)
        self._scale = (by_frequency, by_1, by_2, by_neighbours)

        a, b, c, d, e = self._weights
        w_neighbours = a * by_neighbours
        w_frequency = _PRIOR_FREQUENCY * b
        w_1 = _PRIOR_1 * c
        w_2 = _PRIOR_2 * d * by_2
        w_patterns = _PRIOR_PATTERNS * e
        # An expert's share that falls back is carried by the simpler one.
        w_1 += w_neighbours * _BACK_NEIGHBOURS + w_2 * _BACK_2
        w_1 = (w_1 + w_patterns * (1.0 - trust)) * by_1
        w_frequency = (w_frequency + w_1 * _BACK_1) * by_frequency

        # What did not follow anything in the window is out of the question,
        # unless the average is just there or the pattern says so.
        drift = self._drift
        votes.setdefault(drift, 0.0)
        votes.setdefault(expected, 0.0)
        often = frequencies.by_state.get
        often_1 = after_1.by_state.get
        often_2 = after_2.by_state.get
        stay = (
            votes.get(state, 0.0) * w_neighbours
            + (often(state, 0) + _STAY) * w_frequency
            + (often_1(state, 0) + _SELF) * w_1
            + often_2(state, 0) * w_2
        )
        change = state
        likeliest = 0.0
        for key, vote in votes.items():
            if key == state:
                continue
            weight = (
                vote * w_neighbours
                + often(key, 0) * w_frequency
                + often_1(key, 0) * w_1
                + often_2(key, 0) * w_2
            )
            if key == drift:
                weight += _DRIFT * w_frequency
            if key == expected:
                weight += trust * w_patterns
            if weight > likeliest:
                change = key
                likeliest = weight
        if state == drift:
            stay += _DRIFT * w_frequency
        if state == expected:
            stay += trust * w_patterns
        self._change = change
        self._prediction = (
            change
            if self._boldness.is_change(stay, likeliest, often(state, 0) <= 1)
            else state
        )
