# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How long to wait before leaving the I/O pool."""

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control.phases import exit_rule
from nova_vhpc.tests import base


class PaperExitRuleTest(base.TestCase):
    def test_paper_rule_waits_three_periods_whatever_the_stretches(self):
        subject = exit_rule.ExitRule(3, 20, learns=False)
        for length in (5, 5, 5, 100):
            subject.learn(length)
            self.assertEqual(3, subject.periods)

    def test_paper_rule_can_wait_one_period(self):
        self.assertEqual(1, exit_rule.ExitRule(1, 20, learns=False).periods)


class LearnedExitRuleTest(base.TestCase):
    def subject(self, *stretches):
        subject = exit_rule.ExitRule(3, 20, learns=True)
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
        for _ in range(exit_rule.MAX_STRETCHES):
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
