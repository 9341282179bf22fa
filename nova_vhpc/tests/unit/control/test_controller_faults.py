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

"""Plugins that fail, and views that no policy was written for."""

import dataclasses
import itertools
import math

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.control.gang import policy
from nova_vhpc.control.pinning import balance, io_pool
from nova_vhpc.control.slices import atc
from nova_vhpc.control.slices import base as slices_base
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control import test_controller
from nova_vhpc.tests.unit.control.test_controller import make, view, vm

GIANT = 10**5_000
"""Too great for a float, and for a message."""


class Silent:
    """A plugin that answers with nothing at all."""

    state_bytes = 0

    def __init__(self, config=None):
        pass

    def decide(self, context):
        return None

    pin = decide

    def observe(self, state, events):
        pass

    def predict(self):
        return None


class Deaf(Silent):
    """A predictor that fails on what it is told."""

    def observe(self, state, events):
        raise RuntimeError('too loud')

    def predict(self):
        return 1


class Unborn(Silent):
    """A predictor that cannot be made."""

    def __init__(self):
        raise RuntimeError('not today')


class SilentTest(base.TestCase):
    def test_policies_are_named_and_the_originals_stay(self):
        plan = make(Silent, Silent).decide(view(vm()))
        self.assertIsNone(plan.vms['a'].writes)
        self.assertEqual(
            ['pinning policy failed', 'slice policy failed'],
            [one.reason.partition(':')[0] for one in plan.ignored],
        )

    def test_pinning_is_not_blamed_for_what_slices_cannot_ask_for(self):
        config = control_config.ControlConfig()
        for wrong, field in itertools.product(
            (None, '2', 2.0, math.nan, -1, [7], {7}),
            controller._SET_FIELDS,
        ):
            asking = Silent()
            asking.decide = lambda context, asked={field: wrong}: (
                slices_base.SliceDecision(**asked)
            )
            subject = controller.Controller(
                config,
                asking,
                balance.BalancePolicy(config),
                test_controller.LastValue,
            )
            for _ in range(2):
                plan = subject.decide(view(vm()))
                self.assertIsNotNone(plan.vms['a'].tune.vcpu_pins)
                (named,) = plan.ignored
                self.assertIn(field, named.reason)

    def test_predictors_are_named_and_the_rest_goes_on(self):
        config = control_config.ControlConfig()
        for predictor in (Silent, Deaf, Unborn):
            subject = controller.Controller(
                config,
                atc.AtcPolicy(config),
                io_pool.IoPoolPolicy(config),
                predictor,
            )
            for latency_us in (1_000.0, 2_000.0, 3_000.0):
                sample = model.Sample(latency_us, 500.0)
                plan = subject.decide(view(vm(sample=sample)))
                self.assertEqual(
                    ['a'], [one.uuid for one in plan.ignored], predictor
                )
                self.assertIn('predictor failed', plan.ignored[0].reason)
            self.assertEqual('ATC: DEFAULT', plan.vms['a'].reason)

    def test_one_is_not_blamed_for_another(self):
        made = []

        def predictor():
            made.append(Silent() if made else test_controller.LastValue())
            return made[-1]

        config = control_config.ControlConfig()
        subject = controller.Controller(
            config, Silent(), io_pool.IoPoolPolicy(config), predictor
        )
        sample = model.Sample(io_events=500.0)
        plan = subject.decide(
            view(vm('a', sample=sample), vm('b', sample=sample))
        )
        self.assertIsNotNone(plan.vms['a'].predicted_events)
        self.assertIn('b', [one.uuid for one in plan.ignored])


class IllTypedTest(base.TestCase):
    def test_what_is_no_number_is_named(self):
        sound = vm('sound')
        for values in (
            {'io_events': GIANT},
            {'sync_latency_us': 'soon'},
            {'vcpu_runs': (GIANT, 1.5)},
            {'vcpu_run_us': (None, 1.0)},
        ):
            plan = make().decide(
                view(vm(sample=model.Sample(**values)), sound)
            )
            self.assertEqual({'a', 'sound'}, set(plan.vms))
            (said,) = plan.ignored
            self.assertEqual('a', said.uuid)
            self.assertIn(next(iter(values)), said.reason)

    def test_a_vm_that_cannot_be_planned_is_left_alone(self):
        odd = dataclasses.replace(
            test_controller.ORIGINAL, period_us=1e5, quota_us=5e4
        )
        wrong = vm(original=odd, time_slice_us=6_000)
        wrong = dataclasses.replace(wrong, workload=model.Workload.GENERAL)
        plan = make().decide(view(wrong, vm('sound')))
        self.assertEqual({'sound'}, set(plan.vms))
        self.assertEqual(['a'], [said.uuid for said in plan.ignored])


class OthersTest(base.TestCase):
    """VMs that did not opt in are measured, too."""

    def plans(self, odd, **kwargs):
        """Plans of two gangs beside a hog, whose 20th sample is odd."""
        busy = model.Sample(
            5e4, None, (5e4, 5e4), (5e4, 5e4), (3, 3), elapsed_us=1e5
        )
        subject = make(policy.GangPolicy)
        for tick in range(40):
            hog = model.OtherVm('hog', 2, 1_024, odd if tick == 20 else busy)
            yield subject.decide(
                view(
                    vm('a', sample=busy),
                    vm('b', sample=busy),
                    tick=tick,
                    cpus=test_controller.CPUS[:2],
                    others=(hog,),
                    **kwargs,
                )
            )

    def test_impossible_samples_are_named_and_not_used(self):
        usual = list(self.plans(model.Sample()))
        self.assertTrue(
            any(not turn.favoured for turn in usual[-1].windows.turns)
        )
        for run_us in (-5e9, math.inf, math.nan, None):
            plans = list(self.plans(model.Sample(vcpu_run_us=(run_us, 1.0))))
            self.assertEqual(
                [one.windows for one in usual],
                [one.windows for one in plans],
            )
            self.assertEqual(
                ['hog'], [said.uuid for said in plans[20].ignored]
            )

    def test_an_actuator_without_any_shares(self):
        *_, plan = self.plans(
            model.Sample(), limits=model.ActuatorLimits(max_shares=0)
        )
        self.assertNotIn(
            'failed', ' '.join(said.reason for said in plan.ignored)
        )
