# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.periodic`."""

import threading
import time
from unittest import mock

from oslotest import base

from nova_vhpc.agent import periodic
from nova_vhpc.tests.unit import waiting


class PeriodicThreadTest(base.BaseTestCase):
    def make(self, run_once, interval_s=60.0, **options):
        thread = periodic.PeriodicThread(
            'test', run_once, lambda: interval_s, **options
        )
        self.addCleanup(thread.stop, 5.0)
        return thread

    def counter(self, runs, error=None):
        """Return a callable that records its runs, and an event per count."""
        times_s = []
        reached = threading.Event()

        def run_once():
            times_s.append(time.monotonic())
            if len(times_s) >= runs:
                reached.set()
            if error is not None:
                raise error

        return run_once, times_s, reached

    def test_callable_runs_at_start_and_every_interval(self) -> None:
        run_once, _, reached = self.counter(3)
        self.make(run_once, 0.01).start()
        self.assertTrue(reached.wait(waiting.PATIENCE_S))

    def test_wait_first_delays_the_first_run(self) -> None:
        run_once, times_s, _ = self.counter(1)
        thread = self.make(run_once, wait_first=True)
        thread.start()
        self.assertTrue(thread.stop(waiting.PATIENCE_S))
        self.assertEqual([], times_s)

    def test_wake_ends_the_interval(self) -> None:
        run_once, times_s, reached = self.counter(2)
        thread = self.make(run_once)
        thread.start()
        waiting.wait_for(lambda: times_s)
        thread.wake()
        self.assertTrue(reached.wait(waiting.PATIENCE_S))

    def test_wake_during_a_run_causes_another_run(self) -> None:
        runs = []
        reached = threading.Event()

        def run_once():
            runs.append(1)
            if len(runs) == 1:
                thread.wake()
            else:
                reached.set()

        thread = self.make(run_once)
        thread.start()
        self.assertTrue(reached.wait(waiting.PATIENCE_S))

    def test_wake_respects_the_minimum_interval(self) -> None:
        run_once, times_s, reached = self.counter(2)
        thread = self.make(run_once, min_interval_s=lambda: 0.2)
        thread.start()
        waiting.wait_for(lambda: times_s)
        thread.wake()
        self.assertTrue(reached.wait(waiting.PATIENCE_S))
        self.assertGreaterEqual(times_s[1] - times_s[0], 0.2)

    def test_wake_does_not_shorten_the_back_off(self) -> None:
        run_once, times_s, _ = self.counter(2, periodic.RetryLater())
        thread = self.make(run_once)
        thread.start()
        waiting.wait_for(lambda: times_s)
        while time.monotonic() < times_s[0] + 0.2:
            thread.wake()
            time.sleep(0.01)
        # The back-off is 0.75 to 1.25 s.
        first_s, *later_s = times_s
        self.assertEqual([], [s for s in later_s if s - first_s < 0.75])

    def test_back_off_doubles_up_to_the_maximum(self) -> None:
        thread = self.make(mock.Mock(side_effect=periodic.RetryLater))
        backoffs_s = []
        with mock.patch.object(periodic.random, 'uniform', return_value=1.0):
            for _ in range(9):
                thread._attempt()
                backoffs_s.append(thread._backoff_s())
        self.assertEqual([1, 2, 4, 8, 16, 32, 60, 60, 60], backoffs_s)

    def test_back_off_has_jitter_of_a_quarter(self) -> None:
        thread = self.make(mock.Mock(side_effect=periodic.RetryLater))
        thread._attempt()
        backoffs_s = {thread._backoff_s() for _ in range(100)}
        self.assertGreater(len(backoffs_s), 1)
        self.assertTrue(all(0.75 <= one <= 1.25 for one in backoffs_s))

    def test_success_resets_the_back_off(self) -> None:
        retry = periodic.RetryLater
        thread = self.make(mock.Mock(side_effect=[retry, retry, None, retry]))
        for _ in range(4):
            thread._attempt()
        with mock.patch.object(periodic.random, 'uniform', return_value=1.0):
            self.assertEqual(1, thread._backoff_s())

    def test_unexpected_error_is_logged_once_until_success(self) -> None:
        error = RuntimeError('boom')
        thread = self.make(
            mock.Mock(side_effect=[error, error, None, error, ValueError()])
        )
        with mock.patch.object(periodic.LOG, 'exception') as log:
            self.assertFalse(thread._attempt())
            self.assertFalse(thread._attempt())
            self.assertEqual(1, log.call_count)
            self.assertTrue(thread._attempt())
            thread._attempt()
            self.assertEqual(2, log.call_count)
            thread._attempt()
            self.assertEqual(3, log.call_count)

    def test_retry_later_is_not_logged(self) -> None:
        thread = self.make(mock.Mock(side_effect=periodic.RetryLater))
        with mock.patch.object(periodic, 'LOG') as log:
            self.assertFalse(thread._attempt())
        self.assertEqual([], log.mock_calls)

    def test_stop_reports_a_callable_that_hangs(self) -> None:
        entered, release = threading.Event(), threading.Event()

        def run_once():
            entered.set()
            release.wait(waiting.PATIENCE_S)

        thread = self.make(run_once)
        thread.start()
        entered.wait(waiting.PATIENCE_S)
        self.assertFalse(thread.stop(0.01))
        self.assertTrue(thread.stopping)
        release.set()

    def test_stop_before_start_reports_success(self) -> None:
        self.assertTrue(self.make(lambda: None).stop(1.0))

    def test_callable_may_stop_its_own_thread(self) -> None:
        runs = []

        def run_once():
            runs.append(1)
            thread.stop(waiting.PATIENCE_S)
            ended.set()

        ended = threading.Event()
        thread = self.make(run_once, 0.001)
        thread.start()
        self.assertTrue(ended.wait(waiting.PATIENCE_S))
        time.sleep(0.02)
        self.assertEqual([1], runs)

    def test_on_stop_runs_after_the_last_run(self) -> None:
        calls = []
        thread = self.make(
            lambda: calls.append('run'), on_stop=lambda: calls.append('stop')
        )
        thread.start()
        waiting.wait_for(lambda: calls)
        self.assertTrue(thread.stop(waiting.PATIENCE_S))
        self.assertEqual(['run', 'stop'], calls)

    def test_stopped_thread_can_be_started_again(self) -> None:
        run_once, times_s, reached = self.counter(2)
        thread = self.make(run_once)
        thread.start()
        waiting.wait_for(lambda: times_s)
        self.assertTrue(thread.stop(waiting.PATIENCE_S))
        thread.start()
        self.assertTrue(reached.wait(waiting.PATIENCE_S))
