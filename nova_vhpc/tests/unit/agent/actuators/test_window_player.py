# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The window player writes shares in turns, and restores them."""

import threading
import time

from nova_vhpc.agent.actuators import window_player
from nova_vhpc.control import model
from nova_vhpc.tests import base as tests_base
from nova_vhpc.tests.unit import waiting


def schedule(names='ab', width_us=10_000, after=1024):
    """Return a schedule that favours each VM in turn."""
    return model.WindowSchedule(
        tuple(
            model.Turn(
                width_us,
                frozenset({name}),
                {other: 1000 if other == name else 2 for other in names},
            )
            for name in names
        ),
        dict.fromkeys(names, after),
    )


class Domains:
    """A fake libvirt that keeps the written shares, and may fail or hang."""

    def __init__(self):
        self.shares = {}
        self.writes = []
        self.release = threading.Event()
        self.failing = set()
        self.hanging = {}
        self.hang = threading.Event()
        self.hang.set()
        self.called = threading.Event()

    def set_shares(self, uuid, value):
        self.called.set()
        self.hang.wait(waiting.PATIENCE_S)
        if uuid in self.hanging:
            self.hanging[uuid].append(value)
            self.release.wait(waiting.PATIENCE_S)
        self.writes.append((uuid, value))
        if uuid in self.failing:
            raise OSError('refused')
        self.shares[uuid] = value
        return True


class PlayerTestCase(tests_base.TestCase):
    """Has a player on a fake libvirt, in real time."""

    def setUp(self):
        super().setUp()
        self.domains = Domains()
        self.player = window_player.WindowPlayer(self.domains.set_shares)
        self.addCleanup(self.player.stop)
        self.addCleanup(self.domains.release.set)
        self.addCleanup(self.domains.hang.set)

    def favoured(self):
        return {u for u, v in self.domains.shares.items() if v == 1000}


