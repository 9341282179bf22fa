# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Actions between the steps of a simulated kernel."""

from nova_vhpc.tests import base
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.tests.unit.sim.clock import Clock


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
