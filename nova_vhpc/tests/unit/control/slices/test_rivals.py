# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""dss, vslicer, fixed and none."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.slices import base, dss, fixed, none, vslicer
from nova_vhpc.tests import base as tests_base

LIMITS = model.ActuatorLimits(effective_min_slice_us=1_000)


def vm(uuid='a', events=None, **kwargs):
    return model.VmView(
        uuid, 2, sample=model.Sample(io_events=events), **kwargs
    )


def decide(policy, *vms):
    view = model.HostView(1, 0, 100_000, (), vms, limits=LIMITS)
    return policy.decide(base.SliceContext(view, {}, {})).vms


class NoneTest(tests_base.TestCase):
    def test_leaves_all_alone(self):
        policy = none.NonePolicy(control_config.ControlConfig())
        self.assertEqual({}, dict(decide(policy, vm(time_slice_us=5_000))))


class FixedTest(tests_base.TestCase):
    def test_all_alike_but_for_the_specified(self):
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
    def test_micro_slices_for_latency_vms(self):
        policy = vslicer.VslicerPolicy(control_config.ControlConfig())
        chosen = decide(
            policy,
            vm('a', workload=model.Workload.PARALLEL),
            vm('b', workload=model.Workload.LATENCY),
            vm('c', workload=model.Workload.LATENCY, time_slice_us=9_000),
        )
        self.assertEqual(
            {'b': (5_000, False), 'c': (9_000, True)},
            {
                uuid: (one.slice_us, one.specified)
                for uuid, one in chosen.items()
            },
        )


class DssTest(tests_base.TestCase):
    def policy(self):
        return dss.DssPolicy(control_config.ControlConfig())

    def test_by_the_events_of_some_periods(self):
        # A burst of one period is a third of what counts in the next one.
        policy = self.policy()
        self.settle(policy, 0.0)
        slices = [
            decide(policy, vm('a', events))['a'].slice_us
            for events in (1_000.0, 0.0, 0.0)
        ]
        # 300 events in 100 ms, then 210 and 147: ten of them in 3.3 ms, in
        # 4.8 ms, which is no clear change, and in 6.8 ms.
        self.assertEqual([3_750, 3_750, 7_500], slices)

    def test_not_where_it_is_specified(self):
        chosen = decide(self.policy(), vm('a', 1e6, time_slice_us=9_000))['a']
        self.assertEqual((9_000, True), (chosen.slice_us, chosen.specified))

    def settle(self, policy, events, periods=40):
        for _ in range(periods):
            chosen = decide(policy, vm('a', events))
        return chosen['a'].slice_us

    def test_no_io_is_default(self):
        self.assertIsNone(self.settle(self.policy(), 0.0))

    def test_ten_events_per_slice(self):
        # 100 events in 100 ms: ten of them in 10 ms.
        slice_us = self.settle(self.policy(), 100.0)
        self.assertTrue(10_000 / 1.5 < slice_us < 10_000 * 1.5, slice_us)

    def test_more_io_shorter_slices_down_to_the_minimum(self):
        slices = [
            self.settle(self.policy(), events)
            for events in (50.0, 100.0, 200.0, 400.0, 800.0, 1e6)
        ]
        self.assertEqual(sorted(slices, reverse=True), slices)
        self.assertEqual(5, len(set(slices[:5])))
        self.assertTrue(1_000 <= slices[-1] < 1_500)

    def test_small_changes_are_not_worth_a_write(self):
        # Two neighbouring slices are as near at 112 events: without
        # hysteresis every change there would be a write.
        for low, high in ((105.0, 120.0), (120.0, 105.0)):
            policy = self.policy()
            before = self.settle(policy, low)
            for _ in range(10):
                self.assertEqual(before, self.settle(policy, high))
                self.assertEqual(before, self.settle(policy, low))

    def test_from_both_sides_of_the_middle_it_is_another_slice(self):
        # Or the test above would compare one slice with itself.
        self.assertNotEqual(
            self.settle(self.policy(), 105.0),
            self.settle(self.policy(), 120.0),
        )

    def test_a_clear_change_is_worth_a_write(self):
        # 105 events mean 10.6 ms here, whose neighbour is 7.5 ms: there,
        # at 133 events, the change is clear.
        for events, moved in ((130.0, False), (140.0, True)):
            policy = self.policy()
            before = self.settle(policy, 105.0)
            self.assertEqual(moved, before != self.settle(policy, events))

    def test_each_vm_by_its_own_io(self):
        policy = self.policy()
        for _ in range(40):
            chosen = decide(policy, vm('a', 400.0), vm('b', 0.0))
        self.assertLess(chosen['a'].slice_us, 5_000)
        self.assertIsNone(chosen['b'].slice_us)

    def test_unmeasured_and_vanished(self):
        policy = self.policy()
        self.assertEqual({}, dict(decide(policy, vm('a'))))
        self.settle(policy, 100.0)
        before = decide(policy, vm('a'))['a']
        self.assertEqual(before, decide(policy, vm('a'))['a'])
        decide(policy, vm('b', 5.0))
        self.assertEqual(['b'], list(policy._rates))
