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

"""How far runs differ."""

import math
import statistics

from nova_vhpc.bench.lab import confidence
from nova_vhpc.tests import base


class TestSpread(base.TestCase):
    """Ranges, ratios and what may be said of them."""

    def test_few_runs_are_all_in_the_range(self):
        self.assertEqual(
            confidence.ConfidenceRange(3.0, 1.0, 5.0, 3),
            confidence.range_of([5.0, 1.0, 3.0]),
        )

    def test_of_many_the_extremes_do_not_count(self):
        # The interval of the sign test: of 10 the second to the ninth, of
        # 100 the 40th to the 61st.
        ten = confidence.range_of([float(n) for n in range(1, 11)])
        self.assertEqual((2.0, 9.0), (ten.low, ten.high))
        hundred = confidence.range_of([float(n) for n in range(1, 101)])
        self.assertEqual((40.0, 61.0), (hundred.low, hundred.high))

    def test_the_interval_has_the_median_in_95_of_100_cases(self):
        for count in range(6, 60):
            found = confidence.range_of([float(n) for n in range(count)])
            # The median is outside if it is on one side of so many runs.
            outside = [
                2 * sum(math.comb(count, n) for n in range(aside)) / 2**count
                for aside in (int(found.low) + 1, int(found.low) + 2)
            ]
            self.assertLessEqual(outside[0], 0.05)
            self.assertGreater(outside[1], 0.05)

    def test_ratios_are_of_the_same_round(self):
        # The machine was three times as fast in the second one.
        self.assertEqual(
            confidence.ConfidenceRange(2.0, 2.0, 2.0, 2),
            confidence.range_of_ratios([2, 6], [1, 3]),
        )

    def test_a_round_without_a_base_says_nothing(self):
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

    def test_of_other_rounds_the_widest_ratio(self):
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

    def test_a_verdict_needs_both_ends(self):
        def rule(value):
            return 'much' if value > 1 else 'little'

        found = confidence.ConfidenceRange(2.0, 1.5, 3.0, 2)
        self.assertEqual('much', found.decide(rule, 'unknown'))
        self.assertEqual(
            'unknown', found.relative_change().decide(rule, 'unknown')
        )

        alone = confidence.range_of([2.0])
        self.assertEqual('unknown', alone.decide(rule, 'unknown'))

    def test_text(self):
        self.assertEqual(
            '+100% (-50% to +200%)',
            confidence.ConfidenceRange(1.0, -0.5, 2.0, 3).text('+.0%'),
        )
