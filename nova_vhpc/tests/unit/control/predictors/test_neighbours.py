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

"""Votes of moments that looked like now."""

from nova_vhpc.control.predictors import neighbours
from nova_vhpc.tests import base

REST = [(1, 0.0)] * 3


def fed(*members):
    """Periods of each member, as pairs of state and events."""
    them = neighbours.Neighbours()
    for period in zip(*members, strict=True):
        for member, (state, events) in enumerate(period):
            them.observe(member, state, events)
        them.settle()
    return them


class NeighboursTest(base.TestCase):
    def test_nothing_to_say_about_the_first_period(self):
        self.assertEqual({}, fed([(1, 0.0)]).votes(0))

    def test_the_closest_moment_has_the_greatest_vote(self):
        # 101 events were followed by state 9, 130 by state 5.
        first = [*REST, (3, 101.0), (9, 420.0)]
        second = [*REST, (3, 130.0), (5, 220.0)]
        votes = fed([*first, *second, *REST, (3, 102.0)]).votes(0)
        self.assertGreater(votes[9], votes[5] + 0.3)

    def test_the_period_before_tells_equal_ones_apart(self):
        first = [*REST, (1, 10.0), (3, 100.0), (7, 300.0)]
        second = [*REST, (2, 80.0), (3, 100.0), (4, 190.0)]
        votes = fed([*first, *second, *REST, (1, 10.0), (3, 100.0)]).votes(0)
        self.assertGreater(votes[7], votes[4] + 0.3)

    def test_all_followers_are_listed_however_far(self):
        votes = fed([*REST, (90, 4500.0), *REST]).votes(0)
        self.assertEqual({1, 90}, votes.keys())
        self.assertLess(votes[90], votes[1])

    def test_the_course_tells_moments_apart_that_are_alike(self):
        first = [*REST, (9, 420.0), (2, 80.0), (3, 100.0), (7, 300.0)]
        second = [*REST, (1, 10.0), (2, 80.0), (3, 100.0), (4, 190.0)]
        now = [*REST, (9, 420.0), (2, 80.0), (3, 100.0)]
        votes = fed([*first, *second, *now]).votes(0)
        self.assertGreater(votes[7], 2 * votes[4])
        # Not by which was first.
        votes = fed([*second, *first, *now]).votes(0)
        self.assertGreater(votes[7], 2 * votes[4])

    def test_only_the_window_is_remembered(self):
        for members, window in (
            (1, neighbours.WINDOW_ALONE),
            (2, neighbours.WINDOW_ALONE + neighbours.WINDOW_PER_PEER),
            (4, neighbours.WINDOW),
            (9, neighbours.WINDOW),
        ):
            periods = [(8, 350.0), (9, 400.0), *[(1, 0.0)] * (window - 1)]
            votes = fed(*[periods] * members).votes(0)
            self.assertEqual({1, 9}, votes.keys())
            votes = fed(*[[*periods, (1, 0.0)]] * members).votes(0)
            self.assertEqual({1}, votes.keys())


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
        self.assertGreater(them.votes(0)[9], them.votes(0)[5] + 0.3)
        self.assertGreater(them.votes(1)[5], them.votes(1)[1] + 0.3)
        self.assertNotIn(7, them.votes(0))

    def test_the_other_members_events_decide(self):
        votes = self.now((3, 100.0), (7, 310.0)).votes(0)
        self.assertGreater(votes[5], votes[9] + 0.3)

    def test_a_missing_member_counts_with_its_last_period(self):
        them = self.now((3, 100.0), (1, 10.0))
        them.observe(0, 9, 420.0)
        them.settle()
        # What it did not say is what it said last.
        self.assertIn(1, them.votes(1))
        self.assertLess(them.votes(1)[5], 0.01)

    def tell(self, them, *periods):
        """Periods of some members: by each its state and events."""
        for period in periods:
            for member, (state, events) in period.items():
                them.observe(member, state, events)
            them.settle()

    def test_a_newcomer_makes_nobody_forget(self):
        them = self.now((3, 100.0), (1, 10.0))
        self.tell(
            them,
            {0: (1, 0.0), 1: (1, 0.0), 2: (7, 310.0)},
            {0: (3, 100.0), 1: (1, 10.0), 2: (7, 310.0)},
        )
        self.assertGreater(them.votes(0)[9], them.votes(0)[5] + 0.3)
        self.assertEqual({7}, them.votes(2).keys())

    def test_nor_does_who_leaves(self):
        them = self.now((3, 100.0), (7, 310.0))
        them.leave({0})
        self.tell(them, {1: (1, 0.0)}, {1: (7, 310.0)})
        votes = them.votes(1)
        self.assertGreater(votes[1], votes[5] + 0.3)
        self.assertEqual({}, them.votes(0))

    def test_who_is_left_alone_remembers_less(self):
        periods = [(8, 350.0), (9, 400.0)]
        periods += [(1, 0.0)] * (neighbours.WINDOW_ALONE + 5)
        them = fed(periods, periods)
        self.assertIn(9, them.votes(0))
        them.leave({1})
        self.tell(them, {0: (3, 100.0)}, {0: (1, 0.0)})
        self.assertEqual({1, 3}, them.votes(0).keys())
