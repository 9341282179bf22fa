# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The K-best measurement scheme: repeat until the best values agree.

By R. E. Bryant and D. R. O'Hallaron, as used in the NPC'09 paper, section 3:
measure until the K best values lie within a fraction epsilon of each other,
but at most M times. Here a value is a rate: larger is better.
"""

import dataclasses
import statistics
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class KBest:
    """When to stop measuring, and what to report.

    :ivar k: number of best values that must agree.
    :ivar epsilon: largest difference among them, as a fraction of the best.
    :ivar m: largest number of values.
    """

    k: int = 10
    epsilon: float = 0.02
    m: int = 100

    def converged(self, values: Sequence[float]) -> bool:
        """Return whether the K best values agree."""
        best = sorted(values, reverse=True)[: self.k]
        return len(best) == self.k and best[-1] >= best[0] * (1 - self.epsilon)

    def done(self, values: Sequence[float]) -> bool:
        """Return whether to stop measuring."""
        return len(values) >= self.m or self.converged(values)

    def best(self, values: Sequence[float]) -> float:
        """Return the mean of the K best values.

        :raises ValueError: there are no values.
        """
        if not values:
            raise ValueError('nothing was measured')
        return statistics.fmean(sorted(values, reverse=True)[: self.k])
