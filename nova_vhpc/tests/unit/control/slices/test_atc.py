# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Algorithms 1 and 2 of the ATC paper, line by line."""

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


LINES = {
    '1: latency grew': ((99.0, 10.0, 10.1), 20_000, 20_000, 19_000),
    '1: grew after a lengthening: or binds less': (
        (RISING, 15_000, 20_000, 19_000)
    ),
    '1: fell twice after a shortening': (FALLING, 21_000, 20_000, 19_000),
    '1: fell twice without one': (FALLING, 20_000, 20_000, 20_000),
    '1: fell twice after a lengthening': (FALLING, 19_000, 20_000, 20_000),
    '1: fell once only': ((10.0, 20.0, 15.0), 21_000, 20_000, 20_000),
    '1: fell, then stayed': ((30.0, 20.0, 20.0), 21_000, 20_000, 20_000),
    '1: stayed, then fell': ((20.0, 20.0, 10.0), 21_000, 20_000, 20_000),
    '1: equal is no growth': ((10.0,) * 3, 21_000, 20_000, 20_000),
    '3: subtracts alpha': (RISING, 2_000, 2_000, 1_000),
    '4, 5: subtracts beta below alpha': (RISING, 900, 900, 800),
    '4: beta may reach the threshold': (RISING, 400, 400, 300),
    '4: beta would cross the threshold': (RISING, 300, 300, 300),
    '7: alpha would cross, beta is for less': (RISING, 1_200, 1_200, 1_200),
    '10: keeps': ((1.0, 3.0, 2.0), 12_000, 12_000, 12_000),
    '12: first is not zero': ((1.0, 0.0, 0.0), 12_000, 12_000, 12_000),
    '12: second is not zero': ((0.0, 1.0, 0.0), 12_000, 12_000, 12_000),
    '12: third is not zero': ((0.0, 0.0, 1.0), 12_000, 12_000, 11_000),
    '13, 14: default': (ZERO, 29_001, 29_001, 30_000),
    '14: default stays': (ZERO, 30_000, 30_000, 30_000),
    '15, 16: adds alpha': (ZERO, 12_000, 12_000, 13_000),
    '18: adds beta below alpha': (ZERO, 300, 300, 400),
    '18: adds beta at alpha': (ZERO, 1_000, 1_000, 1_100),
    'gap at alpha, closed': (RISING, 1_000, 1_000, 900),
    'gap below default, closed': (ZERO, 29_000, 29_000, 30_000),
}
"""By line of the pseudo-code: latencies, the slice before, the last one, and
the next one."""

WITH_OTHER_CONSTANTS = {
    '2: alpha would cross the threshold': (
        *(RISING, 5_000, 5_000),
        dataclasses.replace(CONSTANTS, minimum_us=4_500),
    ),
    '2: alpha may reach the threshold': (
        *(RISING, 5_000, 4_000),
        dataclasses.replace(CONSTANTS, minimum_us=4_000),
    ),
    '4: slice of beta': (
        *(RISING, 100, 100),
        dataclasses.replace(CONSTANTS, minimum_us=1),
    ),
    # Cannot happen while beta is less than alpha, as the options ensure.
    '18: bounded by default': (
        *(ZERO, 29_000, 30_000),
        dataclasses.replace(LITERAL, beta_us=5_000),
    ),
    'gap at alpha, as printed': (RISING, 1_000, 1_000, LITERAL),
    'gap below default, as printed': (ZERO, 29_000, 29_100, LITERAL),
}


class TestAlgorithm1(tests_base.TestCase):
    """compute_time_slice, by line of the pseudo-code."""

    def compute(self, latencies, times, steps=CONSTANTS):
        return atc.compute_time_slice(latencies, times, steps)

    def test_each_line(self):
        for line, (latencies, before, last, expected) in LINES.items():
            with self.subTest(line):
                self.assertEqual(
                    expected, self.compute(latencies, slices(last, before))
                )

    def test_lines_with_other_constants(self):
        for line, row in WITH_OTHER_CONSTANTS.items():
            latencies, last, expected, steps = row
            with self.subTest(line):
                self.assertEqual(
                    expected, self.compute(latencies, slices(last), steps)
                )

    def test_less_than_three_periods_keep_the_slice(self):
        self.assertEqual(12_000, self.compute((0.0, 0.0), (12_000, 12_000)))
        self.assertEqual(30_000, self.compute((5.0,), (30_000,)))

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
