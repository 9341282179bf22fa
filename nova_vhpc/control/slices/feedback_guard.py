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

"""The guard: a shorter slice must prove itself, or is taken back.

Ours; not in the papers. Under Xen's credit scheduler a shorter slice
always meant a lower latency. On Linux it need not: below a few scheduler
ticks quotas throttle the vCPUs of one VM at different times, and the
latency grows again. So the guard compares the latency of a few periods
after a shortening with that before it. Worse beyond noise: the
slice goes back to where the latency was best, and is not shortened for a
while, each time twice as long. If going back does not help either, it was
something else that made the latency worse, and the blame is withdrawn.

Latencies of other VMs cannot be compared with. So where VMs come and go, the
slice goes back to the last one that has proved itself; else many changes would
let it creep down. That a shorter one was worse is
a matter of the host more than of who is there: the hold stays, unless none is
left of those that it was learned from.
"""

import collections
import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence

LONGEST_HOLD = 16
"""The hold time doubles up to this many times the first one."""

_SIGMAS = 1.75
_SURE_SIGMAS = 3.0
"""Standard errors of a difference of means that count as noise, when a slice
may be worse; and when it may be better, which nothing takes back."""

_POWER = 0.25
"""Means are of the latencies to this power: of a few periods one in which
the latency was ten times as long would outweigh all others, and hide whatever
a slice does. Unlike a logarithm it takes a latency of 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Level:
    """A slice and the roots of the latencies measured with it."""

    slice_us: int
    mean: float
    variance: float
    count: int

    def worse_than(
        self, other: '_Level', margin: float, sigmas: float = _SIGMAS
    ) -> bool:
        """Whether this latency is above another one, beyond noise.

        :param margin: least relative difference of the latencies.
        """
        noise = sigmas * math.sqrt(
            self.variance / self.count + other.variance / other.count
        )
        least: float = ((1.0 + margin) ** _POWER - 1.0) * other.mean
        return self.mean - other.mean > max(noise, least)


def _variance(values: Sequence[float]) -> float:
    """Noise, by how much neighbours differ: a trend is none."""
    return statistics.fmean(
        (one - other) ** 2 / 2 for one, other in itertools.pairwise(values)
    )


class FeedbackGuard:
    """Watches one slice that is common to a set of VMs."""

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
        """Start knowing nothing.

        :param window: periods per comparison.
        :param margin: least relative worsening that counts.
        :param hold: first hold time, in periods.
        """
        self._window = max(2, window)
        self._margin = max(0.0, margin)
        self._hold = self._next_hold = max(1, hold)
        self._members: frozenset[str] = frozenset()
        self._reset()

    def _reset(self) -> None:
        # Slices, and the roots of the latencies measured with them.
        self._samples: collections.deque[tuple[int, float]] = (
            collections.deque(maxlen=self._window)
        )
        self._best: _Level | None = None
        self._worse: _Level | None = None
        self._hold_left = 0
        self._skipped = 0

    @property
    def holding(self) -> bool:
        """Whether shorter slices are refused at present."""
        return self._hold_left > 0

    def step(
        self,
        applied_us: int,
        wanted_us: int,
        latency_us: float | None,
        members: frozenset[str],
    ) -> int:
        """One period is over.

        :param applied_us: slice in that period.
        :param wanted_us: slice wanted for the next one.
        :param latency_us: mean latency in that period; None if unknown.
        :param members: VMs that it was measured of.
        :returns: the slice to be used.
        """
        proven_us = applied_us
        if members != self._members:
            proven_us = self._change_members(members, applied_us)
        if self._hold_left > 0:
            self._hold_left -= 1
            if self._hold_left == 0:
                # Times may have changed: measure anew before trying again.
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
            # Nothing to compare with yet, or known to be worse.
            return applied_us
        return wanted_us

    def _change_members(self, members: frozenset[str], applied_us: int) -> int:
        """Other VMs are there; returns the slice that has proved itself."""
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
        """A window is full; returns a slice to go back to, if any."""
        roots = [root for _, root in self._samples]
        now = _Level(
            # The slice may change in each period. What was measured stands
            # for the middle one: were it the last, shortest one, what this
            # brings afterwards would seem a change of the times.
            self._samples[self._window // 2][0],
            statistics.fmean(roots),
            _variance(roots),
            self._window,
        )
        if self.holding:
            if self._worse is not None:
                if not self._worse.worse_than(now, self._margin / 2):
                    # Going back did not help: the slice was not to blame.
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
        # Else neither surely better nor surely worse: the best one stays the
        # measure, or many small losses would add up unseen. To be better must
        # be surer, as there is no way back up: what is better by chance would
        # lead to the minimum, in time. What is worse by chance costs a hold.
        self._samples.clear()
        return None
