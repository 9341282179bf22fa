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

"""How much gangs may weigh beside intermittent VMs."""

from nova_vhpc.control.gang import weights
from nova_vhpc.tests import base


class TestWakeupHeadroom(base.TestCase):
    def setUp(self):
        super().setUp()
        self.headroom = weights.WakeupHeadroom(4)

    def advance(self, *values):
        return [self.headroom.advance(now) for now in values]

    def test_smaller_value_counts_at_once(self):
        self.assertEqual(
            [100, 100, 70, 70, 50], self.advance(100, 80, 70, 60, 50)
        )

    def test_greater_value_counts_after_patience_the_least_of_them(self):
        self.assertEqual(
            [100, 100, 100, 100, 150, 150],
            self.advance(100, 200, 300, 150, 160, 140),
        )

    def test_value_greater_now_and_then_never_counts(self):
        values = (100, *(200, 200, 200, 110) * 5)
        self.assertEqual([100] * len(values), self.advance(*values))

    def test_negative_headroom_is_followed_like_any_other(self):
        # Beside a vCPU that uses more than a third of a CPU it is negative.
        self.assertEqual(
            [-50, -50, -90, -90, -90, -90, 10],
            self.advance(-50, -40, -90, 10, 20, 30, 40),
        )
