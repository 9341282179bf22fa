# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The rule by which a group of VMs enters and leaves the I/O phase.

I/O-perception paper, section III.B, "VM migration condition". How many periods
the group waits before it leaves is up to
:mod:`~nova_vhpc.control.phases.exit_rule`.
"""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.phases import exit_rule


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
        self.exit_rule = exit_rule.ExitRule(
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
