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
    def test_half_a_cpu_gets_a_period_of_two_slices(self):
        self.assertEqual(
            (20_000, 10_000),
            bandwidth.for_slice(10_000, (100_000, 50_000), LIMITS),
        )

    def test_unlimited_vm_gets_a_quota_as_long_as_its_period(self):
        self.assertEqual(
            (10_000, 10_000),
            bandwidth.for_slice(10_000, (100_000, -1), LIMITS),
        )

    def test_no_slice_gives_no_bandwidth(self):
        self.assertIsNone(bandwidth.for_slice(None, (100_000, 50_000), LIMITS))

    def test_slice_longer_than_original_quota_gives_no_bandwidth(self):
        self.assertIsNone(
            bandwidth.for_slice(20_000, (20_000, 10_000), LIMITS)
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

    def test_tiny_share_keeps_its_period_within_a_second(self):
        # 0.4% of a CPU: a slice of 30 ms would need a period of 7.5 s.
        self.assertEqual(
            (500_000, 2_000),
            bandwidth.for_slice(2_000, (1_000_000, 4_000), LIMITS),
        )

    def test_share_too_small_for_a_shorter_slice_gives_no_bandwidth(self):
        self.assertIsNone(bandwidth.for_slice(500, (1_000_000, 1_000), LIMITS))

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

    def test_original_beyond_libvirts_limits_gives_no_bandwidth(self):
        for original in ((500, 50_000), (100_000, 10), (2_000_000, -1)):
            self.assertIsNone(bandwidth.for_slice(10_000, original, LIMITS))

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
