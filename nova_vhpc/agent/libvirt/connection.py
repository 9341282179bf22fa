# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The connection to libvirt: opened, watched, and opened again.

With what it says of a domain that ends or migrates.
"""

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import libvirt
import tenacity

LOG = logging.getLogger(__name__)

KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_COUNT = 3
"""A connection to a libvirtd that hangs ends after about (count + 1)
intervals: all calls fail, and the agent reconnects."""

FIRST_PAUSE_S = 0.2

SILENCE_S = 10.0
"""Time, in seconds, after which an unanswered attempt to connect is logged:
there is no keep-alive before libvirtd has answered."""

_event_loop_lock = threading.Lock()
_event_loop_runs = False


def start_event_loop() -> None:
    """Run libvirt's event loop in a thread; required before any open."""
    global _event_loop_runs
    with _event_loop_lock:
        if _event_loop_runs:
            return
        _event_loop_runs = True
        # libvirt also prints each error to stderr; the exceptions suffice.
        libvirt.registerErrorHandler(lambda context, error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(
            target=_run_events, name='libvirt-events', daemon=True
        ).start()


def _run_events() -> None:
    while True:
        if libvirt.virEventRunDefaultImpl() < 0:
            LOG.error("libvirt's event loop failed; events may be missed")
            threading.Event().wait(1.0)


class AwayError(libvirt.libvirtError):
    """libvirt is not connected, or does not answer."""

    def __init__(self, text: str) -> None:
        # libvirtError() would take message and code from the last call that
        # failed in this thread, for example "domain not found".
        Exception.__init__(self, text)
        self.err = None


class Connection:
    """Keeps one libvirt connection open.

    :param uri: libvirt URI.
    :param on_up: called with each new connection, in this class's thread.
    :param max_pause_s: longest pause between two attempts, in seconds.
    :ivar reconnects: number of lost connections.
    """

    def __init__(
        self,
        uri: str,
        on_up: Callable[[Any], None],
        max_pause_s: float = 30.0,
    ) -> None:
        self.uri = uri
        self.reconnects = 0
        self._on_up = on_up
        self._max_pause_s = max_pause_s
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._lost = threading.Event()
        self._conn: Any = None
        self._failure_logged = False
        self._silence_logged = False
        self._thread = threading.Thread(
            target=self._run, name='libvirt-connection', daemon=True
        )

    @property
    def up(self) -> bool:
        """Whether libvirt is connected."""
        return self._conn is not None

    def get(self) -> Any:
        """Return the connection.

        :raises AwayError: libvirt is not connected; a libvirt.libvirtError.
        """
        conn = self._conn
        if conn is None:
            raise AwayError(f'no connection to {self.uri}')
        return conn

    def runs(self, uuid: str, run: int) -> bool:
        """Return whether the given run of a domain still runs.

        libvirt calls identify a domain by its UUID only; after a restart
        they reach the new run.

        :param run: libvirt's domain ID of the run.
        :raises libvirt.libvirtError: libvirt cannot say.
        """
        return bool(self.get().lookupByUUIDString(uuid).ID() == run)

    def start(self) -> None:
        """Start the thread that connects."""
        start_event_loop()
        self._thread.start()

    def hurry(self) -> None:
        """Retry at once and with short pauses, because the agent ends soon."""
        self._hurry.set()

    def stop(self) -> None:
        """Stop connecting. An open connection ends with the process."""
        self._stop.set()
        self._hurry.set()
        self._lost.set()

    def failed(self, error: libvirt.libvirtError) -> None:
        """Reconnect if a failed call means that the connection is dead."""
        conn = self._conn
        if conn is not None and is_connection_error(error):
            try:
                alive = bool(conn.isAlive())
            except libvirt.libvirtError:
                alive = False
            if not alive:
                self._lost.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            retry = tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(libvirt.libvirtError),
                wait=tenacity.wait_random_exponential(
                    multiplier=FIRST_PAUSE_S, max=self._max_pause_s
                ),
                before_sleep=self._note_failure,
                sleep=lambda seconds: self._wait(seconds),
                stop=tenacity.stop_when_event_set(self._stop),
                reraise=True,
            )
            try:
                conn = retry(self._open)
            except libvirt.libvirtError:
                return
            self._failure_logged = self._silence_logged = False
            self._conn = conn
            LOG.info('libvirt at %s: connected', self.uri)
            try:
                self._on_up(conn)
            except libvirt.libvirtError as error:
                LOG.warning(
                    'libvirt at %s: lost while starting: %s', self.uri, error
                )
                self._failure_logged = True
                self._lost.set()
            self._lost.wait()
            self._conn = None
            if self._stop.is_set():
                return
            _let_go(conn)
            del conn
            self.reconnects += 1
            if not self._failure_logged:
                LOG.warning(
                    'libvirt at %s: connection lost; trying again with '
                    'pauses of up to %g s',
                    self.uri,
                    self._max_pause_s,
                )
                self._failure_logged = True

    def _wait(self, seconds: float) -> None:
        if self._hurry.wait(seconds):
            self._stop.wait(min(seconds, FIRST_PAUSE_S))

    def _open(self) -> Any:
        # A close callback of the old connection must not end the new one.
        lost = threading.Event()
        silence = threading.Timer(SILENCE_S, self._note_silence)
        silence.daemon = True
        silence.start()
        try:
            # Without a timeout, because further attempts would hang, too, and
            # each would hold one more thread.
            conn = libvirt.open(self.uri)
        finally:
            silence.cancel()
            # Joined, so that a warning of this attempt cannot set the flag
            # after the success has cleared it, and suppress the next warning.
            silence.join()
        try:
            conn.setKeepAlive(KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT)
        except libvirt.libvirtError:
            LOG.debug('%s has no keep-alive', self.uri)
        self._lost = lost
        if self._stop.is_set():
            lost.set()
        try:
            conn.registerCloseCallback(
                lambda _conn, _reason, _opaque: lost.set(), None
            )
        except libvirt.libvirtError:
            LOG.debug('%s does not report a close', self.uri)
        return conn

    def _note_silence(self) -> None:
        # Logged also after "connection lost", by which a libvirtd that hangs
        # mostly shows first.
        if self._silence_logged or self._stop.is_set():
            return
        self._silence_logged = True
        LOG.warning(
            'libvirt at %s: does not answer; does it hang? Waiting for it',
            self.uri,
        )

    def _note_failure(self, state: tenacity.RetryCallState) -> None:
        if self._failure_logged:
            return
        self._failure_logged = True
        error = state.outcome.exception() if state.outcome else None
        LOG.warning(
            'libvirt at %s: not reachable (%s); trying again with pauses '
            'of up to %g s',
            self.uri,
            error,
            self._max_pause_s,
        )


