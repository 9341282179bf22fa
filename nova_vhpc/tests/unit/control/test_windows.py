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

"""Gang windows that must not be played."""

import dataclasses

from nova_vhpc.control import model, windows
from nova_vhpc.tests import base

LIMITS = model.ActuatorLimits(min_shares=2, max_shares=10_000)
UUIDS = frozenset(('a', 'b'))
SHARES = {'a': 100, 'b': 2}
TURN = model.Turn(50_000, frozenset('a'), SHARES)
GOOD = model.WindowSchedule((TURN,), SHARES)


class FaultTest(base.TestCase):
    def fault(self, **changes):
        return windows.fault(
            dataclasses.replace(GOOD, **changes), UUIDS, LIMITS
        )

    def turn(self, **changes):
        return self.fault(turns=(dataclasses.replace(TURN, **changes),))

    def test_nothing_wrong(self):
        self.assertIsNone(self.fault())

    def test_all_at_once_and_shares_at_the_limits(self):
        shares = {'a': LIMITS.max_shares, 'b': LIMITS.min_shares}
        self.assertIsNone(self.turn(favoured=UUIDS, shares=shares))
        self.assertIsNone(self.fault(shares_after=shares))

    def test_no_turns(self):
        self.assertEqual('no turns', self.fault(turns=()))

    def test_a_turn_without_end(self):
        self.assertEqual('a turn of 0 us', self.turn(width_us=0))

    def test_vms_that_are_not_ours(self):
        self.assertIn(
            'not in the view',
            windows.fault(GOOD, frozenset('a'), LIMITS),
        )

    def test_turns_that_do_not_name_the_same_vms(self):
        self.assertIn('different VMs', self.turn(shares={'a': 100}))

    def test_favours_nobody_knows(self):
        self.assertIn('without shares', self.turn(favoured=frozenset('c')))

    def test_shares_that_the_actuator_does_not_take(self):
        for shares in (1, 10_001, -3):
            self.assertEqual(
                f'shares of {shares}',
                self.turn(shares={'a': 100, 'b': shares}),
            )
            self.assertEqual(
                f'shares of {shares}',
                self.fault(shares_after={'a': shares, 'b': 2}),
            )
