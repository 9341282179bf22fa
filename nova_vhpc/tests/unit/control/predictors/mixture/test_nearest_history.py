# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Votes of moments that looked like now."""

import math
import random

from nova_vhpc.control.predictors.mixture import nearest_history
from nova_vhpc.tests import base

REST = [(1, 0.0)] * 3


def fed(*members):
    """Periods of each member, as pairs of state and events."""
    them = nearest_history.NearestHistory()
    for period in zip(*members, strict=True):
        for member, (state, events) in enumerate(period):
            them.observe(member, state, events)
        them.end_period()
    return them


def votes_of(them, member=0):
    """Votes for a member's states; of one moment 12 at most."""
    return {
        state: vote * them.unit for state, vote in them.votes(member).items()
    }


class NearestHistoryTest(base.TestCase):
    def test_nothing_to_say_about_the_first_period(self):
        self.assertEqual({}, votes_of(fed([(1, 0.0)])))

    def test_the_closest_moment_has_the_greatest_vote(self):
        # 101 events were followed by state 9, 130 by state 5.
        first = [*REST, (3, 101.0), (9, 420.0)]
        second = [*REST, (3, 130.0), (5, 220.0)]
        votes = votes_of(fed([*first, *second, *REST, (3, 102.0)]))
        self.assertGreater(votes[9], votes[5] + 0.3)

    def test_the_period_before_tells_equal_ones_apart(self):
        first = [*REST, (1, 10.0), (3, 100.0), (7, 300.0)]
        second = [*REST, (2, 80.0), (3, 100.0), (4, 190.0)]
        votes = votes_of(fed([*first, *second, *REST, (1, 10.0), (3, 100.0)]))
        self.assertGreater(votes[7], votes[4] + 0.3)

    def test_all_followers_are_listed_however_far(self):
        votes = votes_of(fed([*REST, *REST, (90, 4500.0), *REST, *REST]))
        self.assertEqual({1, 90}, votes.keys())
        self.assertLess(votes[90], votes[1])

    def test_the_course_tells_moments_apart_that_are_alike(self):
        first = [*REST, (9, 420.0), (2, 80.0), (3, 100.0), (7, 300.0)]
        second = [*REST, (1, 10.0), (2, 80.0), (3, 100.0), (4, 190.0)]
        now = [*REST, (9, 420.0), (2, 80.0), (3, 100.0)]
        votes = votes_of(fed([*first, *second, *now]))
        self.assertGreater(votes[7], 2 * votes[4])
        # Not by which was first.
        votes = votes_of(fed([*second, *first, *now]))
        self.assertGreater(votes[7], 2 * votes[4])

    def test_only_the_window_is_remembered(self):
        for members, window in (
            (1, nearest_history.WINDOW_ALONE),
            (
                2,
                nearest_history.WINDOW_ALONE + nearest_history.WINDOW_PER_PEER,
            ),
            (4, nearest_history.WINDOW),
            (9, nearest_history.WINDOW),
        ):
            periods = [(8, 350.0), (9, 400.0), *[(1, 0.0)] * (window - 1)]
            votes = votes_of(fed(*[periods] * members))
            self.assertEqual({1, 9}, votes.keys())
            votes = votes_of(fed(*[[*periods, (1, 0.0)]] * members))
            self.assertEqual({1}, votes.keys())


