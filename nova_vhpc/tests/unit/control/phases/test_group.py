# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The rule by which a group enters and leaves, step by step."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.phases import group as group_phase
from nova_vhpc.tests import base

IO = model.Phase.IO
COMPUTING = model.Phase.COMPUTING


def phases(*steps, **config):
    """Phase after each step of (high, predicted high)."""
    group = group_phase.GroupPhase(control_config.ControlConfig(**config))
    seen = []
    for high, predicted_high in steps:
        group.step(high, predicted_high)
        seen.append(group.phase)
    return seen


class PaperTest(base.TestCase):
    def phases(self, *steps):
        return phases(*steps, leave_rule='paper')

    def test_starts_in_computing_phase(self):
        group = group_phase.GroupPhase(control_config.ControlConfig())
        self.assertEqual(COMPUTING, group.phase)

    def test_enters_at_once_on_a_high_prediction(self):
        self.assertEqual([IO], self.phases((False, True)))

    def test_does_not_enter_on_a_high_sample(self):
        self.assertEqual([COMPUTING], self.phases((True, False)))

    def test_leaves_after_three_low_periods(self):
        self.assertEqual(
            [IO, IO, IO, COMPUTING],
            self.phases((True, True), *[(False, False)] * 3),
        )

    def test_a_high_period_restarts_the_count(self):
        low, high = (False, False), (True, False)
        self.assertEqual(
            [IO] * 6 + [COMPUTING],
            self.phases((True, True), low, low, high, low, low, low),
        )

    def test_low_periods_before_entering_count(self):
        # Who comes in on a prediction that is not true leaves at once.
        low = (False, False)
        self.assertEqual(
            [IO, COMPUTING], self.phases(low, low, (False, True), low)[2:]
        )


class LearnedTest(base.TestCase):
    def test_nothing_is_learned_from_the_first_low_stretch(self):
        group = group_phase.GroupPhase(control_config.ControlConfig())
        patience = group.exit_rule.periods
        for _ in range(4):
            group.step(False, False)
        group.step(True, True)
        self.assertEqual(patience, group.exit_rule.periods)

    def test_false_predictions_cost_one_stay_not_moves(self):
        # Nothing but low periods, with a high prediction every other time.
        before = [(False, False)] * 30
        seen = phases(*before, *[(False, True), (False, False)] * 8)
        self.assertEqual([IO] * 16, seen[30:])

    def test_leaves_after_the_learned_periods_from_entering(self):
        group = group_phase.GroupPhase(control_config.ControlConfig())
        # Each is counted from its own beginning.
        for _ in range(3):
            for _ in range(30):
                group.step(False, False)
            group.step(False, True)
            for _ in range(group.exit_rule.periods - 1):
                group.step(False, False)
            self.assertEqual(IO, group.phase)
            group.step(False, False)
            self.assertEqual(COMPUTING, group.phase)

    def test_a_low_stretch_between_high_periods_is_learned(self):
        group = group_phase.GroupPhase(control_config.ControlConfig())
        patience = group.exit_rule.periods
        group.step(True, True)
        for _ in range(4):
            group.step(False, False)
        group.step(True, True)
        self.assertLess(group.exit_rule.periods, patience)
