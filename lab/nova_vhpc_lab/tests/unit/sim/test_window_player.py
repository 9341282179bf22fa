# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The player of gang windows on a simulated host."""

import random

from nova_vhpc.control import model
from nova_vhpc.tests import base
from nova_vhpc_lab.sim import drawn_delays, window_player
from nova_vhpc_lab.tests.unit.sim import clock

WIDTH_US = 50_000


def schedule(first='a', second='b', own=1_024):
    return model.WindowSchedule(
        tuple(
            model.Turn(
                WIDTH_US,
                frozenset({favoured}),
                {name: 40_960 if name == favoured else 20 for name in pair},
            )
            for pair in ((first, second),)
            for favoured in pair
        ),
        {first: own, second: own},
    )


class TestWindowPlayer(base.TestCase):
    def setUp(self):
        super().setUp()
        self.agenda = clock.agenda()
        self.shares = {}
        self.writes = []
        self.places = []
        self.player = window_player.WindowPlayer(
            self.agenda,
            self.set_shares,
            self.place,
            drawn_delays.DrawnDelays(self.agenda, random.Random(1)),
        )

    def set_shares(self, name, shares):
        self.shares[name] = shares
        self.writes.append((self.agenda.now_us, name, shares))

    def place(self, name, cpus):
        self.places.append((name, cpus))

    def test_favoured_vms_are_placed_once_and_released_at_the_end(self):
        turns = tuple(
            model.Turn(
                WIDTH_US,
                frozenset({name}),
                {'a': 20, 'b': 20, name: 40_960},
                cpus={name: cpus},
            )
            for name, cpus in (('a', (0, 1)), ('b', (1, 0)))
        )
        self.player.play(model.WindowSchedule(turns, {'a': 1_024, 'b': 1_024}))
        self.agenda.run(10 * WIDTH_US)
        self.assertEqual([('a', (0, 1)), ('b', (1, 0))], self.places)
        self.player.play(None)
        self.agenda.run(12 * WIDTH_US)
        self.assertEqual([('a', ()), ('b', ())], self.places[2:])

    def test_turns_follow_the_wall_clock(self):
        self.agenda.run(10_000)
        self.player.play(schedule())
        self.agenda.run(45_000)
        self.assertEqual({'a': 40_960, 'b': 20}, self.shares)
        self.agenda.run(60_000)
        self.assertEqual({'a': 20, 'b': 40_960}, self.shares)
        self.agenda.run(140_000)
        self.assertEqual({'a': 40_960, 'b': 20}, self.shares)

    def test_weights_are_in_force_shortly_after_the_border(self):
        self.player.play(schedule())
        self.agenda.run(20 * WIDTH_US)
        late_us = [at_us % WIDTH_US for at_us, _, _ in self.writes]
        self.assertGreater(min(late_us), 0)
        self.assertLess(max(late_us), 10_000)
        self.assertLess(0, self.player.late_us())
        self.assertLess(self.player.late_us(), 2_000)

    def test_same_schedule_goes_on(self):
        self.player.play(schedule())
        self.agenda.run(10_000)
        self.player.play(schedule())
        self.agenda.run(40_000)
        self.assertEqual(2, len(self.writes))

    def test_vms_that_leave_get_their_shares_after(self):
        self.player.play(schedule('a', 'b'))
        self.agenda.run(10_000)
        self.player.play(schedule('b', 'c'))
        self.agenda.run(20_000)
        self.assertEqual({'a': 1_024, 'b': 40_960, 'c': 20}, self.shares)

    def test_all_get_their_shares_after_at_the_end(self):
        self.player.play(schedule())
        self.agenda.run(10_000)
        self.player.play(None)
        self.agenda.run(500_000)
        self.assertEqual({'a': 1_024, 'b': 1_024}, self.shares)

    def test_vm_that_left_is_written_when_it_is_back(self):
        for each in (schedule(), None, schedule()):
            self.player.play(each)
            self.agenda.run(self.agenda.now_us + 5_000)
        self.assertEqual({'a': 40_960, 'b': 20}, self.shares)
