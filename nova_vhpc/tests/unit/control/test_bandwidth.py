# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Period and quota keep the CPU share of the flavor, within limits."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control import bandwidth, model
from nova_vhpc.tests import base

LIMITS = model.ActuatorLimits()
TICK = model.ActuatorLimits(effective_min_slice_us=4_000)


class ForSliceTest(base.TestCase):
    def test_bandwidth_of_a_slice(self):
        for case, slice_us, original, expected in (
            ('half a CPU', 10_000, (100_000, 50_000), (20_000, 10_000)),
            ('unlimited', 10_000, (100_000, -1), (10_000, 10_000)),
            ('no slice', None, (100_000, 50_000), None),
            ('longer than the quota', 20_000, (20_000, 10_000), None),
            # 0.4% of a CPU: a slice of 30 ms would need a period of 7.5 s.
            ('tiny share', 2_000, (1_000_000, 4_000), (500_000, 2_000)),
            ('share too small for it', 500, (1_000_000, 1_000), None),
            ('quota beyond libvirt', 10_000, (100_000, 10), None),
            ('period below libvirt', 10_000, (500, 50_000), None),
            ('period beyond libvirt', 10_000, (2_000_000, -1), None),
        ):
            with self.subTest(case):
                self.assertEqual(
                    expected, bandwidth.for_slice(slice_us, original, LIMITS)
                )

    def test_specified_slice_may_exceed_the_original_quota(self):
        self.assertEqual(
            (40_000, 20_000),
            bandwidth.for_slice(
                20_000, (20_000, 10_000), LIMITS, specified=True
            ),
        )

    def test_slice_is_raised_to_the_actuators_minimum(self):
        self.assertEqual(
            (8_000, 4_000), bandwidth.for_slice(300, (100_000, 50_000), TICK)
        )

    def test_share_is_exact_if_integers_allow(self):
        # A slice of exactly 10 ms would need a period of 23333.3 us.
        period, quota = bandwidth.for_slice(10_000, (70_000, 30_000), LIMITS)
        self.assertEqual(Fraction(3, 7), Fraction(quota, period))
        self.assertAlmostEqual(10_000, quota, delta=2)

    def test_slice_stays_close_if_an_exact_share_needs_a_distant_one(self):
        # The least quota that keeps the share exactly is the original one.
        period, quota = bandwidth.for_slice(50_000, (100_000, 70_001), LIMITS)
        self.assertEqual(50_000, quota)
        self.assertAlmostEqual(0.70001, quota / period, places=4)

    @given(
        slice_us=st.integers(-10, 2_000_000),
        period_us=st.integers(1_000, 1_000_000),
        quota_us=st.one_of(
            st.just(-1), st.integers(1_000, 17_592_186_044_415)
        ),
        effective_us=st.integers(0, 50_000),
        specified=st.booleans(),
    )
    def test_share_within_one_percent_and_limits(
        self, slice_us, period_us, quota_us, effective_us, specified
    ):
        limits = model.ActuatorLimits(effective_min_slice_us=effective_us)
        made = bandwidth.for_slice(
            slice_us, (period_us, quota_us), limits, specified
        )
        if made is None:
            return
        self.assertTrue(bandwidth.is_possible(made, limits), made)
        self.assertGreaterEqual(made[1], effective_us)
        if quota_us == -1:
            self.assertEqual(made[0], made[1])
        else:
            self.assertLessEqual(
                abs(
                    Fraction(made[1], made[0]) - Fraction(quota_us, period_us)
                ),
                Fraction(quota_us, period_us) / 100,
            )
            if not specified:
                self.assertLess(made[1], quota_us * 1.06)


class OfTuneTest(base.TestCase):
    def test_every_quota_below_one_means_unlimited(self):
        for quota_us in (-1, 0, -1_000):
            self.assertEqual(
                (100_000, -1),
                bandwidth.of_tune(model.CpuTune(100_000, quota_us)),
            )

    def test_period_or_quota_alone_is_unknown(self):
        self.assertIsNone(bandwidth.of_tune(model.CpuTune(quota_us=5_000)))
        self.assertIsNone(bandwidth.of_tune(model.CpuTune(period_us=5_000)))