def _let_go(conn: Any) -> None:
    """Unregister all callbacks of a lost connection.

    Callbacks keep the connection object, its descriptor and its memory alive
    for ever. The connection is not closed: a call in another thread may still
    be about to fail on it.
    """
    calls: list[Callable[[], Any]] = [conn.unregisterCloseCallback]
    for number in tuple(conn.domainEventCallbackID):
        calls.append(functools.partial(conn.domainEventDeregisterAny, number))
    for call in calls:
        # libvirtd does not answer, but the client has unregistered the
        # callback before it notices.
        with contextlib.suppress(libvirt.libvirtError):
            call()
    conn.domainEventCallbackID.clear()


def is_connection_error(error: libvirt.libvirtError) -> bool:
    """Return whether an error may mean that the connection is lost."""
    return error.get_error_code() in (
        None,
        libvirt.VIR_ERR_INTERNAL_ERROR,
        libvirt.VIR_ERR_SYSTEM_ERROR,
        libvirt.VIR_ERR_RPC,
        libvirt.VIR_ERR_NO_CONNECT,
        libvirt.VIR_ERR_INVALID_CONN,
    )


def is_gone(error: libvirt.libvirtError) -> bool:
    """Return whether an error may mean that the domain does not run."""
    return error.get_error_code() in (
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_OPERATION_INVALID,
    )


