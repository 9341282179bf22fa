# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Keeping garbage out, and counting bytes."""

import collections
import math
import sys

import hypothesis
from hypothesis import strategies

from nova_vhpc.control.predictors import adaptive, base, last_value
from nova_vhpc.tests import base as tests_base


class CleanTest(tests_base.TestCase):
    def test_states(self):
        for given, kept in (
            (5, 5),
            (5.9, 5),
            (0, 1),
            (-7, 1),
            (10**30, base.MAX_STATE),
            (math.inf, 1),
            (math.nan, 1),
            (None, 1),
            ('x', 1),
        ):
            self.assertEqual(kept, base.clean_state(given))

    def test_events(self):
        for given, kept in (
            (5, 5.0),
            (-1, 0.0),
            (math.nan, 0.0),
            (math.inf, base.MAX_EVENTS),
            (10**400, 0.0),
            (None, 0.0),
            ('x', 0.0),
        ):
            self.assertEqual(kept, base.clean_events(given))


class DeepBytesTest(tests_base.TestCase):
    def test_counts_what_is_inside(self):
        text = 'a text of its own'
        self.assertEqual(
            sys.getsizeof([text]) + sys.getsizeof(text),
            base.deep_bytes([text]),
        )

    def test_counts_an_object_met_twice_once(self):
        text = 'another text of its own'
        self.assertEqual(
            sys.getsizeof(text),
            base.deep_bytes([text, text]) - sys.getsizeof([text, text]),
        )

    def test_follows_slots_dicts_and_deques(self):
        class Slotted:
            __slots__ = ('held',)

        item = Slotted()
        item.held = {'key': collections.deque([1000.5])}
        self.assertGreaterEqual(
            base.deep_bytes(item),
            sys.getsizeof(item)
            + sys.getsizeof(item.held)
            + sys.getsizeof('key')
            + sys.getsizeof(item.held['key'])
            + sys.getsizeof(1000.5),
        )


class ProtocolTest(tests_base.TestCase):
    def test_the_smallest_plugin_is_one(self):
        self.assertIsInstance(last_value.LastValuePredictor(), base.Predictor)

    def test_members_learn_together_where_a_predictor_can(self):
        first = adaptive.AdaptivePredictor()
        self.assertIsInstance(first, base.PeerPredictor)
        second = base.for_member(first, last_value.LastValuePredictor)
        self.assertIsInstance(second, adaptive.AdaptivePredictor)
        self.assertIsNot(first, second)

    def test_and_are_made_alone_where_it_cannot(self):
        first = base.for_member(None, last_value.LastValuePredictor)
        second = base.for_member(first, last_value.LastValuePredictor)
        self.assertIsInstance(second, last_value.LastValuePredictor)
        self.assertIsNot(first, second)


class QuantiseTest(tests_base.TestCase):
    def test_125_events_are_state_3_as_in_the_paper(self):
        self.assertEqual(3, base.to_state(125))

    def test_bins_begin_at_multiples_of_50(self):
        self.assertEqual(
            [1, 1, 2, 2, 3],
            [base.to_state(n) for n in (0, 49.9, 50, 99, 100)],
        )

    def test_idle_is_the_state_of_no_events(self):
        self.assertEqual(base.IDLE_STATE, base.to_state(0))
        self.assertEqual(0, base.to_events(base.IDLE_STATE))

    def test_events_of_a_state_are_the_middle_of_its_bin(self):
        self.assertEqual(
            [75.0, 125.0], [base.to_events(state) for state in (2, 3)]
        )

    def test_invalid_numbers_count_as_no_events(self):
        for invalid in (-1, -math.inf, math.nan):
            self.assertEqual(1, base.to_state(invalid))

    def test_events_beyond_the_greatest_state_are_cut_off(self):
        for huge in (1e300, math.inf):
            self.assertEqual(base.MAX_STATE, base.to_state(huge))

    @hypothesis.given(strategies.integers(1, base.MAX_STATE))
    def test_events_of_a_state_are_in_that_state(self, state):
        self.assertEqual(state, base.to_state(base.to_events(state)))
