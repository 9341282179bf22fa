# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Otsu's threshold, against the paper's formulas."""

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control.phases import otsu
from nova_vhpc.tests import base


def variance_at(levels, k):
    """Interclass variance as the paper writes it."""
    count = len(levels)
    low = [level for level in levels if level <= k]
    high = [level for level in levels if level > k]
    if not low or not high:
        return 0.0
    omega = len(low) / count
    mean = sum(levels) / count
    mu = sum(low) / count
    return (omega * mean - mu) ** 2 / (omega * (1 - omega))


class OtsuTest(base.TestCase):
    @given(st.lists(st.integers(0, 400), min_size=2, max_size=60))
    def test_no_other_k_is_better(self, levels):
        levels.sort()
        threshold = otsu.otsu(levels)
        if levels[0] == levels[-1]:
            self.assertIsNone(threshold)
            return
        best = max(variance_at(levels, k) for k in range(levels[-1] + 1))
        self.assertAlmostEqual(
            best, variance_at(levels, threshold), delta=1e-6 * (1 + best)
        )

    def test_threshold_is_the_middle_of_the_optimal_range(self):
        self.assertEqual(50.0, otsu.otsu([0, 0, 100, 100]))

    def test_of_two_equal_optima_the_first_is_taken(self):
        self.assertEqual(50.0, otsu.otsu([0, 100, 200]))

    def test_threshold_lies_between_two_phases(self):
        self.assertTrue(100 < otsu.otsu([90, 95, 100, 480, 500, 510]) < 480)

    def test_no_threshold_with_fewer_than_two_levels(self):
        self.assertIsNone(otsu.otsu([]))
        self.assertIsNone(otsu.otsu([5]))


class HistoryTest(base.TestCase):
    def feed(self, subject, values):
        renewals = 0
        for value in values:
            subject.add(value)
            if subject.due:
                subject.renew()
                renewals += 1
        return renewals

    def test_threshold_is_due_every_50_samples(self):
        subject = otsu.OtsuThreshold()
        self.assertEqual(0, self.feed(subject, [0, 100] * 24 + [0]))
        self.assertIsNone(subject.value)
        self.assertEqual(1, self.feed(subject, [100]))
        self.assertEqual(50.0, subject.value)
        self.assertEqual(1, self.feed(subject, [0, 100] * 25))

    def test_only_the_latest_200_count(self):
        subject = otsu.OtsuThreshold()
        self.feed(subject, [0, 1_000] * 100)
        self.assertEqual(500.0, subject.value)
        self.feed(subject, [0, 100] * 100)
        self.assertEqual(50.0, subject.value)

    def test_the_oldest_sample_is_dropped_first(self):
        subject = otsu.OtsuThreshold(history=3, renewal=1)
        for value, threshold in (
            (1_000, None),
            (0, 500.0),
            (10, 505.0),
            (100, 55.0),
            # Without the 0: with it, and without the 10, it would be 50.5.
            (1, 55.0),
        ):
            self.assertEqual(1, self.feed(subject, [value]))
            self.assertEqual(threshold, subject.value)

    def test_a_uniform_history_keeps_the_old_threshold(self):
        subject = otsu.OtsuThreshold()
        self.feed(subject, [0, 100] * 25)
        self.feed(subject, [70] * 150)
        before = subject.value
        self.feed(subject, [70] * 400)
        self.assertEqual(before, subject.value)
