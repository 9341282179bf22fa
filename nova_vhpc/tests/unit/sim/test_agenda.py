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

"""Actions between the steps of a simulated kernel."""

from nova_vhpc.sim.agenda import Agenda
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.sim.clock import Clock


class TestAgenda(base.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()
        self.agenda = Agenda(self.clock)
        self.ran = []

    def add(self, at_us, name):
        self.agenda.at(
            at_us, lambda: self.ran.append((name, self.clock.now_us))
        )

    def test_actions_run_at_their_times_and_in_order(self):
        self.add(30, 'c')
        self.add(10, 'a')
        self.add(10, 'b')
        self.add(41, 'late')
        self.agenda.run(40)
        self.assertEqual([('a', 10), ('b', 10), ('c', 30)], self.ran)
        self.assertEqual([10, 30, 40], self.clock.steps)

    def test_action_of_the_past_runs_now(self):
        self.agenda.run(50)
        self.add(20, 'a')
        self.agenda.run(50)
        self.assertEqual([('a', 50)], self.ran)

    def test_action_added_by_an_action_runs_in_the_same_call(self):
        self.agenda.at(10, lambda: self.add(20, 'next'))
        self.agenda.run(20)
        self.assertEqual([('next', 20)], self.ran)
