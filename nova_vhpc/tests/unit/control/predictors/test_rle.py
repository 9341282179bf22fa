# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The paper's RLE predictor, sentence by sentence."""

from nova_vhpc.control.predictors import base as predictors_base
from nova_vhpc.control.predictors import rle
from nova_vhpc.tests import base


def fed(states, **bits):
    predictor = rle.RlePredictor(**bits)
    for state in states:
        predictor.observe(state, 0.0)
    return predictor


class RleTest(base.TestCase):
    def test_a_tag_mismatch_predicts_the_last_state(self):
        self.assertEqual(2, fed((1, 1, 2)).predict())

    def test_a_run_length_met_before_predicts_what_followed_it(self):
        # 1 occurred three times in a row, then came 2.
        predictor = fed((1, 1, 1, 2, 1))
        self.assertEqual(1, predictor.predict())
        predictor.observe(1, 0.0)
        self.assertEqual(1, predictor.predict())
        predictor.observe(1, 0.0)
        self.assertEqual(2, predictor.predict())

    def test_case_1_a_transition_makes_an_entry(self):
        self.assertEqual(2, fed((1, 2, 1)).predict())

    def test_no_entry_is_made_while_the_state_lasts(self):
        predictor = fed((1, 1, 1, 1, 2))
        filled = [tag for tag in predictor._tags if tag != -1]
        self.assertEqual(1, len(filled))

    def test_case_2_a_match_updates_its_entry(self):
        # After one 1 came 2, but the second time it lasted: the run
        # length has changed, so after one 1 nothing is expected now.
        predictor = fed((1, 2, 1, 1, 2, 1))
        self.assertEqual(1, predictor.predict())

    def test_a_transition_elsewhere_replaces_the_value(self):
        self.assertEqual(3, fed((1, 2, 1, 3, 1)).predict())

    def test_different_tags_in_one_entry_do_not_match(self):
        # With two entries only, contexts share them; the tags keep what
        # was learned of one from being said of another.
        for last in range(2, 100):
            predictor = fed(range(1, last + 1), index_bits=1)
            self.assertEqual(last, predictor.predict())

    def test_idle_before_anything_was_seen(self):
        self.assertEqual(predictors_base.IDLE_STATE, fed(()).predict())

    def test_refuses_more_bits_than_the_hash_has(self):
        for bits in (
            {'index_bits': 0},
            {'tag_bits': 0},
            {'index_bits': 17, 'tag_bits': 16},
        ):
            self.assertRaises(ValueError, rle.RlePredictor, **bits)
