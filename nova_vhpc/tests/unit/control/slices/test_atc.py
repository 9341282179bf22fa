# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Algorithms 1 and 2 of the ATC paper, one test per line."""

import dataclasses

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.slices import atc, base
from nova_vhpc.tests import base as tests_base

CONSTANTS = atc.Constants(
    alpha_us=1_000, beta_us=100, default_us=30_000, minimum_us=300
)
LITERAL = dataclasses.replace(CONSTANTS, literal=True)
RISING = (5.0, 10.0, 20.0)
FALLING = (30.0, 20.0, 10.0)
ZERO = (0.0, 0.0, 0.0)


def slices(last, before=None):
    before = last if before is None else before
    return (before, before, last)


class TestAlgorithm1(tests_base.TestCase):
    """compute_time_slice, by line of the pseudo-code."""

    def compute(self, latencies, times, steps=CONSTANTS):
        return atc.compute_time_slice(latencies, times, steps)

    def test_line_1_latency_grew(self):
        self.assertEqual(
            19_000, self.compute((99.0, 10.0, 10.1), slices(20_000))
        )

    def test_line_1_latency_fell_twice_after_a_shortening(self):
        self.assertEqual(
            19_000, self.compute(FALLING, slices(20_000, before=21_000))
        )

    def test_line_1_fell_twice_without_a_shortening(self):
        self.assertEqual(20_000, self.compute(FALLING, slices(20_000)))

    def test_line_1_fell_twice_after_a_lengthening(self):
        self.assertEqual(
            20_000, self.compute(FALLING, slices(20_000, before=19_000))
        )

    def test_line_1_fell_once_only(self):
        self.assertEqual(
            20_000,
            self.compute((10.0, 20.0, 15.0), slices(20_000, before=21_000)),
        )

    def test_line_1_fell_once_and_stayed(self):
        for latencies in ((30.0, 20.0, 20.0), (20.0, 20.0, 10.0)):
            self.assertEqual(
                20_000,
                self.compute(latencies, slices(20_000, before=21_000)),
            )

    def test_line_1_and_binds_closer_than_or(self):
        # Rising alone is enough, shortened or not.
        self.assertEqual(
            19_000, self.compute(RISING, slices(20_000, before=15_000))
        )

    def test_line_1_equal_latency_is_no_growth(self):
        self.assertEqual(
            20_000,
            self.compute((10.0, 10.0, 10.0), slices(20_000, before=21_000)),
        )

    def test_line_2_alpha_would_cross_the_threshold(self):
        steps = dataclasses.replace(CONSTANTS, minimum_us=4_500)
        self.assertEqual(5_000, self.compute(RISING, slices(5_000), steps))

    def test_line_2_alpha_may_reach_the_threshold(self):
        steps = dataclasses.replace(CONSTANTS, minimum_us=4_000)
        self.assertEqual(4_000, self.compute(RISING, slices(5_000), steps))

    def test_line_3_subtracts_alpha(self):
        self.assertEqual(1_000, self.compute(RISING, slices(2_000)))

    def test_line_4_and_5_subtract_beta_below_alpha(self):
        self.assertEqual(800, self.compute(RISING, slices(900)))

    def test_line_4_beta_may_reach_the_threshold(self):
        self.assertEqual(300, self.compute(RISING, slices(400)))

    def test_line_4_beta_would_cross_the_threshold(self):
        self.assertEqual(300, self.compute(RISING, slices(300)))

    def test_line_4_slice_of_beta(self):
        steps = dataclasses.replace(CONSTANTS, minimum_us=1)
        self.assertEqual(100, self.compute(RISING, slices(100), steps))

    def test_line_7_between_alpha_and_alpha_plus_threshold(self):
        # 1.2 ms: alpha would lead below the threshold, beta is for less
        # than alpha only.
        self.assertEqual(1_200, self.compute(RISING, slices(1_200)))

    def test_line_10_keeps(self):
        self.assertEqual(12_000, self.compute((1.0, 3.0, 2.0), slices(12_000)))

    def test_line_12_two_zeros_are_not_three(self):
        self.assertEqual(12_000, self.compute((1.0, 0.0, 0.0), slices(12_000)))

    def test_line_12_all_three_latencies_must_be_zero(self):
        for latencies, expected in (
            ((0.0, 1.0, 0.0), 12_000),
            ((0.0, 0.0, 1.0), 11_000),
        ):
            self.assertEqual(expected, self.compute(latencies, slices(12_000)))

    def test_line_12_needs_three_periods(self):
        self.assertEqual(12_000, self.compute((0.0, 0.0), (12_000, 12_000)))

    def test_line_13_and_14_default(self):
        self.assertEqual(30_000, self.compute(ZERO, slices(29_001)))

    def test_line_14_default_stays(self):
        self.assertEqual(30_000, self.compute(ZERO, slices(30_000)))

    def test_line_15_and_16_add_alpha(self):
        self.assertEqual(13_000, self.compute(ZERO, slices(12_000)))

    def test_line_18_adds_beta_below_alpha(self):
        self.assertEqual(400, self.compute(ZERO, slices(300)))

    def test_line_18_adds_beta_at_alpha(self):
        self.assertEqual(1_100, self.compute(ZERO, slices(1_000)))

    def test_line_18_is_bounded_by_default(self):
        # Cannot happen while beta is less than alpha, as the options ensure.
        steps = dataclasses.replace(LITERAL, beta_us=5_000)
        self.assertEqual(30_000, self.compute(ZERO, slices(29_000), steps))

    def test_line_21_no_history_keeps(self):
        self.assertEqual(30_000, self.compute((5.0,), (30_000,)))

    def test_gap_at_alpha_closed(self):
        self.assertEqual(900, self.compute(RISING, slices(1_000)))

    def test_gap_at_alpha_as_printed(self):
        self.assertEqual(1_000, self.compute(RISING, slices(1_000), LITERAL))

    def test_gap_at_default_minus_alpha_closed(self):
        self.assertEqual(30_000, self.compute(ZERO, slices(29_000)))

    def test_gap_at_default_minus_alpha_as_printed(self):
        self.assertEqual(29_100, self.compute(ZERO, slices(29_000), LITERAL))

    def test_reaches_the_threshold_exactly(self):
        slice_us = 30_000
        for _ in range(100):
            slice_us = self.compute(RISING, slices(slice_us))
        self.assertEqual(300, slice_us)

    def test_recovers_to_default(self):
        slice_us = 300
        for _ in range(100):
            slice_us = self.compute(ZERO, slices(slice_us))
        self.assertEqual(30_000, slice_us)


