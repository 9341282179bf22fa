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

"""Calls in order per key, side by side otherwise, never stuck."""

import threading
import time

from oslotest import base

from nova_vhpc.agent import workers


class TestWorkers(base.BaseTestCase):
    def make(self, size: int = 2, deadline: float = 0.05) -> workers.Workers:
        self.late: list[str] = []
        pool = workers.Workers(size, lambda: deadline, self.late.append)
        self.addCleanup(pool.close)
        return pool

    def test_order_within_a_key(self) -> None:
        pool = self.make(4)
        seen: list[int] = []
        for number in range(200):
            pool.submit('a', lambda n=number: seen.append(n))
        self.assertTrue(pool.drain(10))
        self.assertEqual(list(range(200)), seen)

    def test_late_calls_stop_no_one_else(self) -> None:
        pool = self.make(2)
        gate = threading.Event()
        for key in ('a', 'b'):
            pool.submit(key, gate.wait)
        done = threading.Event()
        pool.submit('c', done.set)
        end = time.monotonic() + 10
        while not done.is_set() and time.monotonic() < end:
            pool.watch()
            time.sleep(0.01)
        self.assertTrue(done.is_set())
        self.assertEqual(['a', 'b'], sorted(self.late))
        self.assertTrue(pool.is_late('a'))
        self.assertFalse(pool.drain(0.05))
        gate.set()
        self.assertTrue(pool.drain(10))
        self.assertFalse(pool.is_late('a'))

    def test_late_threads_end(self) -> None:
        pool = self.make(1)
        before = threading.active_count()
        for _ in range(3):
            gate = threading.Event()
            pool.submit('a', gate.wait)
            end = time.monotonic() + 10
            while not pool.is_late('a') and time.monotonic() < end:
                pool.watch()
                time.sleep(0.01)
            gate.set()
            self.assertTrue(pool.drain(10))
        end = time.monotonic() + 10
        while threading.active_count() > before and time.monotonic() < end:
            time.sleep(0.01)
        self.assertLessEqual(threading.active_count(), before)

    def test_a_failing_call_does_not_end_the_thread(self) -> None:
        pool = self.make(1)
        pool.submit('a', lambda: 1 // 0)
        done = threading.Event()
        pool.submit('a', done.set)
        self.assertTrue(done.wait(10))

    def test_closed(self) -> None:
        pool = self.make(1)
        pool.close()
        self.assertFalse(pool.submit('a', lambda: None))
