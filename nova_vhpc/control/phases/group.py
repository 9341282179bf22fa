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

"""Enter and leave rule of the VMs that move together.

I/O-perception paper, section III.B; what leaving waits for is in
:mod:`~nova_vhpc.control.phases.exit_rule`.
"""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.phases import exit_rule


class GroupPhase:
    """Phase of a group, and the rule by which it enters and leaves.

    :ivar phase: where the group is now.
    :ivar low: periods since a member was above its threshold.
    :ivar patience: how many of these let it leave.
    :ivar stay: periods since it entered the I/O phase.
    """

    __slots__ = ('_learn', '_whole', 'low', 'patience', 'phase', 'stay')

    def __init__(self, config: control_config.ControlConfig) -> None:
        self.phase = model.Phase.COMPUTING
        self.low = 0
        self.stay = 0
        self._learn = config.leave_rule == 'learned'
        # The first low stretch began before we looked: its length is not
        # known and nothing can be learned from it.
        self._whole = False
        self.patience = exit_rule.Patience(
            config.leave_periods,
            config.move_cost_periods,
            learn=self._learn,
        )

    def step(self, high: bool, predicted_high: bool) -> None:
        """One sampling period has passed.

        :param high: some member's real intensity was above its threshold.
        :param predicted_high: some member's prediction is above it.
        """
        if high:
            if self._whole:
                self.patience.stretch_ended(self.low)
            self._whole = True
            self.low = 0
        else:
            self.low += 1
        if self.phase is model.Phase.COMPUTING:
            self.stay = 0
            if predicted_high:
                self.phase = model.Phase.IO
            return
        self.stay += 1
        # The paper counts low periods wherever they were spent, so who comes
        # in on a prediction that does not come true leaves at once.
        low = min(self.low, self.stay) if self._learn else self.low
        if not predicted_high and low >= self.patience.periods:
            self.phase = model.Phase.COMPUTING
