# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Confidence ranges of medians, and decisions by them. Pure.

``statistics`` alone would hide how far runs differ. A decision is made only if
it is the same in the whole range.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class ConfidenceRange:
    """A median and its confidence range.

    :ivar low: the smallest value; from nine runs on, the lower end of the 95%
        confidence interval of the median, by order statistics.
    :ivar high: the largest value, or the upper end of that interval.
    :ivar runs: number of runs; a single one decides nothing.
    """

    median: float
    low: float
    high: float
    runs: int

    def ratio_to(self, other: 'ConfidenceRange') -> 'ConfidenceRange':
        """Return the ratio to a range that was measured in other rounds.

        :raises ZeroDivisionError: the median of ``other`` is 0.
        """
        return ConfidenceRange(
            self.median / other.median,
            self.low / other.high,
            self.high / other.low if other.low else math.inf,
            min(self.runs, other.runs),
        )

    def relative_change(self) -> 'ConfidenceRange':
        """Return the change that a ratio means; 0.25 is a quarter more."""
        return ConfidenceRange(
            self.median - 1, self.low - 1, self.high - 1, self.runs
        )

    def text(self, form: str) -> str:
        """Return median and range as text.

        :param form: format specification of each number.
        """
        return (
            f'{self.median:{form}} ({self.low:{form}} to {self.high:{form}})'
        )

    def decide(self, rule: Callable[[float], str], undecided: str) -> str:
        """Return the rule's result if it is the same in the whole range.

        :param rule: maps a value to a result.
        :param undecided: what to return if the results differ, or if there
            was only one run.
        """
        result = rule(self.median)
        if self.runs > 1 and rule(self.low) == result == rule(self.high):
            return result
        return undecided


def range_of(values: Sequence[float]) -> ConfidenceRange:
    """Return the confidence range of the values of all runs.

    :raises statistics.StatisticsError: there are no values.
    """
    ordered = sorted(values)
    count = len(ordered)
    excluded = _excluded(count)
    return ConfidenceRange(
        statistics.median(ordered),
        ordered[excluded],
        ordered[-1 - excluded],
        count,
    )


def _excluded(count: int) -> int:
    """Return how many runs at either end lie outside of the interval.

    Each run is above the true median as often as below. So many runs are
    excluded that the median lies outside of the rest in at most one case of
    twenty (95% confidence).
    """
    excluded = 0
    cases = 1
    while 40 * (cases := cases + math.comb(count, excluded + 1)) <= 2**count:
        excluded += 1
    return excluded


def range_of_ratios(
    values: Sequence[float], base: Sequence[float]
) -> ConfidenceRange:
    """Return the confidence range of the ratios within each round.

    Rounds in which the base did nothing, and rounds that only one of both
    has, are ignored.

    :param values: one value per round.
    :param base: values of the same rounds that are the divisors.
    :raises statistics.StatisticsError: no round is left.
    """
    return range_of(
        [
            value / divisor
            for value, divisor in zip(values, base, strict=False)
            if divisor > 0
        ]
    )
