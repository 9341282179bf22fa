# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Impossible measurements are left out, and named."""

import decimal
import math

from nova_vhpc.control import model
from nova_vhpc.control.validation import sample
from nova_vhpc.tests import base


class CleanTest(base.TestCase):
    def clean(self, **values):
        return sample.clean(model.Sample(**values))

    def test_valid_sample_is_returned_as_it_is(self):
        for valid in (
            model.Sample(5.0, 6.0, (1.0, 2.0)),
            model.Sample(0.0, 0.0, (0.0,)),
            model.Sample(),
        ):
            cleaned, faults = sample.clean(valid)
            self.assertIs(valid, cleaned)
            self.assertEqual([], faults)

    def test_impossible_number_is_left_out(self):
        for value in (math.nan, math.inf, -1.0, 1e20):
            cleaned, faults = self.clean(io_events=value, sync_latency_us=0.0)
            self.assertIsNone(cleaned.io_events)
            # Zero is not an impossible value.
            self.assertEqual(0.0, cleaned.sync_latency_us)
            self.assertEqual([f'io_events = {value}'], faults)

    def test_one_impossible_vcpu_leaves_out_all_vcpus(self):
        for values in ((1.0, math.nan), (1.0, math.inf), (5.0, -1.0)):
            cleaned, faults = self.clean(vcpu_run_us=values)
            self.assertIsNone(cleaned.vcpu_run_us)
            self.assertEqual(['vcpu_run_us has impossible values'], faults)

    def test_value_that_is_no_sequence_is_left_out(self):
        for values in (0, False, '', {}, 3.0, {1.0: 2.0}, {1.0}, range(3)):
            cleaned, faults = self.clean(vcpu_run_us=values)
            self.assertIsNone(cleaned.vcpu_run_us)
            self.assertEqual(['vcpu_run_us has impossible values'], faults)

    def test_one_number_for_all_vcpus_is_left_out(self):
        cleaned, faults = self.clean(sync_latency_us=5.0, vcpu_run_us=math.nan)
        self.assertEqual(model.Sample(5.0), cleaned)
        self.assertEqual(['vcpu_run_us has impossible values'], faults)

    def test_number_that_cannot_be_added_to_floats_is_left_out(self):
        for value in (decimal.Decimal(5), decimal.Decimal('NaN')):
            # Each alone: one fault makes all other values be looked at, too.
            cleaned, faults = self.clean(io_events=value)
            self.assertEqual(model.Sample(), cleaned)
            self.assertEqual([f'io_events = {value}'], faults)
            cleaned, faults = self.clean(vcpu_run_us=(value,))
            self.assertEqual(model.Sample(), cleaned)
            self.assertEqual(['vcpu_run_us has impossible values'], faults)

    def test_no_measured_vcpus_are_no_fault(self):
        cleaned, faults = self.clean(vcpu_run_us=())
        self.assertEqual((), cleaned.vcpu_run_us)
        self.assertEqual([], faults)

    def test_object_that_is_no_sample_becomes_an_empty_one(self):
        self.assertEqual(
            (model.Sample(), ['None in place of a Sample']),
            sample.clean(None),
        )