class SlowTest(base.TestCase):
    """The same, worked out anew for each period and moment."""

    MEMBERS = 2

    def slow(self, periods, member):
        now = len(periods) - 1
        levels = [
            [int(100 * math.log1p(events / 100)) for _, events in period]
            for period in periods
        ]

        def square(one, other):
            pairs = zip(levels[one], levels[other], strict=True)
            return sum((a - b) ** 2 for a, b in pairs) / self.MEMBERS

        def course(one, other):
            if one < 0:
                return 9 * 400.0
            return square(one, other) + 0.5 * course(one - 1, other - 1)

        votes = {}
        for moment in range(max(0, now - 36), now):
            state, _ = periods[moment + 1][member]
            likeness = 1 + square(moment, now) / 200
            likeness *= 1 + course(moment, now) / 400
            votes[state] = votes.get(state, 0) + 12 / likeness**2
        return votes

    def test_votes_are_those_of_a_slow_version(self):
        source = random.Random(7)
        periods = []
        them = nearest_history.NearestHistory()
        for number in range(150):
            # Of few states, of many, of few again.
            top = 8000 if 50 < number < 90 else 200
            period = [source.uniform(0, top) for _ in range(self.MEMBERS)]
            periods.append([(int(events // 50), events) for events in period])
            for member, (state, events) in enumerate(periods[-1]):
                them.observe(member, state, events)
            them.end_period()
            for member in range(self.MEMBERS):
                expected = self.slow(periods, member)
                votes = votes_of(them, member)
                self.assertEqual(expected.keys(), votes.keys())
                for state, vote in votes.items():
                    self.assertAlmostEqual(expected[state], vote)
                self.assertAlmostEqual(
                    sum(votes.values()), them.total * them.unit
                )


class MembersTest(base.TestCase):
    """What one member cannot tell apart the other does."""

    FIRST = (
        [*REST, (3, 100.0), (9, 420.0)],
        [*REST, (1, 10.0), (5, 210.0)],
    )
    SECOND = (
        [*REST, (3, 100.0), (5, 220.0)],
        [*REST, (7, 310.0), (1, 20.0)],
    )

    def now(self, first, second):
        return fed(
            [*self.FIRST[0], *self.SECOND[0], *REST, first],
            [*self.FIRST[1], *self.SECOND[1], *REST, second],
        )

    def test_each_has_its_own_followers(self):
        them = self.now((3, 100.0), (1, 10.0))
        self.assertGreater(votes_of(them, 0)[9], votes_of(them, 0)[5] + 0.3)
        self.assertGreater(votes_of(them, 1)[5], votes_of(them, 1)[1] + 0.3)
        self.assertNotIn(7, them.votes(0))

    def test_the_other_members_events_decide(self):
        votes = votes_of(self.now((3, 100.0), (7, 310.0)))
        self.assertGreater(votes[5], votes[9] + 0.3)

    def test_a_missing_member_counts_with_its_last_period(self):
        them = self.now((3, 100.0), (1, 10.0))
        them.observe(0, 9, 420.0)
        them.end_period()
        # What it did not say is what it said last.
        self.assertIn(1, them.votes(1))
        self.assertLess(votes_of(them, 1)[5], 0.01)

    def tell(self, them, *periods):
        """Periods of some members: by each its state and events."""
        for period in periods:
            for member, (state, events) in period.items():
                them.observe(member, state, events)
            them.end_period()

    def test_a_newcomer_makes_nobody_forget(self):
        them = self.now((3, 100.0), (1, 10.0))
        self.tell(
            them,
            {0: (1, 0.0), 1: (1, 0.0), 2: (7, 310.0)},
            {0: (3, 100.0), 1: (1, 10.0), 2: (7, 310.0)},
        )
        self.assertGreater(votes_of(them, 0)[9], votes_of(them, 0)[5] + 0.3)
        self.assertEqual({7}, them.votes(2).keys())

    def test_nor_does_who_leaves(self):
        them = self.now((3, 100.0), (7, 310.0))
        them.remove_members({0})
        self.tell(them, {1: (1, 0.0)}, {1: (7, 310.0)})
        votes = votes_of(them, 1)
        self.assertGreater(votes[1], 100 * votes[5])
        self.assertEqual({}, them.votes(0))

    def test_who_has_left_is_no_part_of_what_comes(self):
        them = fed([(8, 350.0)] * 3, [(1, 0.0)] * 3)
        them.remove_members({0})
        self.tell(them, {1: (4, 160.0)}, {1: (6, 280.0)})
        self.assertEqual({1, 4, 6}, them.votes(1).keys())

    def test_who_is_left_alone_remembers_less(self):
        periods = [(8, 350.0), (9, 400.0)]
        periods += [(1, 0.0)] * (nearest_history.WINDOW_ALONE + 5)
        them = fed(periods, periods)
        self.assertIn(9, them.votes(0))
        them.remove_members({1})
        self.tell(them, {0: (3, 100.0)}, {0: (1, 0.0)})
        self.assertEqual({1, 3}, them.votes(0).keys())
