# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""States of 50 events, as in the I/O-perception paper."""

import math

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import quantise
from nova_vhpc.tests import base


class QuantiseTest(base.TestCase):
    def test_125_events_are_state_3_as_in_the_paper(self):
        self.assertEqual(3, quantise.to_state(125))

    def test_bins_begin_at_multiples_of_50(self):
        self.assertEqual(
            [1, 1, 2, 2, 3],
            [quantise.to_state(n) for n in (0, 49.9, 50, 99, 100)],
        )

    def test_idle_is_the_state_of_no_events(self):
        self.assertEqual(quantise.IDLE_STATE, quantise.to_state(0))
        self.assertEqual(0, quantise.to_events(quantise.IDLE_STATE))

    def test_events_of_a_state_are_the_middle_of_its_bin(self):
        self.assertEqual(
            [75.0, 125.0], [quantise.to_events(state) for state in (2, 3)]
        )

    def test_invalid_numbers_count_as_no_events(self):
        for invalid in (-1, -math.inf, math.nan):
            self.assertEqual(1, quantise.to_state(invalid))

    def test_events_beyond_the_greatest_state_are_cut_off(self):
        for huge in (1e300, math.inf):
            self.assertEqual(quantise.MAX_STATE, quantise.to_state(huge))

    @hypothesis.given(strategies.integers(1, quantise.MAX_STATE))
    def test_events_of_a_state_are_in_that_state(self, state):
        self.assertEqual(state, quantise.to_state(quantise.to_events(state)))
