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

import math

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import base, boldness, counts, neighbours

_PRIOR = (1.0, 5.0, 0.5, 2.0)
"""Weight of each expert before it has shown anything: neighbours, frequency,
Markov 1, Markov 2. In a short program there is little more to learn than
which states are frequent."""

_MEMORY = 0.995
"""An expert's weight is the product of the probabilities that it gave to
what came, each forgotten at this rate per period."""

_DOUBT = 0.03
"""Probability that is kept for all states alike when experts are judged."""

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
    """Weighted mixture of four experts, and a decision that is balanced.

    * *neighbours*: what followed similar stretches of the raw events,
    * *frequency*: how often each state has occurred at all,
    * *Markov 1* and *2*: what followed the last state, the last two.

    Each falls back on a simpler one as far as it has seen too little
    (Markov 2 and the neighbours on Markov 1, that on the frequencies), as
    in prediction by partial matching. Experts are weighted by the
    discounted likelihood of what really came, as in a Bayesian mixture
    with forgetting. Whether the likeliest other state is predicted, or the
    current one, is left to :class:`~.boldness.Boldness`.

    There is nothing to tune per program, and no randomness.
    """

    __slots__ = (
        '_boldness',
        '_change',
        '_drift',
        '_mean',
        '_neighbours',
        '_prediction',
        '_previous',
        '_scale',
        '_scores',
        '_state',
        '_table',
    )

    def __init__(self) -> None:
        self._neighbours = neighbours.Neighbours()
        self._table = counts.CountTable(
            max_contexts=192, max_successors=32, ceiling=1000
        )
        self._boldness = boldness.Boldness()
        self._scores = (0.0, 0.0, 0.0, 0.0)
        self._scale = (1.0, 1.0, 1.0, 1.0)
        self._state: int | None = None
        self._previous: int | None = None
        self._mean = 0.0
        self._drift = quantise.IDLE_STATE
        self._change: int | None = None
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
            self._judge(current, state)
            self._boldness.learn(state == current, state == self._change)
            table.add(current, state)
            if self._previous is not None:
                table.add((self._previous, current), state)
            self._mean += _DRIFT_ALPHA * (events - self._mean)
        table.add(None, state)
        self._previous = current
        self._state = state
        self._drift = quantise.to_state(self._mean)
        self._neighbours.observe(state, events)
        self._decide(state)

    def predict(self) -> int:
        """The state that the mixture, boldly or not, decided on."""
        return self._prediction

    @property
    def state_bytes(self) -> int:
        """Bytes held."""
        return base.deep_bytes(self)

    def _judge(self, current: int, state: int) -> None:
        """Weigh each expert by the probability it gave to what came."""
        table = self._table
        frequencies = table.get(None)
        by_frequency, by_1, by_2, by_neighbours = self._scale
        count: float = frequencies.get(state, 0)
        following: float = table.get(current).get(state, 0)
        if state == current:
            count += _STAY
            following += _SELF
        if state == self._drift:
            count += _DRIFT
        frequency = count * by_frequency
        markov_1 = (following + _BACK_1 * frequency) * by_1
        markov_2 = (
            table.get((self._previous, current)).get(state, 0)
            + _BACK_2 * markov_1
        ) * by_2
        neighbour = (
            self._neighbours.votes.get(state, 0.0)
            + _BACK_NEIGHBOURS * markov_1
        ) * by_neighbours
        doubt = _DOUBT / (len(frequencies) + 2)
        belief = 1.0 - _DOUBT
        log = math.log
        a, b, c, d = self._scores
        self._scores = (
            _MEMORY * a + log(doubt + belief * neighbour),
            _MEMORY * b + log(doubt + belief * frequency),
            _MEMORY * c + log(doubt + belief * markov_1),
            _MEMORY * d + log(doubt + belief * markov_2),
        )

    def _decide(self, state: int) -> None:
        """Mix the experts and choose between staying and changing."""
        table = self._table
        frequencies = table.get(None)
        after_1 = table.get(state)
        after_2 = table.get((self._previous, state))
        votes = self._neighbours.votes
        by_frequency = 1.0 / (sum(frequencies.values()) + _STAY + _DRIFT)
        by_1 = 1.0 / (sum(after_1.values()) + _SELF + _BACK_1)
        by_2 = 1.0 / (sum(after_2.values()) + _BACK_2)
        by_neighbours = 1.0 / (sum(votes.values()) + _BACK_NEIGHBOURS)
        self._scale = (by_frequency, by_1, by_2, by_neighbours)

        scores = self._scores
        top = max(scores)
        exp = math.exp
        w_neighbours = _PRIOR[0] * exp(scores[0] - top) * by_neighbours
        w_frequency = _PRIOR[1] * exp(scores[1] - top)
        w_1 = _PRIOR[2] * exp(scores[2] - top)
        w_2 = _PRIOR[3] * exp(scores[3] - top) * by_2
        # An expert's share that falls back is carried by the simpler one.
        w_1 = (w_1 + w_neighbours * _BACK_NEIGHBOURS + w_2 * _BACK_2) * by_1
        w_frequency = (w_frequency + w_1 * _BACK_1) * by_frequency

        # What did not follow anything in the window is out of the question,
        # unless the average is just there.
        drift = self._drift
        change = -1
        likeliest = 0.0
        if drift != state and drift not in votes:
            change = drift
            likeliest = (_DRIFT + frequencies.get(drift, 0)) * w_frequency
        for key, vote in votes.items():
            if key == state:
                continue
            weight = (
                vote * w_neighbours
                + frequencies.get(key, 0) * w_frequency
                + after_1.get(key, 0) * w_1
                + after_2.get(key, 0) * w_2
            )
            if key == drift:
                weight += _DRIFT * w_frequency
            if weight > likeliest:
                change = key
                likeliest = weight
        if change < 0:
            self._change = None
            self._boldness.is_change(1.0, 0.0, False)
            self._prediction = state
            return
        own = frequencies.get(state, 0)
        stay = (
            votes.get(state, 0.0) * w_neighbours
            + (own + _STAY + (_DRIFT if drift == state else 0.0)) * w_frequency
            + (after_1.get(state, 0) + _SELF) * w_1
            + after_2.get(state, 0) * w_2
        )
        self._change = change
        self._prediction = (
            change
            if self._boldness.is_change(stay, likeliest, own <= 1)
            else state
        )
