# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Global phase history table."""

from nova_vhpc.control.predictors import base as predictors_base
from nova_vhpc.control.predictors import gpht
from nova_vhpc.tests import base


def after(states, **sizes):
    predictor = gpht.GphtPredictor(**sizes)
    for state in states:
        predictor.observe(state, 0.0)
    return predictor.predict()


class GphtTest(base.TestCase):
    def test_a_known_pattern_is_followed_by_what_followed_it(self):
        self.assertEqual(3, after((1, 2, 3, 1, 2), depth=2))

    def test_an_unknown_pattern_predicts_the_last_state(self):
        self.assertEqual(2, after((1, 2, 3, 3, 2), depth=2))

    def test_the_whole_register_has_to_match(self):
        cycle = (1, 2, 3) * 3
        # Eight states are known again only after eight and a cycle.
        self.assertEqual(3, after(cycle))
        self.assertEqual(2, after((*cycle, 1, 2, 3, 1)))

    def test_the_last_outcome_replaces_the_one_before(self):
        self.assertEqual(4, after((1, 3, 1, 4, 1), depth=1))

    def test_the_least_recently_used_pattern_gives_way(self):
        states = (1, 9, 2, 9, 3, 9, 1)
        self.assertEqual(9, after(states, depth=1))
        self.assertEqual(1, after(states, depth=1, entries=2))

    def test_a_pattern_used_again_is_the_most_recently_used(self):
        # 1 came in before 2, but was used after it: 2 gives way to 3.
        states = (1, 2, 1, 3)
        self.assertEqual(3, after((*states, 1), depth=1, entries=2))
        self.assertEqual(2, after((*states, 2), depth=1, entries=2))

    def test_a_pattern_used_again_drives_out_no_other(self):
        # The table is full of 1 and 2 when 2 is used again.
        self.assertEqual(2, after((1, 2, 2, 2, 1), depth=1, entries=2))

    def test_idle_before_anything_was_seen(self):
        self.assertEqual(predictors_base.IDLE_STATE, after(()))

    def test_refuses_sizes_of_0(self):
        self.assertRaises(ValueError, gpht.GphtPredictor, 0)
        self.assertRaises(ValueError, gpht.GphtPredictor, 8, 0)
