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

"""What the values of the control core tell of themselves."""

from nova_vhpc.control import model
from nova_vhpc.tests import base


def schedule(**shares_after):
    return model.WindowSchedule(
        (model.Turn(20_000, frozenset(), dict(shares_after)),), shares_after
    )


class TestSharesOfLeavers(base.TestCase):
    def test_all_vms_leave_a_schedule_that_ends(self):
        self.assertEqual(
            {'a': 1, 'b': 2}, schedule(a=1, b=2).shares_of_leavers(None)
        )

    def test_vms_of_the_successor_stay(self):
        self.assertEqual(
            {'a': 1}, schedule(a=1, b=2).shares_of_leavers(schedule(b=3))
        )
