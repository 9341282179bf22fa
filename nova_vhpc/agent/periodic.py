# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Run a callable again and again in a thread of its own."""

import logging
import random
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

_JITTER = 0.25
_MAX_DOUBLINGS = 16


class RetryLater(Exception):
    """Raised by a callable that failed and has logged the failure itself.

    :class:`PeriodicThread` logs nothing and retries the callable with
    back-off.
    """


class PeriodicThread:
    """Runs a callable every ``interval_s`` seconds in a daemon thread.

    A callable that raises is retried after 1, 2, 4, ... seconds, up to
    ``max_backoff_s``, each with 25% jitter so that thousands of agents do not
    reconnect in the same second. An exception other than
    :class:`RetryLater` is logged with its traceback, once until the callable
    succeeds or raises a different exception.

    :param name: name of the thread, also used in log lines.
    :param run_once: the callable.
    :param interval_s: returns the time between the end of a successful run
        and the next one, in seconds; called after each run, so that a
        reloaded option takes effect.
    :param max_backoff_s: longest time between two attempts, in seconds,
        before jitter.
    :param min_interval_s: returns the shortest time between the starts of
        two runs if :meth:`wake` asks for the second one, in seconds.
    :param wait_first: wait one interval before the first run.
    :param on_stop: called in the thread after the last run.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], None],
        interval_s: Callable[[], float],
        max_backoff_s: float = 60.0,
        min_interval_s: Callable[[], float] = lambda: 0.0,
        wait_first: bool = False,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._run_once = run_once
        self._interval_s = interval_s
        self._max_backoff_s = max_backoff_s
        self._min_interval_s = min_interval_s
        self._wait_first = wait_first
        self._on_stop = on_stop
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._logged_error = ''

    @property
    def started(self) -> bool:
        """Whether :meth:`start` was called, and :meth:`stop` was not since."""
        return self._thread is not None

    @property
    def stopping(self) -> bool:
        """Whether :meth:`stop` was called, and :meth:`start` was not since."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread; do nothing if it was started already."""
        if self._thread is not None:
            return
        # A new event each time: a previous thread that still hangs in the
        # callable must end once the callable returns.
        self._stopping = threading.Event()
        self._wake.clear()
        self._failures = 0
        self._thread = threading.Thread(
            target=self._run,
            args=(self._stopping,),
            name=self._name,
            daemon=True,
        )
        self._thread.start()

    def wake(self) -> None:
        """Run the callable now instead of at the end of the interval.

        A back-off is not shortened. A call while the callable runs makes it
        run once more. Returns at once.
        """
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Stop the thread and wait for it.

        The callable may call this itself; then nothing is waited for.

        :param timeout_s: longest time to wait, in seconds.
        :returns: whether the thread has ended.
        """
        self._stopping.set()
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self, stopping: threading.Event) -> None:
        if self._wait_first:
            self._wake.wait(self._interval_s())
        while not stopping.is_set():
            self._wake.clear()
            if stopping.is_set():
                # stop() came between the check and the clearing.
                break
            started_s = time.monotonic()
            if not self._attempt():
                stopping.wait(self._backoff_s())
            elif self._wake.wait(self._interval_s()):
                earliest_s = started_s + self._min_interval_s()
                stopping.wait(max(0.0, earliest_s - time.monotonic()))
        self._on_stop()

    def _attempt(self) -> bool:
        """Run the callable once.

        :returns: whether it succeeded.
        """
        try:
            self._run_once()
        except RetryLater:
            self._failures += 1
            return False
        except Exception as error:
            # The thread must survive whatever the callable raises: nothing
            # would start it again.
            self._failures += 1
            if repr(error) != self._logged_error:
                self._logged_error = repr(error)
                LOG.exception(
                    'Thread %s: unexpected error, will retry', self._name
                )
            return False
        if self._logged_error:
            self._logged_error = ''
            LOG.info('Thread %s: works again', self._name)
        self._failures = 0
        return True

    def _backoff_s(self) -> float:
        """Return the time to wait before the next attempt, in seconds."""
        doublings = min(self._failures - 1, _MAX_DOUBLINGS)
        backoff_s: float = min(self._max_backoff_s, 2.0**doublings)
        return backoff_s * random.uniform(1 - _JITTER, 1 + _JITTER)
