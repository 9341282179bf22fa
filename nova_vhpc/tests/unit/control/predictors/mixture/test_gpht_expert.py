# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""GPHT as an expert that knows how good it is."""

from nova_vhpc.control.predictors.mixture import gpht_expert
from nova_vhpc.tests import base


def fed(states):
    them = gpht_expert.GphtExpert()
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
