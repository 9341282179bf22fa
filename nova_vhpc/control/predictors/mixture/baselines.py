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

"""What simple predictors would have said, to be compared with."""

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import context_counts, ewma

Outcomes = tuple[bool, bool, bool]
"""Whether last value, EWMA and Markov 1 were right: of the paper's predictors
those that are mostly best, and that cost next to nothing beside the rest."""


class Baselines:
    """What last value, EWMA and Markov 1 would have predicted for a VM."""

    __slots__ = ('_average',)

    def __init__(self) -> None:
        self._average = 0.0

    def begin(self, events: float) -> None:
        """Take the first period."""
        self._average = events

    def observe(
        self,
        current: int,
        state: int,
        events: float,
        after: context_counts.Counts,
    ) -> Outcomes:
        """Take a period, and see who would have predicted it.

        :param current: the state before.
        :param state: the state that came.
        :param after: what had followed ``current`` until then.
        """
        average = self._average
        self._average = average + ewma.ALPHA * (events - average)
        likeliest = after.likeliest
        if likeliest is None:
            likeliest = current
        by_likeliest = state == likeliest
        if not by_likeliest:
            # The most frequent one need not be looked for: it can only be
            # the one that has just come. Of equals the current state wins.
            by_state = after.by_state
            more = by_state.get(state, 0) + (state == current)
            if more >= by_state.get(likeliest, 0):
                after.likeliest = state
        return (
            state == current,
            quantise.to_state(average) == state,
            by_likeliest,
        )