class TestWindowPlayer(PlayerTestCase):
    """A schedule is played, changed and ended."""

    def test_each_vm_is_favoured_in_its_turn(self):
        self.player.play(schedule())
        for name in 'abab':
            waiting.wait_for(lambda name=name: self.favoured() == {name})

    def test_unchanged_shares_are_not_written_again(self):
        self.player.play(schedule('a'))
        # Borders are not waited for: a border whose write takes longer than
        # its turn is not counted if the next turn is the same.
        waiting.wait_for(lambda: self.domains.writes)
        time.sleep(0.05)
        self.assertEqual([('a', 1000)], self.domains.writes)

    def test_length_of_each_window_is_noted_for_its_vms(self):
        noted = {'a': 0.0, 'b': 0.0}
        began_s = time.monotonic()

        def note(uuids, seconds):
            for uuid in uuids:
                noted[uuid] += seconds

        player = window_player.WindowPlayer(
            self.domains.set_shares, note_window=note
        )
        self.addCleanup(player.stop)
        player.play(schedule())
        waiting.wait_for(lambda: min(noted.values()) > 0.02)
        player.play(None)
        total_s = sum(noted.values())
        self.assertLessEqual(total_s, time.monotonic() - began_s)
        time.sleep(0.05)
        self.assertEqual(total_s, sum(noted.values()))

    def test_lateness_excludes_the_part_before_a_new_schedule(self):
        """Otherwise each new schedule would widen the windows."""
        wide = 10_000_000
        player = window_player.WindowPlayer(
            self.domains.set_shares, lambda: wide * 3 // 4
        )
        self.addCleanup(player.stop)
        for count in range(1, 13):
            player.play(schedule(width_us=wide, after=count))
            waiting.wait_for(
                lambda count=count: player.status().borders == count
            )
            # The next schedule must write something, too.
            player.forget('a')
        self.assertGreater(player.late_us(), 0)
        self.assertLess(player.status().worst_late_us, wide // 4)

    def test_turns_follow_the_wall_clock(self):
        """Thus hosts with synchronised clocks favour the same cluster."""
        clock = [0]
        plan = schedule(width_us=10_000_000)
        player = window_player.WindowPlayer(
            self.domains.set_shares, lambda: clock[0]
        )
        self.addCleanup(player.stop)
        clock[0] = 12_000_000
        player.play(plan)
        waiting.wait_for(lambda: self.favoured() == {'b'})
        self.assertEqual(1, player.status().turn)

    def test_stop_writes_the_shares_after(self):
        self.player.play(schedule(after=300))
        waiting.wait_for(self.favoured)
        self.assertTrue(self.player.stop())
        self.assertEqual({'a': 300, 'b': 300}, self.domains.shares)

    def test_end_of_a_schedule_writes_the_shares_after(self):
        self.player.play(schedule())
        waiting.wait_for(self.favoured)
        self.player.play(None)
        waiting.wait_for(lambda: self.domains.shares == {'a': 1024, 'b': 1024})
        self.assertFalse(self.player.status().playing)

    def test_vm_that_leaves_the_schedule_gets_its_shares_after(self):
        self.player.play(schedule('abc'))
        waiting.wait_for(lambda: len(self.domains.shares) == 3)
        self.player.play(schedule('ab'))
        waiting.wait_for(lambda: self.domains.shares['c'] == 1024)
        self.assertIn(self.domains.shares['a'], (2, 1000))

    def test_same_schedule_again_changes_nothing(self):
        self.player.play(schedule(width_us=60_000_000))
        waiting.wait_for(lambda: len(self.domains.writes) == 2)
        self.player.play(schedule(width_us=60_000_000))
        time.sleep(0.05)
        self.assertEqual(2, len(self.domains.writes))

    def test_new_schedule_begins_at_once(self):
        self.player.play(schedule('a', width_us=60_000_000))
        waiting.wait_for(lambda: self.favoured() == {'a'})
        self.player.play(schedule('b', width_us=60_000_000))
        waiting.wait_for(lambda: self.favoured() == {'b'})

    def test_failing_vm_does_not_stop_other_vms(self):
        self.domains.failing = {'a'}
        self.player.play(schedule())
        waiting.wait_for(lambda: self.domains.shares.get('b') == 1000)
        waiting.wait_for(lambda: self.domains.shares.get('b') == 2)
        self.assertEqual({'a'}, self.player.status().failing)

    def test_failing_vm_is_retried_with_back_off(self):
        self.domains.failing = {'a'}
        self.player.play(schedule(width_us=1_000))
        time.sleep(0.5)
        tries = sum(uuid == 'a' for uuid, _ in self.domains.writes)
        self.assertLess(tries, 20)

    def test_hanging_libvirt_blocks_no_caller(self):
        self.domains.hang.clear()
        self.player.play(schedule())
        self.assertTrue(self.domains.called.wait(waiting.PATIENCE_S))
        self.player.play(schedule('ab', width_us=20_000))
        self.player.status()
        self.assertFalse(self.player.stop(0.1))
        self.assertEqual([], self.domains.writes)

    def test_shares_are_written_again_after_forget(self):
        self.player.play(schedule(width_us=50_000))
        waiting.wait_for(lambda: len(self.domains.shares) == 2)
        # A reboot resets a guest's shares.
        self.domains.shares.clear()
        self.player.forget('a')
        self.player.forget('b')
        waiting.wait_for(lambda: len(self.domains.shares) == 2)

    def test_stop_is_false_if_shares_are_not_restored(self):
        self.player.play(schedule())
        waiting.wait_for(self.favoured)
        self.domains.failing = {'a'}
        self.assertFalse(self.player.stop())
        self.assertEqual(1024, self.domains.shares['b'])

    def test_nothing_is_written_before_play(self):
        self.player.play(None)
        self.assertTrue(self.player.stop())
        self.assertEqual([], self.domains.writes)


class TestPlaces(tests_base.TestCase):
    """CPUs of the turns."""

    def setUp(self):
        super().setUp()
        self.domains = Domains()
        self.places = []
        self.player = window_player.WindowPlayer(
            self.domains.set_shares, place=self.place
        )
        self.addCleanup(self.player.stop)

    def place(self, uuid, cpus):
        self.places.append((uuid, cpus))
        return True

    def play(self, wanted):
        """Play two turns with CPUs until this many places were set."""
        turns = tuple(
            model.Turn(
                5_000,
                frozenset({name}),
                {other: 1000 if other == name else 2 for other in 'ab'},
                cpus={name: cpus},
            )
            for name, cpus in (('a', (0, 1)), ('b', (1, 0)))
        )
        self.player.play(
            model.WindowSchedule(turns, dict.fromkeys('ab', 1024))
        )
        waiting.wait_for(lambda: len(self.places) >= wanted)

    def test_each_vm_is_placed_once_in_its_turn(self):
        self.play(2)
        borders = self.player.status().borders
        waiting.wait_for(lambda: self.player.status().borders >= borders + 4)
        self.assertEqual({('a', (0, 1)), ('b', (1, 0))}, set(self.places[:2]))
        self.assertEqual(2, len(self.places))
        # Without a schedule they run where their pins allow.
        self.player.play(None)
        self.assertTrue(self.player.stop(waiting.PATIENCE_S))
        self.assertEqual({('a', ()), ('b', ())}, set(self.places[2:]))
        self.assertEqual({'a': 1024, 'b': 1024}, self.domains.shares)