def has_ended(domain: Any, error: libvirt.libvirtError) -> bool:
    """Return whether a call failed because its domain stopped or left."""
    if not is_gone(error):
        return False
    try:
        # "Operation invalid" has other reasons, too.
        return not domain.isActive()
    except libvirt.libvirtError as other:
        return bool(other.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)


def open_within(
    uri: str, timeout_s: float, connect: Callable[[str], Any] | None = None
) -> Any:
    """Connect to libvirt, with a limit on the time that it may take.

    ``libvirt.open`` itself waits without limit for a libvirtd that hangs.

    :param timeout_s: longest time to wait, in seconds.
    :param connect: opens the connection; ``libvirt.open`` if None.
    :raises libvirt.libvirtError: the connection was refused.
    :raises AwayError: libvirtd did not answer in time.
    """
    answer: queue.SimpleQueue[tuple[Any, libvirt.libvirtError | None]] = (
        queue.SimpleQueue()
    )

    def call() -> None:
        try:
            answer.put(((connect or libvirt.open)(uri), None))
        except libvirt.libvirtError as error:
            answer.put((None, error))

    threading.Thread(target=call, name='libvirt-open', daemon=True).start()
    try:
        conn, error = answer.get(timeout=max(0.0, timeout_s))
    except queue.Empty:
        raise AwayError(f'{uri} does not answer; does it hang?') from None
    if error is not None:
        raise error
    return conn


def is_leaving(domain: Any) -> bool:
    """Return whether a job migrates the domain to another host.

    Any unbounded job counts: libvirt reports the kind of a job only in
    statistics for which it must query QEMU.

    :raises libvirt.libvirtError: libvirt cannot say.
    """
    kind = domain.jobInfo()[0]
    return bool(kind == libvirt.VIR_DOMAIN_JOB_UNBOUNDED)


def is_arriving(domain: Any) -> bool:
    """Return whether the domain is still being migrated to this host.

    Until the migration ends, libvirt delays writes to the domain, or they
    time out.

    :raises libvirt.libvirtError: libvirt cannot say.
    """
    try:
        domain.jobInfo()
    except libvirt.libvirtError as error:
        # Only the source host has the statistics of the job.
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_UNSUPPORTED:
            return True
        raise
    return False


WAKEUP_PAUSE_S = 0.02
"""Pause between two small calls, in seconds."""


class ConnectionWakeup:
    """Makes small libvirt calls while other calls take long.

    Of all threads that call over one connection, the first one sends and
    receives for all threads until its own answer arrives. Just after it has
    received the answer to another thread's call, it may miss that thread's
    next call, which is then sent with the next keep-alive message, due within
    two seconds. Beside one call that hangs, another thread completed 1 to 4
    calls in two seconds (libvirt 9.0). With small calls of a third thread, as
    made here, it completes hundreds.

    :param connection: returns libvirt's connection, or raises libvirtError.
    :param wanted: returns whether a call takes long.
    """

    def __init__(
        self, connection: Callable[[], Any], wanted: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Start small calls in a thread if they are wanted; return at once."""
        self._wake.set()
        with self._lock:
            if self._thread is not None:
                return
            self._thread = threading.Thread(
                target=self._run, name='libvirt-wakeup', daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:
                # No thread available; the next wake() tries again.
                self._thread = None

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            try:
                while self._wanted():
                    self._connection().getLibVersion()
                    time.sleep(WAKEUP_PAUSE_S)
            except libvirt.libvirtError:
                # The connection is lost, so the call that hung has failed.
                continue