def vm(uuid, latency=None, workload=model.Workload.PARALLEL, **kwargs):
    return model.VmView(
        uuid,
        2,
        workload=workload,
        sample=model.Sample(sync_latency_us=latency),
        **kwargs,
    )


def context(*vms, in_io_pool=(), limits=None, peers=None):
    limits = limits or model.ActuatorLimits(effective_min_slice_us=1)
    return base.SliceContext(
        view=model.HostView(
            1, 0, 100_000, (), vms, limits=limits, peers=peers or {}
        ),
        phases={},
        pins={},
        in_io_pool=frozenset(in_io_pool),
    )


class TestAlgorithm2(tests_base.TestCase):
    """AtcPolicy.decide, by line of the pseudo-code."""

    def policy(self, **kwargs):
        kwargs.setdefault('guard', False)
        return atc.AtcPolicy(control_config.ControlConfig(**kwargs))

    def run_with(self, policy, *series, make=None):
        """Feed one latency per VM and period; VMs are a, b, c..."""
        decision = None
        for latencies in zip(*series, strict=True):
            vms = [
                vm(chr(ord('a') + index), latency)
                for index, latency in enumerate(latencies)
            ]
            decision = policy.decide(context(*vms, *(make or ())))
        return decision

    def test_lines_8_to_11_no_parallel_vm_default_for_all(self):
        decision = self.policy().decide(
            context(
                vm('web', workload=model.Workload.LATENCY),
                vm(
                    'spec',
                    workload=model.Workload.GENERAL,
                    time_slice_us=6_000,
                ),
            )
        )
        # As printed: without parallel VMs even a specified slice has no
        # effect.
        self.assertEqual(
            [None, None], [one.slice_us for one in decision.vms.values()]
        )

    def test_lines_8_to_11_the_next_parallel_vm_starts_at_default(self):
        policy = self.policy()
        self.run_with(policy, [500, 600, 700])
        policy.decide(context())
        decision = policy.decide(context(vm('b', 500.0)))
        self.assertIsNone(decision.vms['b'].slice_us)

    def test_lines_13_to_16_the_minimum_goes_to_all_parallel(self):
        policy = self.policy()
        decision = self.run_with(
            policy, [500, 600, 700, 800], [500, 500, 500, 500]
        )
        self.assertEqual(27_000, decision.vms['a'].slice_us)
        self.assertEqual(27_000, decision.vms['b'].slice_us)

    def test_line_16_is_the_next_periods_history(self):
        # b was never shortened for its own sake, only along with a; that
        # shortening counts when its latency falls twice.
        decision = self.run_with(
            self.policy(), [500, 600, 600], [900, 800, 700]
        )
        self.assertEqual(28_000, decision.vms['a'].slice_us)
        self.assertEqual(29_000, decision.vms['a'].own_us)

    def test_lines_17_and_18_specified(self):
        decision = self.run_with(
            self.policy(),
            [500, 600],
            make=[
                vm(
                    'web',
                    workload=model.Workload.LATENCY,
                    time_slice_us=6_000,
                )
            ],
        )
        self.assertEqual(6_000, decision.vms['web'].slice_us)
        self.assertTrue(decision.vms['web'].specified)

    def test_line_17_is_for_non_parallel_vms_only(self):
        policy = self.policy()
        decision = policy.decide(context(vm('a', 5.0, time_slice_us=6_000)))
        self.assertIsNone(decision.vms['a'].slice_us)

    def test_lines_19_and_20_default(self):
        decision = self.run_with(
            self.policy(),
            [500, 600],
            make=[vm('web', workload=model.Workload.LATENCY)],
        )
        self.assertIsNone(decision.vms['web'].slice_us)
        self.assertIn('parallel', decision.vms['web'].reason)
        self.assertEqual(29_000, decision.vms['a'].slice_us)

    def test_default_is_the_original(self):
        decision = self.run_with(self.policy(), [500, 400])
        self.assertIsNone(decision.vms['a'].slice_us)

    def test_actuators_minimum_bounds_the_threshold(self):
        policy = self.policy(latency_floor_us=0)
        limits = model.ActuatorLimits(effective_min_slice_us=8_000)
        for latency in range(1, 100):
            decision = policy.decide(
                context(vm('a', float(latency)), limits=limits)
            )
        self.assertEqual(8_000, decision.vms['a'].slice_us)

    def test_slice_stays_default_if_actuators_minimum_is_greater(self):
        policy = self.policy(latency_floor_us=0)
        limits = model.ActuatorLimits(effective_min_slice_us=80_000)
        for latency in range(1, 100):
            decision = policy.decide(
                context(vm('a', float(latency)), limits=limits)
            )
        self.assertIsNone(decision.vms['a'].slice_us)

    def test_slice_stays_without_measurements(self):
        policy = self.policy()
        self.run_with(policy, [500, 600])
        decision = self.run_with(policy, [None, None, None, None])
        self.assertEqual(29_000, decision.vms['a'].slice_us)

    def test_latency_up_to_the_floor_is_zero(self):
        policy = self.policy(latency_floor_us=100)
        self.run_with(policy, [500, 600, 700, 800])
        decision = self.run_with(policy, [90, 60, 100])
        self.assertEqual(28_000, decision.vms['a'].slice_us)

    def test_literal_has_no_floor(self):
        policy = self.policy(latency_floor_us=100, atc_literal=True)
        self.run_with(policy, [500, 600, 700, 800])
        decision = self.run_with(policy, [90, 60, 99])
        self.assertEqual(26_000, decision.vms['a'].slice_us)

    def test_vm_in_the_io_pool_has_no_slice(self):
        policy = self.policy()
        for latency in (500, 600, 700):
            decision = policy.decide(
                context(
                    vm('a', 500.0), vm('b', float(latency)), in_io_pool={'b'}
                )
            )
        self.assertIsNone(decision.vms['a'].slice_us)
        self.assertNotIn('b', decision.vms)

    def test_specified_slice_is_used_if_all_parallel_vms_are_in_io_pool(self):
        # Algorithm 2 lists parallel VMs whether or not they are in the pool.
        web = vm('web', workload=model.Workload.GENERAL, time_slice_us=6_000)
        policy = self.policy()
        for in_io_pool in ((), ('a',)):
            decision = policy.decide(
                context(vm('a', 500.0), web, in_io_pool=in_io_pool)
            )
            self.assertEqual(6_000, decision.vms['web'].slice_us)

    def test_never_measured_vm_does_not_keep_slices_short(self):
        policy = self.policy()
        silent = [vm('z')]
        self.run_with(policy, [500, 600, 700, 800], make=silent)
        decision = self.run_with(policy, [0.0] * 12, make=silent)
        self.assertIsNone(decision.vms['a'].slice_us)
        self.assertIsNone(decision.vms['z'].slice_us)
        # It does not hold up other hosts, which receive own_us, either.
        self.assertIsNone(decision.vms['z'].own_us)

    def test_slice_stays_while_a_vm_is_briefly_not_measured(self):
        policy = self.policy()
        self.run_with(policy, [500, 600], [500, 500])
        decision = self.run_with(policy, [0.0] * 3, [None] * 3)
        self.assertEqual(29_000, decision.vms['a'].slice_us)

    def test_slice_stays_in_each_of_two_gaps_of_measurement(self):
        policy = self.policy()
        self.run_with(policy, [500, 600], [500, 500])
        decision = self.run_with(
            policy, [0.0] * 7, [None, None, None, 500, None, None, None]
        )
        self.assertEqual(29_000, decision.vms['a'].slice_us)

    def test_minimum_of_peers_is_used_only_if_slices_are_shared(self):
        peers = {'c1': model.PeerView(min_slice_us=12_000)}
        for share, expected in ((False, None), (True, 12_000)):
            policy = self.policy(share_slices=share)
            decision = policy.decide(
                context(vm('a', 5.0, cluster='c1'), peers=peers)
            )
            self.assertEqual(expected, decision.vms['a'].slice_us)
            # The slice that peers asked for must not be published as this
            # host's own, or no host could ever be the first to lengthen.
            self.assertEqual(30_000, decision.vms['a'].own_us)

    def test_peers_without_a_valid_slice_change_nothing(self):
        for peer_slice_us in (None, 0, -5):
            decision = self.policy(share_slices=True).decide(
                context(
                    vm('a', 5.0, cluster='c1'),
                    vm('b', 5.0, cluster='c2'),
                    peers={'c1': model.PeerView(min_slice_us=peer_slice_us)},
                )
            )
            self.assertIsNone(decision.vms['a'].slice_us)

    def test_vanished_vms_are_forgotten(self):
        policy = self.policy()
        for tick in range(50):
            policy.decide(context(vm(f'vm{tick}', 5.0)))
        self.assertEqual(1, len(policy._host._histories))
