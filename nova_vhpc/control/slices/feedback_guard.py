# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The feedback guard: reverts a shorter time slice that made latency worse.

Ours; not in the papers. Under Xen's credit scheduler a shorter slice always
meant a lower synchronisation latency. On Linux it need not: below a few
scheduler ticks, quotas throttle the vCPUs of one VM at different times, and
the latency grows again.

So the guard compares the latency of a few periods after a slice was shortened
with the latency before. If it is worse by more than noise, the slice returns
to the one with the best latency, and is not shortened during a *hold*, which
is twice as long each time. If the latency does not improve after that,
something else had made it worse: the hold ends and its length is reset.

Latencies of different sets of VMs cannot be compared. If VMs come or go, the
slice returns to the best one so far; otherwise it would get shorter with each
of many changes. The hold stays, because whether a shorter slice is
worse depends on the host more than on the VMs; but it ends if none of the VMs
is left from which it was learned.
"""

import collections
import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence

LONGEST_HOLD = 16
"""Longest hold, as a multiple of the first one."""

_SIGMAS = 1.75
_SURE_SIGMAS = 3.0
"""Standard errors of a difference of means up to which it counts as noise,
when a slice may be worse; and when it may be better, which is never
reverted."""

_POWER = 0.25
"""Latencies are averaged after being raised to this power. Without it a single
period with ten times the latency would outweigh the few others and hide the
effect of a slice. Unlike a logarithm it is defined for a latency of 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Level:
    """A slice and statistics of the roots of the latencies measured with it.

    :ivar slice_us: time slice, in microseconds.
    :ivar mean: mean of the roots.
    :ivar variance: variance of the roots, without any trend.
    :ivar count: number of periods.
    """

    slice_us: int
    mean: float
    variance: float
    count: int

    def worse_than(
        self, other: '_Level', margin: float, sigmas: float = _SIGMAS
    ) -> bool:
        """Return whether this latency exceeds another one by more than noise.

        :param margin: least relative difference of the latencies.
        :param sigmas: standard errors that count as noise.
        """
        noise = sigmas * math.sqrt(
            self.variance / self.count + other.variance / other.count
        )
        least: float = ((1.0 + margin) ** _POWER - 1.0) * other.mean
        return self.mean - other.mean > max(noise, least)


def _variance(values: Sequence[float]) -> float:
    """Return the variance by differences of neighbours, so without trend."""
    return statistics.fmean(
        (one - other) ** 2 / 2 for one, other in itertools.pairwise(values)
    )


class FeedbackGuard:
    """Guards one time slice that a set of VMs shares.

    :param window: number of periods per comparison, at least 2.
    :param margin: least relative increase of the latency that counts.
    :param hold: length of the first hold, in periods.
    """

    __slots__ = (
        '_best',
        '_hold',
        '_hold_left',
        '_margin',
        '_members',
        '_next_hold',
        '_samples',
        '_skipped',
        '_window',
        '_worse',
    )

    def __init__(self, window: int, margin: float, hold: int) -> None:
        self._window = max(2, window)
        self._margin = max(0.0, margin)
        self._hold = self._next_hold = max(1, hold)
        self._members: frozenset[str] = frozenset()
        self._reset()

    def _reset(self) -> None:
        # Pairs of a slice and the root of the latency measured with it.
        self._samples: collections.deque[tuple[int, float]] = (
            collections.deque(maxlen=self._window)
        )
        self._best: _Level | None = None
        self._worse: _Level | None = None
        self._hold_left = 0
        self._skipped = 0

    @property
    def holding(self) -> bool:
        """Whether a hold is on, so that the slice must not get shorter."""
        return self._hold_left > 0

    def step(
        self,
        applied_us: int,
        wanted_us: int,
        latency_us: float | None,
        members: frozenset[str],
    ) -> int:
        """Take one period and return the slice of the next, in microseconds.

        :param applied_us: slice of the period, in microseconds.
        :param wanted_us: slice wanted for the next period, in microseconds.
        :param latency_us: mean latency of the period, in microseconds; None
            if unknown.
        :param members: VMs that share the slice.
        """
        proven_us = applied_us
        if members != self._members:
            proven_us = self._change_members(members, applied_us)
        if self._hold_left > 0:
            self._hold_left -= 1
            if self._hold_left == 0:
                # Conditions may have changed: measure again before shortening.
                self._best = None
                self._samples.clear()
        if proven_us > applied_us:
            self._skipped = 1
            return max(proven_us, wanted_us)
        if latency_us is not None:
            if self._skipped > 0:
                self._skipped -= 1
            else:
                self._samples.append((applied_us, latency_us**_POWER))
        if len(self._samples) == self._window:
            better_us = self._compare()
            if better_us is not None:
                return max(better_us, wanted_us)
        if wanted_us < applied_us and (self.holding or self._best is None):
            # No latency to compare with yet, or known to be worse.
            return applied_us
        return wanted_us

    def _change_members(self, members: frozenset[str], applied_us: int) -> int:
        """Take another set of VMs; return the best slice so far."""
        best = self._best
        hold_left = self._hold_left
        self._reset()
        if not members or members & self._members:
            self._hold_left = hold_left
        else:
            self._next_hold = self._hold
        if members:
            self._members = members
        return applied_us if best is None else best.slice_us

    def _compare(self) -> int | None:
        """Compare a full window with the best; return a slice to revert to."""
        roots = [root for _, root in self._samples]
        now = _Level(
            # The slice may change in each period; the measurement is taken
            # for that of the middle one. If it were taken for that of the
            # last, shortest one, the effect of this slice in later periods
            # would be put down to something else.
            self._samples[self._window // 2][0],
            statistics.fmean(roots),
            _variance(roots),
            self._window,
        )
        if self.holding:
            if self._worse is not None:
                if not self._worse.worse_than(now, self._margin / 2):
                    # Reverting did not help: the slice was not the cause.
                    self._next_hold = self._hold
                    self._hold_left = 0
                    self._best = now
                self._worse = None
            self._samples.clear()
            return None
        best = self._best
        if best is None or now.slice_us >= best.slice_us:
            self._best = now
        elif now.worse_than(best, self._margin):
            self._worse = now
            self._hold_left = self._next_hold
            self._next_hold = min(
                2 * self._next_hold, LONGEST_HOLD * self._hold
            )
            self._samples.clear()
            self._skipped = 1
            return best.slice_us
        elif best.worse_than(now, 0.0, _SURE_SIGMAS):
            if best.worse_than(now, self._margin):
                self._next_hold = self._hold
            self._best = now
        # Otherwise the difference is within noise, and the best level stays
        # the one to compare with, or many small losses would add up
        # unnoticed. Being better needs more certainty than being worse: a
        # slice that is better by chance is never reverted, and in time would
        # lead to the minimum; one that is worse by chance costs one hold.
        self._samples.clear()
        return None
