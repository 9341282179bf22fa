# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The rule by which a group of VMs enters and leaves the I/O phase.

I/O-perception paper, section III.B, "VM migration condition".

A *low period* is a sampling period in which the I/O of all members was at or
below their thresholds. The option ``leave_rule`` chooses between two rules:

``paper``
    I/O-perception paper, section III.B, "VM migration condition": leave after
    three low periods in a row and a low prediction. The paper itself reports
    (section V, figure 5) that CG then moves back and forth, because each of
    its iterations ends with a few low periods.

``learned`` (ours)
    The same, but the number of low periods is the one that would have cost
    least on the latest low stretches of this cluster, and on stretches a
    quarter longer. Leaving too early costs a move out and a move back;
    waiting too long costs the low periods spent in the I/O pool. Before the
    first stretch has ended, the number is the cost of a move in periods,
    which never costs more than twice the optimum (the ski rental problem).
    So a program that pauses for four periods again and again stays, and one
    that computes for minutes leaves after three, without tuning per program.

    Low periods are counted from entering the I/O pool, so that a prediction
    that does not come true costs one stay, and not a move for each further
    one.
"""

import collections

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model

MAX_STRETCHES = 16
"""Low stretches remembered; bounds the time and memory of learning."""


class ExitRule:
    """Number of low periods in a row after which a group leaves the I/O pool.

    :param min_periods: least number of periods; 3 in the paper.
    :param move_cost_periods: cost of a needless move, in periods.
    :param learns: whether to learn from low stretches; False is the paper's
        rule.
    """

    __slots__ = (
        '_min_periods',
        '_move_cost_periods',
        '_periods',
        '_stretches',
    )

    def __init__(
        self, min_periods: int, move_cost_periods: int, learns: bool
    ) -> None:
        self._min_periods = max(1, min_periods)
        self._move_cost_periods = max(self._min_periods, move_cost_periods)
        self._stretches: collections.deque[int] | None = None
        self._periods = self._min_periods
        if learns:
            self._stretches = collections.deque(maxlen=MAX_STRETCHES)
            self._periods = self._move_cost_periods

    @property
    def periods(self) -> int:
        """Number of low periods in a row after which to leave."""
        return self._periods

    def learn(self, length: int) -> None:
        """Learn from a stretch of low periods that has ended.

        :param length: length of the stretch in periods, spent in either
            pool; 0 and less is ignored.
        """
        if self._stretches is None or length <= 0:
            return
        # Longer stretches all cost the same, whatever the rule.
        self._stretches.append(min(length, 4 * self._move_cost_periods))
        self._periods = min(
            self._candidates(self._stretches), key=self._cost_of
        )

    def _candidates(self, stretches: collections.deque[int]) -> list[int]:
        """Return the numbers of periods that can be optimal.

        They are the bounds, and one more than the length of each stretch.
        """
        candidates = {self._min_periods, self._move_cost_periods}
        for stretch in stretches:
            candidates.update(
                length + 1
                for length in _lengths(stretch)
                if self._min_periods <= length < self._move_cost_periods
            )
        return sorted(candidates)

    def _cost_of(self, periods: int) -> int:
        """Return the cost of a number of periods on all stretches."""
        assert self._stretches is not None
        return sum(
            length if length < periods else periods + self._move_cost_periods
            for stretch in self._stretches
            for length in _lengths(stretch)
        )


def _lengths(stretch: int) -> tuple[int, int]:
    """Return how long a stretch may be next time: the same, or 25% more.

    A program does not pause for the same number of periods each time.
    """
    return stretch, stretch + (stretch + 3) // 4


class GroupPhase:
    """The phase of a group of VMs that move together.

    :ivar phase: present phase.
    :ivar low_periods: number of periods since any member was above its
        threshold.
    :ivar exit_rule: number of such periods after which the group leaves.
    :ivar io_periods: number of periods since the group entered the I/O
        phase.
    """

    __slots__ = (
        '_learns',
        '_was_high',
        'exit_rule',
        'io_periods',
        'low_periods',
        'phase',
    )

    def __init__(self, config: control_config.ControlConfig) -> None:
        self.phase = model.Phase.COMPUTING
        self.low_periods = 0
        self.io_periods = 0
        self._learns = config.leave_rule == 'learned'
        # The first low stretch may have begun before the first sample: its
        # length is not known, so nothing is learned from it.
        self._was_high = False
        self.exit_rule = ExitRule(
            config.leave_periods,
            config.move_cost_periods,
            learns=self._learns,
        )

    def step(self, high: bool, predicted_high: bool) -> None:
        """Renew the phase after a sampling period.

        :param high: whether the I/O of any member was above its threshold.
        :param predicted_high: whether the prediction for any member is above
            its threshold.
        """
        if high:
            if self._was_high:
                self.exit_rule.learn(self.low_periods)
            self._was_high = True
            self.low_periods = 0
        else:
            self.low_periods += 1
        if self.phase is model.Phase.COMPUTING:
            self.io_periods = 0
            if predicted_high:
                self.phase = model.Phase.IO
            return
        self.io_periods += 1
        # The paper counts low periods in either pool, so a group that enters
        # on a prediction that does not come true leaves at once.
        low_periods = (
            min(self.low_periods, self.io_periods)
            if self._learns
            else self.low_periods
        )
        if not predicted_high and low_periods >= self.exit_rule.periods:
            self.phase = model.Phase.COMPUTING
