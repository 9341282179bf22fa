# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The mean lateness of windows."""

from nova_vhpc.control import lateness
from nova_vhpc.tests import base


class TestMeanLateness(base.TestCase):
    def test_mean_is_unknown_for_few_borders(self):
        late = lateness.MeanLateness()
        for _ in range(lateness.ENOUGH_BORDERS - 1):
            late.add(300)
        self.assertEqual(0, late.known_us)
        late.add(300)
        self.assertEqual(300, late.known_us)
        self.assertEqual(lateness.ENOUGH_BORDERS, late.borders)
        self.assertEqual(300 * lateness.ENOUGH_BORDERS, late.total_us)

    def test_first_borders_do_not_count(self):
        late = lateness.MeanLateness()
        for _ in range(lateness.FIRST_BORDERS):
            late.add(20_000)
        for _ in range(lateness.ENOUGH_BORDERS):
            late.add(300)
        self.assertEqual(300, late.known_us)

    def test_old_borders_lose_their_influence(self):
        late = lateness.MeanLateness()
        for late_us in (0, 10_000):
            for _ in range(10 * lateness.MEMORY_BORDERS):
                late.add(late_us)
        self.assertAlmostEqual(10_000, late.mean_us, delta=1)
