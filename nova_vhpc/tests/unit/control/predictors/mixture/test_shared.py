# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What members learn together, and who is a member."""

from nova_vhpc.control.predictors import base as predictors_base
from nova_vhpc.control.predictors.mixture import shared
from nova_vhpc.tests import base

GOOD, BAD = 0.9, 0.1


class SharedLearningTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.learning = shared.SharedLearning()
        self.members = [self.learning.join() for _ in range(2)]

    def observe(self, *members, probabilities=None):
        for member in members:
            self.learning.observe(member, 1, 0.0)
            if probabilities:
                self.learning.likelihoods.append(probabilities)

    def test_length_is_at_least_one(self):
        self.assertEqual(1, len(self.learning))

    def test_members_are_those_that_observe(self):
        self.observe(self.members[0])
        self.assertEqual(1, len(self.learning))
        self.observe(self.members[1])
        self.assertEqual(2, len(self.learning))

    def test_to_settle_nothing_changes_nothing(self):
        self.learning.end_period()
        self.assertEqual((1.0,) * 5, self.learning.weights)

    def test_weights_follow_the_probabilities(self):
        self.observe(*self.members)
        self.learning.end_period()
        self.observe(*self.members, probabilities=(GOOD, BAD, BAD, BAD, BAD))
        self.assertEqual((1.0,) * 5, self.learning.weights)
        self.learning.end_period()
        best, *others = self.learning.weights
        for weight in others:
            self.assertAlmostEqual(BAD / GOOD, weight / best)

    def test_one_period_of_many_members_counts_once(self):
        alone = shared.SharedLearning()
        member = alone.join()
        for learning, members in (
            (alone, [member]),
            (self.learning, self.members),
        ):
            for one in members:
                learning.observe(one, 1, 0.0)
            learning.end_period()
            for one in members:
                learning.observe(one, 1, 0.0)
                learning.likelihoods.append((GOOD, BAD, GOOD, BAD, GOOD))
            learning.end_period()
        for one, other in zip(
            alone.weights, self.learning.weights, strict=True
        ):
            self.assertAlmostEqual(one, other)

    def test_observing_the_next_period_ends_the_last(self):
        self.observe(*self.members)
        self.observe(*self.members, probabilities=(GOOD, BAD, BAD, BAD, BAD))
        self.observe(self.members[0])
        self.assertLess(self.learning.weights[1], 0.5)

    def test_weights_of_bad_experts_can_recover(self):
        self.observe(*self.members)
        hopeless = shared.LEAST
        for _ in range(1000):
            self.observe(
                *self.members, probabilities=(GOOD, hopeless, BAD, BAD, BAD)
            )
        for _ in range(1000):
            self.observe(
                *self.members, probabilities=(hopeless, GOOD, BAD, BAD, BAD)
            )
        self.learning.end_period()
        self.assertEqual(max(self.learning.weights), self.learning.weights[1])

    def test_weights_stay_above_zero_with_many_members(self):
        crowd = [self.learning.join() for _ in range(300)]
        for _ in range(1000):
            self.observe(*crowd, probabilities=(shared.LEAST,) * 5)
        self.learning.end_period()
        for weight in self.learning.weights:
            self.assertGreater(weight, 1e-300)

    def test_member_without_samples_for_a_second_is_removed(self):
        first, second = self.members
        self.observe(first, second)
        for _ in range(10):
            self.observe(first)
        self.assertEqual(2, len(self.learning))
        self.assertEqual(0.5, self.learning.share)
        self.learning.end_period()
        self.assertEqual(1, len(self.learning))
        self.assertEqual(1.0, self.learning.share)
        self.assertEqual({}, self.learning.nearest_history.votes(second))

    def test_removed_member_may_come_back(self):
        first, second = self.members
        self.observe(first, second)
        for _ in range(20):
            self.observe(first)
        self.assertFalse(self.learning.observe(second, 1, 0.0))
        self.assertTrue(self.learning.observe(second, 1, 0.0))
        self.learning.end_period()
        self.assertEqual(2, len(self.learning))

    def test_memory_is_bounded_however_many_come_and_go(self):
        first = self.members[0]
        sizes = []
        for _ in range(300):
            guest = self.learning.join()
            self.observe(first, guest)
            for _ in range(12):
                self.observe(first)
            sizes.append(predictors_base.deep_bytes(self.learning))
        self.assertLess(sizes[-1], 1.1 * sizes[20])

    def test_member_with_single_gaps_is_kept(self):
        first, second = self.members
        for period in range(100):
            self.observe(first)
            if period % 10 == 0:
                self.observe(second)
        self.learning.end_period()
        self.assertEqual(2, len(self.learning))


def fed(states):
    them = shared.GphtExpert()
    for state in states:
        them.observe(state)
    return them


class GphtExpertTest(base.TestCase):
    def test_expects_an_unknown_pattern_to_stay(self):
        self.assertEqual(4, fed([4]).expected)

    def test_an_even_chance_at_first(self):
        self.assertEqual(0.5, fed(()).trust)

    def test_expects_what_followed_the_pattern(self):
        self.assertEqual(3, fed((1, 2, 3) * 4 + (1, 2)).expected)

    def test_trusts_changes_that_came_true(self):
        self.assertGreater(fed((1, 2, 3) * 12).trust, 0.9)

    def test_trust_in_staying_is_counted_by_itself(self):
        # Staying fails all through the first rounds, changes never do.
        cycle = (1, 2, 3) * 12
        self.assertLess(fed((*cycle, 9)).trust, 0.2)

    def test_trust_in_staying_comes_with_constancy(self):
        self.assertGreater(fed([5] * 30).trust, 0.9)
