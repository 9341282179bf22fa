# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Windows are played while calls hang, and after the player failed."""

import threading
import time
from unittest import mock

import fixtures

from nova_vhpc.agent.actuators import window_player
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent.actuators import test_window_player

WINDOWS = 'nova_vhpc.agent.actuators.window_player'


class TestHanging(test_window_player.PlayerTestCase):
    """Calls that do not return delay no other VM."""

    def hang(self, *names):
        """Make all further calls about VMs hang, and wait until they do."""
        self.domains.hanging = {name: [] for name in names}
        waiting.wait_for(lambda: all(self.domains.hanging.values()))

    def turns_of(self, name):
        return self.domains.writes.count((name, 1000))

    def test_other_vms_are_played_while_one_hangs(self):
        self.player.play(test_window_player.schedule())
        waiting.wait_for(lambda: self.turns_of('a'))
        self.hang('a')
        before = self.turns_of('b')
        waiting.wait_for(lambda: self.turns_of('b') > before + 5)
        self.assertEqual(1, len(self.domains.hanging['a']))
        waiting.wait_for(lambda: self.player.status().failing == {'a'})

    def test_vm_whose_call_returned_is_played_again(self):
        self.player.play(test_window_player.schedule())
        self.hang('a')
        before = self.turns_of('a')
        self.domains.release.set()
        waiting.wait_for(lambda: self.turns_of('a') > before + 2)
        waiting.wait_for(lambda: not self.player.status().failing)

    def test_other_vms_are_played_if_all_helpers_hang(self):
        hanging = 'abcdef'
        self.player.play(
            test_window_player.schedule(hanging + 'x', width_us=2_000)
        )
        waiting.wait_for(lambda: len(self.domains.shares) == 7)
        threads = threading.active_count()
        self.hang(*hanging)
        before = self.turns_of('x')
        waiting.wait_for(lambda: self.turns_of('x') > before + 5)
        self.assertEqual(
            {1}, {len(calls) for calls in self.domains.hanging.values()}
        )
        self.assertLessEqual(threading.active_count(), threads + len(hanging))
        self.domains.release.set()
        waiting.wait_for(lambda: threading.active_count() <= threads)

    def test_all_vms_get_their_shares_after_if_many_hang(self):
        """No turn begins any more that could start helpers."""
        self.player.play(
            test_window_player.schedule('abcdx', width_us=60_000_000)
        )
        waiting.wait_for(lambda: len(self.domains.shares) == 5)
        self.domains.hanging = {name: [] for name in 'abcd'}
        self.player.play(None)
        waiting.wait_for(lambda: self.domains.shares['x'] == 1024)
        self.domains.release.set()
        waiting.wait_for(lambda: set(self.domains.shares.values()) == {1024})

    def test_stop_is_false_while_a_vm_hangs(self):
        self.player.play(test_window_player.schedule())
        self.hang('a')
        self.assertFalse(self.player.stop(0.2))
        self.assertEqual(1024, self.domains.shares['b'])
        self.domains.release.set()
        self.assertTrue(self.player.stop())
        self.assertEqual({'a': 1024, 'b': 1024}, self.domains.shares)

    def test_window_exceeded_by_a_write_counts_whole_as_late(self):
        self.player.play(test_window_player.schedule(width_us=50_000))
        # The first window began before the schedule.
        waiting.wait_for(lambda: self.player.status().borders > 1)
        self.hang('a')
        waiting.wait_for(lambda: self.player.status().worst_late_us >= 49_000)


class TestFaults(test_window_player.PlayerTestCase):
    """The player goes on after unexpected errors, and logs them."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(WINDOWS + '.PAUSE_S', 0.01))

    def clock(self):
        if self.broken:
            raise OSError('no clock')
        return time.time_ns() // 1000

    def test_error_restores_the_shares_and_is_logged_once(self):
        self.broken = False
        self.player = window_player.WindowPlayer(
            self.domains.set_shares, self.clock
        )
        self.addCleanup(self.player.stop)
        self.player.play(test_window_player.schedule())
        waiting.wait_for(self.favoured)
        with self.assertLogs(window_player.LOG, 'ERROR') as logs:
            self.broken = True
            waiting.wait_for(
                lambda: set(self.domains.shares.values()) == {1024}
            )
            # Several errors occur meanwhile.
            time.sleep(0.1)
            self.broken = False
            waiting.wait_for(self.favoured)
        self.assertEqual(1, len(logs.output), logs.output)
        self.assertTrue(self.player.stop())
        self.assertEqual({'a': 1024, 'b': 1024}, self.domains.shares)

    def test_dead_thread_is_replaced_by_play(self):
        step = self.player._step
        self.player._step = mock.Mock(side_effect=SystemExit)
        self.player.play(test_window_player.schedule())
        self.player._thread.join(60)
        self.assertFalse(self.player.status().playing)
        self.player._step = step
        self.player.play(test_window_player.schedule())
        waiting.wait_for(self.favoured)
        self.assertTrue(self.player.status().playing)

    def test_shares_are_restored_after_the_thread_died(self):
        self.player.play(test_window_player.schedule())
        waiting.wait_for(self.favoured)
        self.player._step = mock.Mock(side_effect=SystemExit)
        self.player._thread.join(60)
        self.player.play(None)
        waiting.wait_for(lambda: set(self.domains.shares.values()) == {1024})
        self.assertTrue(self.player.stop())

    def test_missing_thread_is_logged_once_and_retried(self):
        with (
            mock.patch.object(
                threading.Thread, 'start', side_effect=RuntimeError('no more')
            ),
            self.assertLogs(window_player.LOG, 'ERROR') as logs,
        ):
            for _ in range(3):
                self.player.play(test_window_player.schedule())
            self.assertFalse(self.player.status().playing)
        self.assertEqual(1, len(logs.output), logs.output)
        self.player.play(test_window_player.schedule())
        waiting.wait_for(self.favoured)
