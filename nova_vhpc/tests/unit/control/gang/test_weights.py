# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Weights of gangs in their windows."""

from nova_vhpc.control import model
from nova_vhpc.control.gang import demand, gangs, weights
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.gang.policy_case import V1, V2, hog

CPUS = frozenset(range(4))
OWN = {'a': 1_024, 'b': 300, 'h': 4_096}


def members(**vcpus):
    return [gangs.Member(uuid, count, CPUS) for uuid, count in vcpus.items()]


class TestWakeupHeadroom(base.TestCase):
    def setUp(self):
        super().setUp()
        self.headroom = weights.WakeupHeadroom(4)

    def advance(self, *values):
        return [self.headroom.advance(now) for now in values]

    def test_smaller_value_counts_at_once(self):
        self.assertEqual(
            [100, 100, 70, 70, 50], self.advance(100, 80, 70, 60, 50)
        )

    def test_greater_value_counts_after_patience_the_least_of_them(self):
        self.assertEqual(
            [100, 100, 100, 100, 150, 150],
            self.advance(100, 200, 300, 150, 160, 140),
        )

    def test_value_greater_now_and_then_never_counts(self):
        values = (100, *(200, 200, 200, 110) * 5)
        self.assertEqual([100] * len(values), self.advance(*values))

    def test_negative_headroom_is_followed_like_any_other(self):
        # Beside a vCPU that uses more than a third of a CPU it is negative.
        self.assertEqual(
            [-50, -50, -90, -90, -90, -90, 10],
            self.advance(-50, -40, -90, 10, 20, 30, 40),
        )


class TestDominant(base.TestCase):
    def dominant(self, members, headroom=1e9, favour=4, limits=V1, own=OWN):
        return weights.dominant(members, own, headroom, favour, limits)

    def test_favoured_vm_weighs_gang_favour_times_the_heaviest_vm(self):
        self.assertEqual(
            {'a': 4 * 4_096, 'b': 4 * 4_096},
            self.dominant(members(a=2, b=2)),
        )

    def test_weight_on_each_cpu_leaves_intermittent_vms_their_headroom(self):
        self.assertEqual(
            {'a': 1_500, 'b': 3_000},
            self.dominant(members(a=2, b=4), headroom=750),
        )

    def test_weight_is_never_below_the_own_weight(self):
        self.assertEqual(
            {'a': 1_024, 'b': 300},
            self.dominant(members(a=2, b=2), headroom=-50),
        )

    def test_weight_stays_within_what_the_actuator_takes(self):
        self.assertEqual(
            {'a': 10_000},
            self.dominant(members(a=2), favour=1_000, limits=V2),
        )


class TestNeutral(base.TestCase):
    def test_favoured_gang_weighs_on_a_cpu_what_all_gangs_do(self):
        own = {'a': 1_024, 'b': 1_024}
        self.assertEqual(
            {'a': 2_048, 'b': 2_048},
            weights.neutral(members(a=2, b=2), own, 2, V1),
        )

    def test_narrow_member_weighs_less_than_a_wide_one(self):
        own = {'a': 1_024, 'b': 1_024}
        self.assertEqual(
            {'a': 1_024, 'b': 2_048},
            weights.neutral(members(a=2, b=4), own, 4, V1),
        )

    def test_weight_stays_within_what_the_actuator_takes(self):
        own = {'a': 9_999, 'b': 9_999}
        self.assertEqual(
            {'a': 10_000, 'b': 10_000},
            weights.neutral(members(a=2, b=2), own, 2, V2),
        )


class TestHeadroomBesideIntermittentVms(base.TestCase):
    def headroom(self, *vms, limits=V1):
        tracker = demand.DemandTracker()
        for _ in range(40):
            tracker.advance(vms)
        return weights.wakeup_headroom(
            [one.uuid for one in vms],
            {one.uuid: one.shares for one in vms},
            tracker,
            limits,
        )

    def test_vm_gets_three_times_what_it_uses_beside_that_weight(self):
        # Its vCPUs run for 15% of the time.
        weight = self.headroom(hog('w', part=0.3))
        self.assertAlmostEqual(3 * 0.15, 1_024 / (1_024 + weight), places=3)

    def test_vm_that_needs_most_of_its_weight_decides(self):
        busy = self.headroom(hog('w', part=0.3))
        self.assertEqual(
            busy, self.headroom(hog('w', part=0.3), hog('v', part=0.05))
        )

    def test_vcpu_that_uses_more_than_a_third_of_a_cpu_leaves_none(self):
        self.assertLess(self.headroom(hog('w', part=0.8)), 0)

    def test_without_intermittent_vms_only_the_actuator_limits(self):
        self.assertEqual(262_144, self.headroom())
        self.assertEqual(10_000, self.headroom(limits=V2))

    def test_idle_vm_does_not_limit(self):
        asleep = model.OtherVm(
            'z',
            2,
            1_024,
            model.Sample(
                vcpu_run_us=(0.0, 0.0),
                vcpu_wait_us=(0.0, 0.0),
                elapsed_us=100_000,
            ),
        )
        self.assertEqual(262_144, self.headroom(asleep))
