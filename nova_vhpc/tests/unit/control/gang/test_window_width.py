# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Width of gang windows by how late switches are."""

import math

import hypothesis
from hypothesis import strategies

from nova_vhpc.control.gang import window_width
from nova_vhpc.tests import base


class TestWindowWidth(base.TestCase):
    def width(self):
        return window_width.WindowWidth(50_000, 200_000)

    def test_short_lateness_keeps_the_width(self):
        self.assertEqual(50_000, self.width().advance(2_000))

    def test_long_lateness_doubles_the_width(self):
        self.assertEqual(100_000, self.width().advance(5_000))
        self.assertEqual(200_000, self.width().advance(11_000))

    def test_width_never_exceeds_the_maximum(self):
        self.assertEqual(200_000, self.width().advance(1e9))
        fixed = window_width.WindowWidth(50_000, 50_000)
        self.assertEqual(50_000, fixed.advance(40_000))
        fixed = window_width.WindowWidth(50_000, 20_000)
        self.assertEqual(50_000, fixed.advance(40_000))

    def test_width_is_halved_with_hysteresis(self):
        width = self.width()
        width.advance(5_000)
        self.assertEqual(100_000, width.advance(2_500))
        self.assertEqual(50_000, width.advance(2_000))
        self.assertEqual(50_000, width.advance(2_900))

    def test_invalid_lateness_keeps_the_width(self):
        width = self.width()
        width.advance(5_000)
        for late_us in (0.0, -1.0, math.nan, math.inf):
            self.assertEqual(100_000, width.advance(late_us))

    @hypothesis.given(strategies.floats(1, 1e7), strategies.floats(1, 1e7))
    def test_width_is_stable_at_constant_lateness(self, before, after):
        width = self.width()
        width.advance(before)
        settled = width.advance(after)
        self.assertEqual(settled, width.advance(after))
        self.assertIn(settled, (50_000, 100_000, 200_000))


class TestMeanLateness(base.TestCase):
    def test_mean_is_unknown_for_few_borders(self):
        late = window_width.MeanLateness()
        for _ in range(window_width.ENOUGH_BORDERS - 1):
            late.add(300)
        self.assertEqual(0, late.known_us)
        late.add(300)
        self.assertEqual(300, late.known_us)
        self.assertEqual(window_width.ENOUGH_BORDERS, late.borders)
        self.assertEqual(300 * window_width.ENOUGH_BORDERS, late.total_us)

    def test_first_borders_do_not_count(self):
        late = window_width.MeanLateness()
        for _ in range(window_width.FIRST_BORDERS):
            late.add(20_000)
        for _ in range(window_width.ENOUGH_BORDERS):
            late.add(300)
        self.assertEqual(300, late.known_us)

    def test_old_borders_lose_their_influence(self):
        late = window_width.MeanLateness()
        for late_us in (0, 10_000):
            for _ in range(10 * window_width.MEMORY_BORDERS):
                late.add(late_us)
        self.assertAlmostEqual(10_000, late.mean_us, delta=1)
