# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Between hits and transitions."""

import random

from nova_vhpc.control.predictors import base as predictors_base
from nova_vhpc.control.predictors import (
    context_counts,
    ewma,
    last_value,
    markov,
)
from nova_vhpc.control.predictors.mixture import change_bias
from nova_vhpc.tests import base

STAYED = {'stayed': True, 'change_right': False}
CAME = {'stayed': False, 'change_right': True}
OTHER = {'stayed': False, 'change_right': False}

ABOVE_EVEN = 1.4
"""Staying is so many times as likely: only the bold change."""

ABOVE_BIAS = 1.7
"""Only the bolder change."""

CLEAR = 0.1
UNLIKELY = 9.0

LAST_VALUE, EWMA, MARKOV = range(3)


class ChangeBiasTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.change_bias = change_bias.ChangeBias()

    def is_change(self, ratio, is_outlier=False):
        return self.change_bias.is_change(ratio, is_outlier)

    def periods(
        self,
        number,
        came,
        ratio=UNLIKELY,
        is_outlier=False,
        members=1,
        right=(),
    ):
        """:param right: baselines that see changes come, too."""
        stayed = came['stayed']
        for _ in range(number):
            for _ in range(members):
                changing = self.is_change(ratio, is_outlier)
                self.change_bias.learn(
                    ratio=ratio,
                    is_outlier=is_outlier,
                    right=came['change_right'] if changing else stayed,
                    baselines_right=tuple(
                        baseline in right
                        or (stayed and baseline == LAST_VALUE)
                        for baseline in (LAST_VALUE, EWMA, MARKOV)
                    ),
                    share=1 / members,
                    **came,
                )
            self.change_bias.end_period(1.0)

    def grow_up(self):
        """Enough transitions, none of which anything could have seen."""
        self.periods(22, OTHER)

    def test_threshold_is_even_at_first(self):
        self.assertTrue(self.is_change(0.9))
        self.assertFalse(self.is_change(1.1))

    def test_clear_change_needs_no_bias(self):
        self.assertTrue(self.is_change(CLEAR))
        self.assertFalse(self.is_change(UNLIKELY, is_outlier=True))

    def test_young_less_where_staying_is_right(self):
        self.periods(2, STAYED, ratio=0.9)
        self.assertFalse(self.is_change(0.9))
        self.periods(5, STAYED, ratio=0.4)
        self.assertFalse(self.is_change(0.4))

    def test_young_more_where_changes_come_but_with_caution(self):
        self.periods(5, CAME, ratio=1.2)
        self.assertTrue(self.is_change(1.2))
        self.periods(5, CAME, ratio=ABOVE_BIAS)
        self.assertTrue(self.is_change(1.2))
        self.assertFalse(self.is_change(ABOVE_EVEN))

    def test_bias_begins_after_22_transitions(self):
        self.periods(21, OTHER)
        self.assertFalse(self.is_change(ABOVE_EVEN))
        self.periods(1, OTHER)
        self.assertTrue(self.is_change(ABOVE_EVEN))
        self.assertFalse(self.is_change(ABOVE_BIAS))

    def test_members_count_together(self):
        # Four members' periods are one, not four.
        self.periods(21, OTHER, members=4)
        self.assertFalse(self.is_change(ABOVE_EVEN))
        self.periods(1, OTHER, members=4)
        self.assertTrue(self.is_change(ABOVE_EVEN))

    def test_equals_are_equal_for_any_number_of_members(self):
        # Three thirds of a hit are one, whatever they are added to.
        for members in range(1, 12):
            self.change_bias = change_bias.ChangeBias()
            self.periods(1, STAYED, ratio=0.9, members=members)
            self.assertFalse(self.is_change(0.9), members)
            self.assertTrue(self.is_change(0.8), members)

    def test_less_where_changes_cost_more_than_they_win(self):
        self.grow_up()
        self.periods(4, STAYED, ratio=CLEAR)
        self.assertFalse(self.is_change(ABOVE_EVEN))
        self.assertTrue(self.is_change(1.1))
        # But never less than what is as likely as not.
        self.periods(40, STAYED, ratio=CLEAR)
        self.assertFalse(self.is_change(1.1))
        self.assertTrue(self.is_change(0.9))

    def test_once_they_win_again_they_may_be_predicted(self):
        self.grow_up()
        self.periods(4, STAYED, ratio=CLEAR)
        self.periods(4, CAME, ratio=CLEAR)
        self.assertTrue(self.is_change(ABOVE_EVEN))

    def test_a_lead_over_the_baselines_increases_the_bias(self):
        self.grow_up()
        self.periods(2, CAME, ratio=CLEAR)
        self.assertFalse(self.is_change(ABOVE_BIAS))
        self.periods(2, CAME, ratio=CLEAR)
        self.assertTrue(self.is_change(ABOVE_BIAS))

    def test_bias_is_limited(self):
        self.grow_up()
        self.periods(200, CAME, ratio=CLEAR)
        self.assertTrue(self.is_change(2.4))
        self.assertFalse(self.is_change(2.6))

    def test_an_old_lead_is_forgotten(self):
        self.grow_up()
        self.periods(20_000, CAME, ratio=CLEAR)
        # A program for which changes never come true.
        self.periods(2_500, STAYED, ratio=CLEAR)
        self.assertFalse(self.is_change(1.1))

    def test_old_outliers_are_forgotten(self):
        self.periods(500, STAYED, ratio=2.9, is_outlier=True)
        self.periods(20_000, STAYED)
        self.periods(4, CAME, ratio=2.9, is_outlier=True)
        self.assertTrue(self.is_change(2.9, is_outlier=True))

    def test_the_lead_is_over_the_best_baseline(self):
        for baseline in (LAST_VALUE, EWMA, MARKOV):
            self.change_bias = change_bias.ChangeBias()
            self.grow_up()
            self.periods(40, CAME, ratio=CLEAR, right=(baseline,))
            self.assertFalse(self.is_change(ABOVE_BIAS), baseline)
            self.periods(6, CAME, right=(baseline,))
            self.assertFalse(self.is_change(ABOVE_EVEN), baseline)

    def test_an_outlier_is_left_up_to_a_greater_ratio(self):
        self.assertTrue(self.is_change(2.9, is_outlier=True))
        self.assertFalse(self.is_change(2.9))

    def test_an_outlier_is_not_left_after_that_cost_a_hit(self):
        self.periods(1, STAYED, ratio=2.9, is_outlier=True)
        self.assertFalse(self.is_change(2.9, is_outlier=True))
        self.assertTrue(self.is_change(0.9, is_outlier=True))
        # What would have come counts, too.
        self.periods(1, CAME, ratio=2.9, is_outlier=True)
        self.assertTrue(self.is_change(2.9, is_outlier=True))

    def test_outliers_do_not_change_the_threshold(self):
        # All would have changed here, so none is better for it.
        self.periods(5, CAME, ratio=1.2, is_outlier=True)
        self.assertFalse(self.is_change(1.1))

    def test_other_periods_do_not_count_for_outliers(self):
        self.periods(1, STAYED, ratio=2.9)
        self.periods(1, STAYED, ratio=0.9, is_outlier=True)
        self.assertTrue(self.is_change(2.9, is_outlier=True))

    def test_another_change_than_the_likeliest_is_no_hit(self):
        self.grow_up()
        self.periods(8, OTHER, ratio=CLEAR)
        self.assertFalse(self.is_change(ABOVE_BIAS))


