# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The rule by which a group enters and leaves, step by step."""

from hypothesis import given
from hypothesis import strategies as st

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


class PaperExitRuleTest(base.TestCase):
    def test_paper_rule_waits_three_periods_whatever_the_stretches(self):
        subject = group_phase.ExitRule(3, 20, learns=False)
        for length in (5, 5, 5, 100):
            subject.learn(length)
            self.assertEqual(3, subject.periods)

    def test_paper_rule_can_wait_one_period(self):
        self.assertEqual(1, group_phase.ExitRule(1, 20, learns=False).periods)


class LearnedExitRuleTest(base.TestCase):
    def subject(self, *stretches):
        subject = group_phase.ExitRule(3, 20, learns=True)
        for length in stretches:
            subject.learn(length)
        return subject

    def test_without_stretches_it_waits_as_long_as_a_move_costs(self):
        self.assertEqual(20, self.subject().periods)

    def test_waits_longer_than_short_stretches(self):
        self.assertGreater(self.subject(4, 5, 4, 5).periods, 5)

    def test_waits_the_minimum_if_stretches_are_long(self):
        self.assertEqual(3, self.subject(100, 120, 90).periods)

    def test_waits_for_short_stretches_among_long_ones(self):
        # It pays to sit the short ones out, and not to wait any longer.
        self.assertEqual(8, self.subject(5, 5, 80, 5, 5, 80).periods)

    def test_new_stretches_replace_old_ones(self):
        subject = self.subject(*[5] * 50)
        self.assertEqual(8, subject.periods)
        for _ in range(group_phase.MAX_STRETCHES):
            subject.learn(100)
        self.assertEqual(3, subject.periods)

    @given(st.lists(st.integers(1, 500), min_size=1, max_size=100))
    def test_waits_between_three_periods_and_the_cost_of_a_move(self, gaps):
        subject = self.subject(*gaps)
        self.assertTrue(3 <= subject.periods <= 20)

    @given(st.lists(st.integers(1, 60), min_size=1, max_size=16))
    def test_no_other_number_of_periods_would_have_cost_less(self, gaps):
        subject = self.subject(*gaps)

        def cost(patience):
            return sum(
                length if length < patience else patience + 20
                for gap in gaps
                for length in (gap, gap + (gap + 3) // 4)
            )

        self.assertEqual(
            min(cost(patience) for patience in range(3, 21)),
            cost(subject.periods),
        )
