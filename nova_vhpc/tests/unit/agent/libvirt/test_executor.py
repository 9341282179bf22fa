# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Calls in order per key, side by side otherwise, never stuck."""

import threading
from collections.abc import Callable
from unittest import mock

from oslotest import base

from nova_vhpc.agent.libvirt import executor
from nova_vhpc.tests.unit import waiting


class TestDomainExecutor(base.BaseTestCase):
    def make(
        self, size: int = 2, deadline: float = 0.05
    ) -> executor.DomainExecutor:
        self.late: list[str] = []
        self.returned: list[str] = []
        pool = executor.DomainExecutor(
            size, lambda: deadline, self.late.append, self.returned.append
        )
        self.addCleanup(pool.close)
        return pool

    def test_calls_of_one_key_run_in_order(self) -> None:
        pool = self.make(4)
        seen: list[int] = []
        for number in range(200):
            pool.submit('a', lambda n=number: seen.append(n))
        self.assertTrue(pool.drain(60))
        self.assertEqual(list(range(200)), seen)

    def test_late_calls_do_not_delay_other_keys(self) -> None:
        pool = self.make(2)
        gate = threading.Event()
        for key in ('a', 'b'):
            pool.submit(key, gate.wait)
        done = threading.Event()
        pool.submit('c', done.set)
        # One of the two may begin when the other is late already.
        self.watch_until(pool, done.is_set)
        self.watch_until(pool, lambda: len(self.late) == 2)
        self.assertEqual(['a', 'b'], sorted(self.late))
        self.assertTrue(pool.is_late('a'))
        self.assertFalse(pool.drain(0.05))
        gate.set()
        self.assertTrue(pool.drain(60))
        self.assertFalse(pool.is_late('a'))

    def test_on_slow_is_called_until_slow_calls_end(self) -> None:
        was_slow: list[bool] = []
        pool = executor.DomainExecutor(
            1,
            lambda: 60.0,
            self.fail,
            on_slow=lambda: was_slow.append(pool.slow()),
        )
        self.addCleanup(pool.close)
        gate = threading.Event()
        self.addCleanup(gate.set)
        pool.submit('a', gate.wait)
        pool.watch()
        self.assertEqual([], was_slow)
        self.watch_until(pool, lambda: len(was_slow) == 3)
        self.assertEqual([True] * 3, was_slow)
        gate.set()
        self.assertTrue(pool.drain(60))
        pool.watch()
        self.assertEqual(3, len(was_slow))
        self.assertFalse(pool.slow())

    def test_extra_threads_end_when_late_calls_return(self) -> None:
        pool = self.make(1)
        before = threading.active_count()
        for _ in range(3):
            gate = threading.Event()
            pool.submit('a', gate.wait)
            waiting.wait_for(lambda: pool.watch() or pool.is_late('a'))
            gate.set()
            self.assertTrue(pool.drain(60))
        waiting.wait_for(lambda: threading.active_count() <= before)

    def test_failing_call_does_not_end_the_thread(self) -> None:
        pool = self.make(1)
        pool.submit('a', lambda: 1 // 0)
        done = threading.Event()
        pool.submit('a', done.set)
        self.assertTrue(done.wait(60))

    def test_closed_executor_refuses_calls(self) -> None:
        pool = self.make(1)
        pool.close()
        self.assertFalse(pool.submit('a', lambda: None))

    def watch_until(
        self, pool: executor.DomainExecutor, met: Callable[[], bool]
    ) -> None:
        waiting.wait_for(lambda: met() or pool.watch())

    def hang(
        self, pool: executor.DomainExecutor, count: int
    ) -> threading.Event:
        """Have so many domains hang, all beyond their deadline."""
        gate = threading.Event()
        self.addCleanup(gate.set)
        begun: list[int] = []
        for number in range(count):

            def call(number: int = number) -> None:
                begun.append(number)
                gate.wait(30)

            pool.submit(f'vm{number}', call)
        self.watch_until(pool, lambda: len(begun) == count)
        self.watch_until(pool, lambda: len(self.late) == count)
        return gate

    def test_many_hanging_calls_do_not_delay_other_keys(self) -> None:
        pool = self.make(2, deadline=0.0)
        with self.assertLogs(executor.LOG, 'WARNING') as logs:
            gate = self.hang(pool, 20)
            pool.watch()
        self.assertEqual(1, len(logs.output), logs.output)
        done = threading.Event()
        pool.submit('healthy', done.set)
        self.assertTrue(done.wait(60))
        gate.set()
        self.assertTrue(pool.drain(20))
        self.watch_until(pool, lambda: pool._threads == pool.size)

    def test_threads_are_bounded(self) -> None:
        with mock.patch.object(executor.DomainExecutor, 'MOST_LATE', 3):
            pool = self.make(2, deadline=0.0)
            gate = self.hang(pool, 5)
            for number in range(20):
                pool.submit(f'more{number}', gate.wait)
                pool.watch()
            self.assertEqual(5, pool._threads)
            gate.set()
            self.assertTrue(pool.drain(20))

    def test_watched_call_of_another_thread_is_reported_late(self) -> None:
        pool = self.make(1, deadline=0.0)
        with pool.watched('a'):
            self.watch_until(pool, lambda: self.late == ['a'])
            self.assertTrue(pool.is_late('a'))
            # It holds none of the pool's threads.
            self.assertEqual(1, pool._threads)
            self.assertEqual([], self.returned)
        self.assertFalse(pool.is_late('a'))
        self.assertEqual(['a'], self.returned)

    def test_returned_is_reported_with_the_last_late_call(self) -> None:
        pool = self.make(1, deadline=0.0)
        gate = self.hang(pool, 1)
        with pool.watched('vm0'):
            self.watch_until(pool, lambda: len(self.late) == 2)
        self.assertEqual([], self.returned)
        gate.set()
        self.assertTrue(pool.drain(20))
        self.assertEqual(['vm0'], self.returned)

    def test_thread_that_cannot_start_is_logged_once_and_retried(self) -> None:
        with (
            mock.patch.object(
                threading.Thread, 'start', side_effect=RuntimeError('no more')
            ),
            self.assertLogs(executor.LOG, 'ERROR') as logs,
        ):
            pool = self.make(2)
            pool.watch()
        self.assertEqual(1, len(logs.output), logs.output)
        pool.watch()
        done = threading.Event()
        pool.submit('a', done.set)
        self.assertTrue(done.wait(60))