class BaselinesTest(base.TestCase):
    def test_baselines_agree_with_the_predictors(self):
        source = random.Random(4)
        levels = [source.choice((10.0, 70.0, 130.0)) for _ in range(400)]
        # Steady on the edge of a state, at random, then in a cycle.
        events = (
            [100.0] * 9
            + [70.0, 0.0, 200.0]
            + levels
            + [10.0, 130.0, 160.0] * 20
        )
        simple = (
            last_value.LastValuePredictor(),
            ewma.EwmaPredictor(),
            markov.MarkovPredictor(),
        )
        table = context_counts.CountTable()
        followed = change_bias.Baselines()
        current = None
        clear = 0
        for number in events:
            state = predictors_base.to_state(number)
            expected = tuple(one.predict() == state for one in simple)
            if current is None:
                followed.begin(number)
            else:
                after = table.use(current)
                most = sorted(after.by_state.values())[-2:]
                said = followed.observe(current, state, number, after)
                table.add(after, state)
                # Of two that followed as often, the other may be taken.
                if len(set(most)) == len(most):
                    clear += 1
                    self.assertEqual(expected, said)
                self.assertEqual(expected[:2], said[:2])
            for one in simple:
                one.observe(state, number)
            current = state
        self.assertGreater(clear, 400)

    def test_of_equals_the_current_state_wins(self):
        table = context_counts.CountTable()
        after = table.use(2)
        followed = change_bias.Baselines()
        for state, right in ((3, False), (2, False), (2, True), (3, False)):
            said = followed.observe(2, state, 0.0, after)
            table.add(after, state)
            self.assertEqual(right, said[2])
        self.assertEqual(2, after.likeliest)
