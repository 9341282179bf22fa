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

"""Threads that call libvirt, so that a call that hangs stops no one else.

Calls about one domain run one after the other; calls about different ones
side by side. A libvirt call cannot be cancelled: one beyond its deadline is
reported and its thread replaced, and ends whenever the call returns.
"""

import collections
import logging
import queue
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

Call = Callable[[], None]


class _Running:
    """One call in progress."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.since = time.monotonic()
        self.late = False


class Workers:
    """A small pool with one queue per key.

    :param size: number of threads.
    :param deadline_s: gives the seconds that a call may take.
    :param on_late: told the key of a call beyond its deadline, once.
    :param on_returned: told when such a call has come back after all.
    """

    SPARE = 2
    """At most this many times ``size`` threads stand in for late ones."""

    def __init__(
        self,
        size: int,
        deadline_s: Callable[[], float],
        on_late: Callable[[str], None],
        on_returned: Callable[[str], None] = lambda key: None,
    ) -> None:
        self.size = size
        self._deadline_s = deadline_s
        self._on_late = on_late
        self._on_returned = on_returned
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: dict[str, collections.deque[Call]] = {}
        self._ready: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._running: dict[int, _Running] = {}
        self._busy: set[str] = set()
        self._threads = 0
        self._serial = 0
        self._closed = False
        for _ in range(size):
            self._start_thread()

    def submit(self, key: str, call: Call) -> bool:
        """Run a call after the others of its key.

        :returns: False if the pool is closed.
        """
        with self._lock:
            if self._closed:
                return False
            waiting = self._waiting.setdefault(key, collections.deque())
            waiting.append(call)
            if key not in self._busy:
                self._busy.add(key)
                self._ready.put(key)
        return True

    def is_late(self, key: str) -> bool:
        """Whether a call of this key is beyond its deadline."""
        with self._lock:
            return any(
                running.late and running.key == key
                for running in self._running.values()
            )

    def pending(self, key: str) -> int:
        """Calls of this key that have not begun."""
        with self._lock:
            return len(self._waiting.get(key, ()))

    def watch(self) -> None:
        """Look for calls beyond their deadline. Cheap; call it each tick."""
        if not self._running:
            return
        limit = time.monotonic() - self._deadline_s()
        late: list[str] = []
        with self._lock:
            for running in self._running.values():
                if not running.late and running.since < limit:
                    running.late = True
                    late.append(running.key)
            stuck = sum(r.late for r in self._running.values())
            missing = min(self.size + stuck, self.size * (1 + self.SPARE))
            start = 0 if self._closed else max(0, missing - self._threads)
        for _ in range(start):
            self._start_thread()
        for key in late:
            self._on_late(key)

    def drain(self, timeout_s: float) -> bool:
        """Wait until all calls have run.

        :returns: False if some had not after ``timeout_s``.
        """
        end = time.monotonic() + timeout_s
        with self._lock:
            while self._busy:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._idle.wait(left)
        return True

    def close(self) -> None:
        """Take no more calls; threads end when their call returns."""
        with self._lock:
            self._closed = True
            threads = self._threads
            self._waiting.clear()
        for _ in range(threads):
            self._ready.put(None)

    def _start_thread(self) -> None:
        with self._lock:
            self._threads += 1
            self._serial += 1
            serial = self._serial
        threading.Thread(
            target=self._work,
            args=(serial,),
            name=f'libvirt-worker-{serial}',
            daemon=True,
        ).start()

    def _work(self, serial: int) -> None:
        while True:
            key = self._ready.get()
            if key is None:
                break
            with self._lock:
                waiting = self._waiting.get(key)
                call = waiting.popleft() if waiting else None
                running = _Running(key)
                self._running[serial] = running
            try:
                if call is not None:
                    call()
            except Exception:
                # Callers handle what libvirt may refuse; this is a fault of
                # ours, and must neither end the thread nor stay unseen.
                LOG.exception('A call for %s failed', key)
            if running.late:
                self._on_returned(key)
            with self._lock:
                del self._running[serial]
                if self._waiting.get(key):
                    self._ready.put(key)
                else:
                    self._waiting.pop(key, None)
                    self._busy.discard(key)
                    self._idle.notify_all()
                surplus = (
                    running.late
                    and self._threads > self.size
                    and not self._closed
                )
                if surplus:
                    self._threads -= 1
                    return
        with self._lock:
            self._threads -= 1
