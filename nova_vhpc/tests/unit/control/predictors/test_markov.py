# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Markov of order k."""

from nova_vhpc.control.predictors import base as predictors_base
from nova_vhpc.control.predictors import markov
from nova_vhpc.tests import base


def after(states, order=1):
    predictor = markov.MarkovPredictor(order)
    for state in states:
        predictor.observe(state, 0.0)
    return predictor.predict()


class MarkovTest(base.TestCase):
    def test_the_most_frequent_successor(self):
        self.assertEqual(3, after((1, 3, 1, 2, 1, 3, 1)))

    def test_what_was_never_left_stays(self):
        self.assertEqual(4, after((1, 2, 4)))

    def test_staying_wins_between_equals(self):
        self.assertEqual(1, after((1, 2, 1, 1)))

    def test_order_2_tells_apart_what_order_1_cannot(self):
        cycle = (1, 1, 2, 1, 1, 2, 1, 1)
        self.assertEqual(2, after(cycle, order=2))
        self.assertEqual(1, after(cycle[:-1], order=2))

    def test_an_unknown_pair_falls_back_on_the_last_state(self):
        # 5 was followed by 6, but (9, 5) was never met before.
        self.assertEqual(6, after((1, 5, 6, 9, 5), order=2))

    def test_idle_before_anything_was_seen(self):
        self.assertEqual(
            predictors_base.IDLE_STATE, markov.MarkovPredictor().predict()
        )

    def test_refuses_order_0(self):
        self.assertRaises(ValueError, markov.MarkovPredictor, 0)
