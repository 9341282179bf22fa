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

"""When a virtual cluster may leave the I/O pool.

Two rules, chosen by ``leave_rule``:

``paper``
    I/O-perception paper, section III.B: after three low periods in a row
    and a low prediction. The paper itself reports (section V, figure 5)
    that CG then flaps: each of its iterations ends with a few low periods.

``learned`` (ours)
    The same, but it waits for as many low periods as pay off, counted from
    when it entered: a prediction that does not come true costs a stay, not
    a move for each that follows. Leaving too
    early costs a move out and one back; staying too long costs the low
    periods spent in the I/O pool. How long low stretches last is known
    from the latest ones of this very cluster, so the patience is chosen
    that would have cost least on them, and on some a quarter longer.
    Before the first stretch has ended it is the cost of a move itself,
    which never costs more than twice the optimum (the ski rental
    argument). So a program that pauses for four periods over and over
    stays, and one that computes for minutes leaves after three, without
    any tuning per program.
"""

import collections

MAX_STRETCHES = 16
"""Low stretches remembered; also bounds time and memory."""


class ExitRule:
    """How many low periods in a row before leaving."""

    __slots__ = (
        '_min_periods',
        '_move_cost_periods',
        '_periods',
        '_stretches',
    )

    def __init__(
        self, min_periods: int, move_cost_periods: int, learns: bool
    ) -> None:
        """Start without any low stretch seen.

        :param min_periods: least patience; the paper's three.
        :param move_cost_periods: cost of a needless move, in periods.
        :param learns: False for the paper's rule.
        """
        self._min_periods = max(1, min_periods)
        self._move_cost_periods = max(self._min_periods, move_cost_periods)
        self._stretches: collections.deque[int] | None = None
        self._periods = self._min_periods
        if learns:
            self._stretches = collections.deque(maxlen=MAX_STRETCHES)
            self._periods = self._move_cost_periods

    @property
    def periods(self) -> int:
        """Low periods in a row after which to leave."""
        return self._periods

    def learn(self, length: int) -> None:
        """A stretch of low periods is over; learn from its length.

        :param length: in periods, > 0, wherever it was spent.
        """
        if self._stretches is None or length <= 0:
            return
        # All that is longer than patience can ever be, is alike.
        self._stretches.append(min(length, 4 * self._move_cost_periods))
        self._periods = min(
            self._candidates(self._stretches), key=self._cost_of
        )

    def _candidates(self, stretches: collections.deque[int]) -> list[int]:
        """Patiences worth a look: just longer than a stretch may be."""
        candidates = {self._min_periods, self._move_cost_periods}
        for stretch in stretches:
            candidates.update(
                length + 1
                for length in _lengths(stretch)
                if self._min_periods <= length < self._move_cost_periods
            )
        return sorted(candidates)

    def _cost_of(self, patience: int) -> int:
        """Cost of a patience on the stretches seen, in periods."""
        assert self._stretches is not None
        return sum(
            length if length < patience else patience + self._move_cost_periods
            for stretch in self._stretches
            for length in _lengths(stretch)
        )


def _lengths(stretch: int) -> tuple[int, int]:
    """How long a stretch may be next time: the same, or a quarter more.

    Programs do not pause for the same number of periods each time.
    """
    return stretch, stretch + (stretch + 3) // 4
