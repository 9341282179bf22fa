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
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator

LOG = logging.getLogger(__name__)

Call = Callable[[], None]

SLOW_S = 0.05
"""A call that takes longer may hold up others (:mod:`.wakeup`)."""


class _Running:
    """One call in progress.

    :param own: it runs in a thread of the pool.
    """

    def __init__(self, key: str, own: bool) -> None:
        self.key = key
        self.own = own
        self.since = time.monotonic()
        self.late = False


class DomainExecutor:
    """A small pool with one queue per key.

    :param size: number of threads.
    :param deadline_s: gives the seconds that a call may take.
    :param on_late: told the key of a call beyond its deadline, once.
    :param on_returned: told when such a call has come back after all.
    :param on_slow: told at each look as long as some call takes long.
    """

    MOST_LATE = 64
    """At most so many threads stand in for late ones. Each late call is of
    another key, so this many domains may hang; a thread that waits costs
    some 100 KiB."""

    def __init__(
        self,
        size: int,
        deadline_s: Callable[[], float],
        on_late: Callable[[str], None],
        on_returned: Callable[[str], None] = lambda key: None,
        on_slow: Callable[[], None] = lambda: None,
    ) -> None:
        self.size = size
        self._deadline_s = deadline_s
        self._on_late = on_late
        self._on_returned = on_returned
        self._on_slow = on_slow
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: dict[str, collections.deque[Call]] = {}
        self._ready: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._running: dict[int, _Running] = {}
        self._busy: set[str] = set()
        self._threads = 0
        self._serial = 0
        self._closed = False
        self._told_late = self._told_short = False
        self._start_threads(size)

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

    @contextlib.contextmanager
    def watched(self, key: str) -> Iterator[None]:
        """Have a call watched that a thread of somebody else makes.

        Its lateness is told as that of the pool's own calls.
        """
        with self._lock:
            serial = self._begin(key, own=False)
        try:
            yield
        finally:
            self._end(serial)

    def is_late(self, key: str) -> bool:
        """Whether a call of this key is beyond its deadline."""
        with self._lock:
            return self._is_late(key)

    def slow(self) -> bool:
        """Whether some call takes long."""
        limit = time.monotonic() - SLOW_S
        with self._lock:
            return any(one.since < limit for one in self._running.values())

    def pending(self, key: str) -> int:
        """Calls of this key that have not begun."""
        with self._lock:
            return len(self._waiting.get(key, ()))

    def watch(self) -> None:
        """Look for calls beyond their deadline. Cheap; call it each tick."""
        if not self._running and self._threads >= self.size:
            return
        if self.slow():
            self._on_slow()
        limit = time.monotonic() - self._deadline_s()
        late: list[tuple[int, str]] = []
        with self._lock:
            for serial, running in self._running.items():
                if not running.late and running.since < limit:
                    running.late = True
                    late.append((serial, running.key))
            stuck = sum(r.late and r.own for r in self._running.values())
            wanted = self.size + min(stuck, self.MOST_LATE)
            missing = 0 if self._closed else wanted - self._threads
        self._start_threads(missing)
        self._tell(stuck)
        for serial, key in late:
            self._on_late(key)
            with self._lock:
                back = serial not in self._running and not self._is_late(key)
            if back:
                # It came back before it was told to be late.
                self._on_returned(key)

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

    def _start_threads(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                self._threads += 1
            thread = threading.Thread(
                target=self._work, name='libvirt-worker', daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                # The next watch tries again.
                with self._lock:
                    self._threads -= 1
                if not self._told_short:
                    LOG.error('Too few threads to call libvirt: %s', error)
                self._told_short = True
                return
        if count > 0:
            self._told_short = False

    def _tell(self, stuck: int) -> None:
        """Once, until no call hangs any more."""
        if stuck >= self.size and not self._told_late:
            self._told_late = True
            LOG.warning(
                '%d libvirt calls hang, as many as there are workers: others '
                'stand in for them, for %d calls at most; libvirtd itself '
                'may take no more of them (max_client_requests)',
                stuck,
                self.MOST_LATE,
            )
        elif not stuck:
            self._told_late = False

    def _is_late(self, key: str) -> bool:
        return any(
            running.late and running.key == key
            for running in self._running.values()
        )

    def _begin(self, key: str, own: bool) -> int:
        self._serial += 1
        self._running[self._serial] = _Running(key, own)
        return self._serial

    def _end(self, serial: int) -> bool:
        """A call has returned.

        :returns: whether it was late.
        """
        with self._lock:
            running = self._running.pop(serial)
            back = running.late and not self._is_late(running.key)
        if back:
            self._on_returned(running.key)
        return running.late

    def _work(self) -> None:
        while True:
            key = self._ready.get()
            if key is None:
                break
            with self._lock:
                waiting = self._waiting.get(key)
                call = waiting.popleft() if waiting else None
                serial = self._begin(key, own=True)
            try:
                if call is not None:
                    call()
            except Exception:
                # Callers handle what libvirt may refuse; this is a fault of
                # ours, and must neither end the thread nor stay unseen.
                LOG.exception('A call for %s failed', key)
            late = self._end(serial)
            with self._lock:
                if self._waiting.get(key):
                    self._ready.put(key)
                else:
                    self._waiting.pop(key, None)
                    self._busy.discard(key)
                    self._idle.notify_all()
                if late and self._threads > self.size and not self._closed:
                    self._threads -= 1
                    return
        with self._lock:
            self._threads -= 1
