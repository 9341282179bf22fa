# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""An actuator's limits are cut down to libvirt's."""

import math

from nova_vhpc.control import model
from nova_vhpc.control.validation import limits
from nova_vhpc.tests import base


class CheckTest(base.TestCase):
    def test_valid_limits_are_returned_as_they_are(self):
        valid = model.ActuatorLimits()
        checked, faults = limits.check(valid)
        self.assertIs(valid, checked)
        self.assertEqual((), faults)

    def test_wider_limits_are_cut_down_and_named(self):
        checked, (fault,) = limits.check(
            model.ActuatorLimits(
                min_period_us=0,
                max_quota_us=10**18,
                effective_min_slice_us=4_000,
            )
        )
        self.assertEqual(1_000, checked.min_period_us)
        self.assertEqual(17_592_186_044_415, checked.max_quota_us)
        self.assertEqual(4_000, checked.effective_min_slice_us)
        self.assertIn('actuator limits', fault)

    def test_every_limit_is_cut_down(self):
        wide = model.ActuatorLimits(0, 2_000_000, 0, 10**18, 1, 0, 10**6)
        self.assertEqual(
            model.ActuatorLimits(
                1_000, 1_000_000, 1_000, 17_592_186_044_415, 1, 1, 262_144
            ),
            limits.check(wide)[0],
        )

    def test_limit_beyond_floats_allows_no_value(self):
        checked, _ = limits.check(model.ActuatorLimits(min_shares=10**400))
        self.assertEqual(262_145, checked.min_shares)

    def test_object_of_another_type_is_replaced_by_libvirts_limits(self):
        for wrong in (None, model.ActuatorLimits(max_shares=math.nan)):
            checked, (fault,) = limits.check(wrong)
            self.assertEqual(model.ActuatorLimits(), checked)
            self.assertIn("the actuator's limits", fault)
