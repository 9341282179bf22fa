# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The slice policies that the ATC paper compares itself with, and none."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.slices import base
from nova_vhpc.tests import base as tests_base
from nova_vhpc_lab.rivals import dss, fixed, vslicer

LIMITS = model.ActuatorLimits(effective_min_slice_us=1_000)


def vm(uuid='a', events=None, **kwargs):
    return model.VmView(
        uuid, 2, sample=model.Sample(io_events=events), **kwargs
    )


def decide(policy, *vms):
    view = model.HostView(1, 0, 100_000, (), vms, limits=LIMITS)
    return policy.decide(base.SliceContext(view, {}, {})).vms


class NoneTest(tests_base.TestCase):
    def test_no_slice_is_chosen_even_if_specified(self):
        policy = base.NonePolicy(control_config.ControlConfig())
        self.assertEqual({}, dict(decide(policy, vm(time_slice_us=5_000))))


class FixedTest(tests_base.TestCase):
    def test_all_vms_have_the_fixed_slice_unless_specified(self):
        policy = fixed.FixedPolicy(
            control_config.ControlConfig(fixed_slice_us=7_000)
        )
        chosen = decide(
            policy,
            vm('a', workload=model.Workload.PARALLEL),
            vm('b'),
            vm('c', time_slice_us=9_000),
        )
        self.assertEqual(
            {'a': (7_000, False), 'b': (7_000, False), 'c': (9_000, True)},
            {
                uuid: (one.slice_us, one.specified)
                for uuid, one in chosen.items()
            },
        )


class VslicerTest(tests_base.TestCase):
    def test_latency_vms_have_micro_slices_unless_specified(self):
        policy = vslicer.VslicerPolicy(control_config.ControlConfig())
        chosen = decide(
            policy,
            vm('a', workload=model.Workload.PARALLEL),
            vm('b', workload=model.Workload.LATENCY),
            vm('c', workload=model.Workload.LATENCY, time_slice_us=9_000),
        )
        self.assertEqual(
            {'a': (None, False), 'b': (5_000, False), 'c': (9_000, True)},
            {
                uuid: (one.slice_us, one.specified)
                for uuid, one in chosen.items()
            },
        )


class DssTest(tests_base.TestCase):
    def policy(self):
        return dss.DssPolicy(control_config.ControlConfig())

    def test_slice_follows_the_moving_average_of_events(self):
        # A new sample has a weight of 0.3 in the moving average.
        policy = self.policy()
        self.settle(policy, 0.0)
        slices = [
            decide(policy, vm('a', events))['a'].slice_us
            for events in (1_000.0, 0.0, 0.0)
        ]
        # The averages are 300, 210 and 147 events in 100 ms. Ten events take
        # 3.3 ms, then 4.8 ms (too small a change for a write), then 6.8 ms.
        self.assertEqual([3_750, 3_750, 7_500], slices)

    def test_specified_slice_is_kept(self):
        chosen = decide(self.policy(), vm('a', 1e6, time_slice_us=9_000))['a']
        self.assertEqual((9_000, True), (chosen.slice_us, chosen.specified))

    def settle(self, policy, events, periods=40):
        for _ in range(periods):
            chosen = decide(policy, vm('a', events))
        return chosen['a'].slice_us

    def test_vm_without_io_has_the_default_slice(self):
        self.assertIsNone(self.settle(self.policy(), 0.0))

    def test_a_slice_has_ten_events(self):
        # 100 events in 100 ms: ten of them in 10 ms.
        slice_us = self.settle(self.policy(), 100.0)
        self.assertTrue(10_000 / 1.5 < slice_us < 10_000 * 1.5, slice_us)

    def test_more_io_gives_shorter_slices_down_to_the_minimum(self):
        slices = [
            self.settle(self.policy(), events)
            for events in (50.0, 100.0, 200.0, 400.0, 800.0, 1e6)
        ]
        self.assertEqual(sorted(slices, reverse=True), slices)
        self.assertEqual(5, len(set(slices[:5])))
        self.assertTrue(1_000 <= slices[-1] < 1_500)

    def test_small_change_keeps_the_slice(self):
        # At 112 events two neighbouring slices are equally near: without
        # hysteresis every change there would be a write.
        for low, high in ((105.0, 120.0), (120.0, 105.0)):
            policy = self.policy()
            before = self.settle(policy, low)
            for _ in range(10):
                self.assertEqual(before, self.settle(policy, high))
                self.assertEqual(before, self.settle(policy, low))

    def test_slices_on_both_sides_of_the_middle_differ(self):
        # Otherwise test_small_change_keeps_the_slice would prove nothing.
        self.assertNotEqual(
            self.settle(self.policy(), 105.0),
            self.settle(self.policy(), 120.0),
        )

    def test_large_change_changes_the_slice(self):
        # 105 events give a slice of 10.6 ms, the next shorter one is 7.5 ms.
        # It is chosen from 133 events on.
        for events, moved in ((130.0, False), (140.0, True)):
            policy = self.policy()
            before = self.settle(policy, 105.0)
            self.assertEqual(moved, before != self.settle(policy, events))

    def test_each_vm_has_the_slice_of_its_own_io(self):
        policy = self.policy()
        for _ in range(40):
            chosen = decide(policy, vm('a', 400.0), vm('b', 0.0))
        self.assertLess(chosen['a'].slice_us, 5_000)
        self.assertIsNone(chosen['b'].slice_us)

    def test_unmeasured_vm_keeps_its_slice_and_vanished_vm_is_forgotten(self):
        policy = self.policy()
        self.assertEqual({}, dict(decide(policy, vm('a'))))
        self.settle(policy, 100.0)
        before = decide(policy, vm('a'))['a']
        self.assertEqual(before, decide(policy, vm('a'))['a'])
        decide(policy, vm('b', 5.0))
        self.assertEqual(['b'], list(policy._rates))
