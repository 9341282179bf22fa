# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows that must not be played."""

import dataclasses

from nova_vhpc.control import model
from nova_vhpc.control.validation import schedule
from nova_vhpc.tests import base

LIMITS = model.ActuatorLimits(min_shares=2, max_shares=10_000)
UUIDS = frozenset(('a', 'b'))
SHARES = {'a': 100, 'b': 2}
TURN = model.Turn(50_000, frozenset('a'), SHARES)
GOOD = model.WindowSchedule((TURN,), SHARES)


class FaultTest(base.TestCase):
    def fault(self, **changes):
        return schedule.fault(
            dataclasses.replace(GOOD, **changes), UUIDS, LIMITS
        )

    def turn(self, **changes):
        return self.fault(turns=(dataclasses.replace(TURN, **changes),))

    def test_valid_schedule_has_no_fault(self):
        self.assertIsNone(self.fault())

    def test_shares_at_the_limits_are_no_fault(self):
        shares = {'a': LIMITS.max_shares, 'b': LIMITS.min_shares}
        self.assertIsNone(self.turn(favoured=UUIDS, shares=shares))
        self.assertIsNone(self.fault(shares_after=shares))

    def test_schedule_without_turns_is_a_fault(self):
        self.assertEqual('no turns', self.fault(turns=()))

    def test_turn_of_no_length_is_a_fault(self):
        self.assertEqual('a turn of 0 us', self.turn(width_us=0))

    def test_schedule_of_unmanaged_vm_is_a_fault(self):
        self.assertIn(
            'not in the view',
            schedule.fault(GOOD, frozenset('a'), LIMITS),
        )

    def test_turns_naming_different_vms_are_a_fault(self):
        self.assertIn('different VMs', self.turn(shares={'a': 100}))

    def test_favoured_vm_without_shares_is_a_fault(self):
        self.assertIn('without shares', self.turn(favoured=frozenset('c')))

    def test_shares_beyond_the_actuators_limits_are_a_fault(self):
        for shares in (1, 10_001, -3):
            self.assertEqual(
                f'shares of {shares}',
                self.turn(shares={'a': 100, 'b': shares}),
            )
            self.assertEqual(
                f'shares of {shares}',
                self.fault(shares_after={'a': shares, 'b': 2}),
            )
