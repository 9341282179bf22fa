# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The defaults are the papers' figures."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.phases import otsu
from nova_vhpc.control.slices import atc, base
from nova_vhpc.tests import base as tests_base
from nova_vhpc.tests.unit.control import builders


class AtcDefaultsTest(tests_base.TestCase):
    """ATC paper, section III."""

    def test_slices_fall_from_30_ms_to_minthreshold(self):
        # Limits without effect; those of real actuators are tighter.
        limits = model.ActuatorLimits(
            min_period_us=1, min_quota_us=1, effective_min_slice_us=1
        )
        policy = atc.AtcPolicy(control_config.ControlConfig(guard=False))
        slices_us = []
        for period in range(60):
            vm = builders.vm(sample=model.Sample(1_000.0 + period))
            view = builders.view(vm, limits=limits)
            decision = policy.decide(base.SliceContext(view, {}, {}))
            slices_us.append(decision.vms['a'].slice_us)
        # DEFAULT (30 ms: unchanged), by 1 ms to 1 ms, by 0.1 ms to 0.3 ms.
        coarse = range(29_000, 999, -1_000)
        fine = range(900, 299, -100)
        expected_us = [None, *coarse, *fine]
        self.assertEqual(expected_us, slices_us[: len(expected_us)])
        self.assertEqual({300}, set(slices_us[len(expected_us) :]))


class OtsuDefaultsTest(tests_base.TestCase):
    """I/O-perception paper, section III.B."""

    def test_threshold_is_renewed_each_50_samples_from_the_last_200(self):
        subject = builders.make()
        # Events grow, so that each renewal gives another threshold.
        samples = [100 + 10 * number for number in range(400)]
        renewed = []
        before = None
        for number, events in enumerate(samples, start=1):
            one = builders.vm(sample=model.Sample(io_events=float(events)))
            plan = subject.decide(builders.view(one, tick=number)).vms['a']
            if plan.threshold_events != before:
                before = plan.threshold_events
                renewed.append((number, before))
        self.assertEqual(
            [
                (number, otsu.otsu(samples[max(0, number - 200) : number]))
                for number in range(50, 401, 50)
            ],
            renewed,
        )
