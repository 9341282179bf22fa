# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of confidence ranges of runs."""

import math
import statistics

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import confidence


class ConfidenceRangeTest(base.TestCase):
    def test_range_of_few_runs_has_all_of_them(self):
        self.assertEqual(
            confidence.ConfidenceRange(3.0, 1.0, 5.0, 3),
            confidence.range_of([5.0, 1.0, 3.0]),
        )

    def test_range_of_many_runs_leaves_out_the_extremes(self):
        # The interval of the sign test: of 10 the second to the ninth, of
        # 100 the 40th to the 61st.
        ten = confidence.range_of([float(n) for n in range(1, 11)])
        self.assertEqual((2.0, 9.0), (ten.low, ten.high))
        hundred = confidence.range_of([float(n) for n in range(1, 101)])
        self.assertEqual((40.0, 61.0), (hundred.low, hundred.high))

    def test_range_holds_the_median_with_95_percent_confidence(self):
        for count in range(6, 60):
            runs = confidence.range_of([float(n) for n in range(count)])
            # The median is outside of the range if at most this many runs
            # are on one side of it.
            outside = [
                2 * sum(math.comb(count, n) for n in range(fewest)) / 2**count
                for fewest in (int(runs.low) + 1, int(runs.low) + 2)
            ]
            self.assertLessEqual(outside[0], 0.05)
            self.assertGreater(outside[1], 0.05)

    def test_ratios_are_taken_within_a_round(self):
        # In the second round the machine was three times as fast.
        self.assertEqual(
            confidence.ConfidenceRange(2.0, 2.0, 2.0, 2),
            confidence.range_of_ratios([2, 6], [1, 3]),
        )

    def test_round_whose_base_is_0_is_left_out(self):
        self.assertEqual(
            confidence.ConfidenceRange(2.0, 2.0, 2.0, 1),
            confidence.range_of_ratios([2, 6], [1, 0, 4]),
        )
        self.assertRaises(
            statistics.StatisticsError,
            confidence.range_of_ratios,
            [2.0],
            [0.0],
        )

    def test_ratio_of_ranges_of_different_rounds_is_the_widest(self):
        self.assertEqual(
            confidence.ConfidenceRange(2.0, 2 / 3, 8.0, 2),
            confidence.range_of([2.0, 4.0, 8.0]).ratio_to(
                confidence.range_of([1.0, 3.0])
            ),
        )
        idle = confidence.range_of([2.0]).ratio_to(
            confidence.range_of([0.0, 1.0, 2.0])
        )
        self.assertEqual(float('inf'), idle.high)

    def test_decision_is_unknown_unless_both_ends_agree(self):
        def rule(value):
            return 'much' if value > 1 else 'little'

        ratio = confidence.ConfidenceRange(2.0, 1.5, 3.0, 2)
        self.assertEqual('much', ratio.decide(rule, 'unknown'))
        self.assertEqual(
            'unknown', ratio.relative_change().decide(rule, 'unknown')
        )

        one_run = confidence.range_of([2.0])
        self.assertEqual('unknown', one_run.decide(rule, 'unknown'))

    def test_text_has_value_and_range(self):
        self.assertEqual(
            '+100% (-50% to +200%)',
            confidence.ConfidenceRange(1.0, -0.5, 2.0, 3).text('+.0%'),
        )
