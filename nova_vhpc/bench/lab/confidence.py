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


"""How far runs differ, and what of a verdict that leaves.

Pure.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class ConfidenceRange:
    """A median, and the range in which it is.

    :ivar low: the least run; from nine runs on, the lower end of the 95%
        confidence interval of the median, by order statistics.
    :ivar high: likewise.
    :ivar runs: how many there were; one alone decides nothing.
    """

    median: float
    low: float
    high: float
    runs: int

    def ratio_to(self, other: 'ConfidenceRange') -> 'ConfidenceRange':
        """The ratio to what was measured in other rounds.

        :raises ZeroDivisionError: where mostly nothing was done there.
        """
        return ConfidenceRange(
            self.median / other.median,
            self.low / other.high,
            self.high / other.low if other.low else math.inf,
            min(self.runs, other.runs),
        )

    def relative_change(self) -> 'ConfidenceRange':
        """The change that a ratio means; 0.25 is a quarter more."""
        return ConfidenceRange(
            self.median - 1, self.low - 1, self.high - 1, self.runs
        )

    def text(self, form: str) -> str:
        """For people; ``form`` is a format specification."""
        return (
            f'{self.median:{form}} ({self.low:{form}} to {self.high:{form}})'
        )

    def decide(self, rule: Callable[[float], str], undecided: str) -> str:
        """What the rule says, if it says the same from end to end."""
        verdict = rule(self.median)
        if self.runs > 1 and rule(self.low) == verdict == rule(self.high):
            return verdict
        return undecided


def range_of(values: Sequence[float]) -> ConfidenceRange:
    """Of what all runs gave.

    :raises statistics.StatisticsError: without any.
    """
    ordered = sorted(values)
    count = len(ordered)
    aside = _excluded(count)
    return ConfidenceRange(
        statistics.median(ordered),
        ordered[aside],
        ordered[-1 - aside],
        count,
    )


def _excluded(count: int) -> int:
    """Runs at either end that the 95% confidence interval leaves out.

    As many as leave the median outside in one case of twenty at most, each
    run being above it as often as below.
    """
    aside = 0
    cases = 1
    while 40 * (cases := cases + math.comb(count, aside + 1)) <= 2**count:
        aside += 1
    return aside


def range_of_ratios(
    values: Sequence[float], base: Sequence[float]
) -> ConfidenceRange:
    """Of the ratios within each round.

    A round in which the base did nothing says nothing; one that only one
    of both has does not either.

    :raises statistics.StatisticsError: if there is no round left.
    """
    return range_of(
        [
            value / below
            for value, below in zip(values, base, strict=False)
            if below > 0
        ]
    )
