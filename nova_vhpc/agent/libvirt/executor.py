# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run libvirt calls in threads, one queue per domain.

Calls about one domain run one after the other; calls about different domains
run in parallel. A libvirt call cannot be cancelled. If it exceeds its
deadline, the call is reported as late and an extra thread takes the place of
the thread that it holds, so that calls about other domains go on; the held
thread ends when the call returns.
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
"""Duration, in seconds, from which a call may delay calls of other threads;
see :class:`.ConnectionWakeup`."""


class _Running:
    """One call in progress.

    :param key: key of the call.
    :param own: whether the call runs in a thread of the executor.
    """

    def __init__(self, key: str, own: bool) -> None:
        self.key = key
        self.own = own
        self.since = time.monotonic()
        self.late = False


class DomainExecutor:
    """A thread pool with one queue per key; a key is a domain's UUID.

    :param size: number of threads while no call is late.
    :param deadline_s: returns the longest time that a call may take, in
        seconds.
    :param on_late: called once with the key of each call that exceeds the
        deadline.
    :param on_returned: called with the key when the last late call of that
        key has returned.
    :param on_slow: called by each :meth:`watch` while a call takes longer
        than ``SLOW_S``.
    :param max_late: largest number of extra threads; ``MOST_LATE`` if None.
    :param thread_name: name of the threads.
    :ivar exhausted: whether the last :meth:`watch` found fewer threads than
        it wanted: too many calls hang, or no thread could be started.
    """

    MOST_LATE = 64
    """Largest number of extra threads for late calls. Each late call has a
    key of its own, so this many domains may hang. A waiting thread costs
    some 100 KiB."""

    def __init__(
        self,
        size: int,
        deadline_s: Callable[[], float],
        on_late: Callable[[str], None] = lambda key: None,
        on_returned: Callable[[str], None] = lambda key: None,
        on_slow: Callable[[], None] = lambda: None,
        max_late: int | None = None,
        thread_name: str = 'libvirt-worker',
    ) -> None:
        self.size = size
        self.exhausted = False
        self._max_late = self.MOST_LATE if max_late is None else max_late
        self._thread_name = thread_name
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
        self._logged_late = self._logged_short = False
        self._start_threads(size)

    def submit(self, key: str, call: Call) -> bool:
        """Queue a call behind the earlier calls of its key.

        :returns: False if the executor is closed.
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
        """Watch the deadline of a call that the calling thread makes itself.

        A late call is reported in the same way as the executor's own calls.
        """
        with self._lock:
            serial = self._begin(key, own=False)
        try:
            yield
        finally:
            self._end(serial)

    def is_late(self, key: str) -> bool:
        """Return whether a call of this key exceeds its deadline."""
        with self._lock:
            return self._is_late(key)

    def slow(self) -> bool:
        """Return whether a call takes longer than ``SLOW_S``."""
        limit = time.monotonic() - SLOW_S
        with self._lock:
            return any(one.since < limit for one in self._running.values())

    def pending(self, key: str) -> int:
        """Return the number of calls of this key that have not begun."""
        with self._lock:
            return len(self._waiting.get(key, ()))

    def watch(self) -> None:
        """Report late calls and replace their threads; call it each tick."""
        if not self._running and self._threads >= self.size:
            self.exhausted = False
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
            wanted = self.size + min(stuck, self._max_late)
            missing = 0 if self._closed else wanted - self._threads
        self._start_threads(missing)
        self.exhausted = stuck > self._max_late or self._logged_short
        self._log_hanging(stuck)
        for serial, key in late:
            self._on_late(key)
            with self._lock:
                back = serial not in self._running and not self._is_late(key)
            if back:
                # It returned between the check above and on_late().
                self._on_returned(key)

    def drain(self, timeout_s: float) -> bool:
        """Wait until all queued calls have run.

        :param timeout_s: longest time to wait, in seconds.
        :returns: whether all of them have run.
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
        """Drop the queued calls; the threads end when their call returns."""
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
                target=self._work, name=self._thread_name, daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                # The next watch() tries again.
                with self._lock:
                    self._threads -= 1
                if not self._logged_short:
                    LOG.error('Too few threads to call libvirt: %s', error)
                self._logged_short = True
                return
        if count > 0:
            self._logged_short = False

    def _log_hanging(self, stuck: int) -> None:
        """Warn once if all threads hang, until no call hangs any more."""
        if stuck >= self.size and not self._logged_late:
            self._logged_late = True
            LOG.warning(
                '%d libvirt calls hang and hold all workers; extra threads '
                'replace the workers, for at most %d calls; libvirtd itself '
                'may refuse more (max_client_requests)',
                stuck,
                self._max_late,
            )
        elif not stuck:
            self._logged_late = False

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
        """Note that a call has returned.

        :returns: whether the call was late.
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
                # Callers handle the errors of libvirt, so this is a bug of
                # the agent. It must be visible and must not end the thread.
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
