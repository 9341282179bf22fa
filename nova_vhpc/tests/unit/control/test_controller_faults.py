# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Plugins that fail, and views with values of wrong types."""

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
from nova_vhpc.tests.unit.control import builders
from nova_vhpc.tests.unit.control.builders import make, view, vm

GIANT = 10**5_000
"""Too large to become a float, or to be printed in a message."""


class Silent:
    """A plugin that returns None from every method."""

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


class FailingPredictor(Silent):
    """A predictor that fails on each observation."""

    def observe(self, state, events):
        raise RuntimeError('too loud')

    def predict(self):
        return 1


class UnconstructiblePredictor(Silent):
    """A predictor that cannot be made."""

    def __init__(self):
        raise RuntimeError('not today')


class SilentTest(base.TestCase):
    def test_originals_stay_if_policies_return_none(self):
        plan = make(Silent, Silent).decide(view(vm()))
        self.assertIsNone(plan.vms['a'].writes)
        self.assertEqual(
            ['pinning policy failed', 'slice policy failed'],
            [one.reason.partition(':')[0] for one in plan.ignored],
        )

    def test_invalid_request_of_slice_policy_is_named_and_pins_stay(self):
        config = control_config.ControlConfig()
        for wrong, field in itertools.product(
            (None, '2', 2.0, math.nan, -1, [7], {7}),
            controller._SET_FIELDS,
        ):
            slices = Silent()
            slices.decide = lambda context, request={field: wrong}: (
                slices_base.SliceDecision(**request)
            )
            subject = controller.Controller(
                config,
                slices,
                balance.BalancePolicy(config),
                builders.LastValue,
            )
            for _ in range(2):
                plan = subject.decide(view(vm()))
                self.assertIsNotNone(plan.vms['a'].tune.vcpu_pins)
                (diagnostic,) = plan.ignored
                self.assertIn(field, diagnostic.reason)

    def test_faulty_predictor_is_named_and_slices_go_on(self):
        config = control_config.ControlConfig()
        for predictor in (Silent, FailingPredictor, UnconstructiblePredictor):
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

    def of_two(self, predictor):
        """Return the plan of two VMs whose predictors are made like this."""
        config = control_config.ControlConfig()
        subject = controller.Controller(
            config, Silent(), io_pool.IoPoolPolicy(config), predictor
        )
        sample = model.Sample(io_events=500.0)
        return subject.decide(
            view(vm('a', sample=sample), vm('b', sample=sample))
        )

    def test_vm_without_a_predictor_spares_those_after_it(self):
        made = []

        def predictor():
            made.append(1)
            if len(made) % 2:
                raise RuntimeError('not today')
            return builders.LastValue()

        plan = self.of_two(predictor)
        self.assertIsNone(plan.vms['a'].predicted_events)
        self.assertIsNotNone(plan.vms['b'].predicted_events)

    def test_faulty_predictor_of_one_vm_spares_the_other(self):
        made = iter((builders.LastValue(), Silent()))
        plan = self.of_two(lambda: next(made))
        self.assertIsNotNone(plan.vms['a'].predicted_events)
        self.assertIn('b', [one.uuid for one in plan.ignored])


class IllTypedTest(base.TestCase):
    def test_sample_value_that_is_not_a_number_is_named(self):
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
            (diagnostic,) = plan.ignored
            self.assertEqual('a', diagnostic.uuid)
            self.assertIn(next(iter(values)), diagnostic.reason)

    def test_vm_that_cannot_be_planned_is_left_out_of_the_plan(self):
        odd = dataclasses.replace(
            builders.ORIGINAL, period_us=1e5, quota_us=5e4
        )
        wrong = vm(original=odd, time_slice_us=6_000)
        wrong = dataclasses.replace(wrong, workload=model.Workload.GENERAL)
        plan = make().decide(view(wrong, vm('sound')))
        self.assertEqual({'sound'}, set(plan.vms))
        self.assertEqual(['a'], [one.uuid for one in plan.ignored])


class UnmanagedVmTest(base.TestCase):
    """Samples of unmanaged VMs may be impossible, too."""

    def plans(self, odd, **kwargs):
        """Yield plans of two gangs beside a hog with one odd sample.

        :param odd: the sample of the hog in tick 60.
        """
        busy = model.Sample(
            5e4, None, (6e4, 6e4), (4e4, 4e4), (3, 3), elapsed_us=1e5
        )
        kwargs.setdefault('limits', model.ActuatorLimits(can_idle=True))
        subject = make(policy.GangPolicy)
        for tick in range(110):
            hog = model.OtherVm('hog', 2, 1_024, odd if tick == 60 else busy)
            yield subject.decide(
                view(
                    vm('a', sample=busy),
                    vm('b', sample=busy),
                    tick=tick,
                    cpus=builders.CPUS[:2],
                    others=(hog,),
                    **kwargs,
                )
            )

    def test_impossible_sample_is_named_and_not_used(self):
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
            self.assertEqual(['hog'], [one.uuid for one in plans[60].ignored])
            self.assertIsNotNone(plans[-1].windows)

    def test_no_policy_fails_if_max_shares_is_zero(self):
        *_, plan = self.plans(
            model.Sample(), limits=model.ActuatorLimits(max_shares=0)
        )
        self.assertNotIn(
            'failed', ' '.join(one.reason for one in plan.ignored)
        )
