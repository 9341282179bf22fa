# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Live as a service: notify systemd, wait for signals, stop in time.

oslo.service can only send READY. The watchdog must be fed by the tick itself,
and without opening a socket each time.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any


class Notifier:
    """Sends notifications to systemd; does nothing without systemd.

    :ivar interval_s: time between two watchdog messages, in seconds; 0
        without a watchdog.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        address = os.environ.get('NOTIFY_SOCKET', '')
        if address:
            if address.startswith('@'):
                address = '\0' + address[1:]
            with contextlib.suppress(OSError):
                sock = socket.socket(
                    socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
                )
                sock.setblocking(False)
                sock.connect(address)
                self._socket = sock
        self.interval_s = _watchdog_s() / 3
        self._fed_s = 0.0

    def ready(self) -> None:
        """Notify that the service has started."""
        self._send(b'READY=1')

    def stopping(self) -> None:
        """Notify that the service is stopping."""
        self._send(b'STOPPING=1')

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send(b'STATUS=' + text.encode())

    def feed(self) -> None:
        """Feed the watchdog; called by every tick.

        Sends at most three messages per watchdog period.
        """
        if self._socket is None or self.interval_s <= 0:
            return
        now_s = time.monotonic()
        if now_s - self._fed_s >= self.interval_s:
            self._fed_s = now_s
            self._send(b'WATCHDOG=1')

    def _send(self, message: bytes) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(message)


def _watchdog_s() -> float:
    """Return the watchdog period; 0 if this process has no watchdog."""
    try:
        usec = int(os.environ.get('WATCHDOG_USEC', '0'))
        pid = int(os.environ.get('WATCHDOG_PID', os.getpid()))
    except ValueError:
        return 0.0
    return usec / 1e6 if pid == os.getpid() else 0.0


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that mean nothing to the agent, and would end it."""


class Signals:
    """Handles SIGTERM and SIGINT (shut down), and SIGHUP (reload options).

    :ivar stop_s: monotonic time of the first SIGTERM or SIGINT, in seconds;
        None before.
    """

    def __init__(self) -> None:
        self.stop_s: float | None = None
        self._stop_number = signal.SIGTERM
        self._reload = False
        # The kernel may deliver a signal to any thread; only the wake-up file
        # descriptor wakes the main thread for sure.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)

    def catch(self) -> None:
        """Install the handlers; call it in the main thread."""
        signal.set_wakeup_fd(
            self._wake_writer.fileno(), warn_on_full_buffer=False
        )
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hup)
        for number in IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        # cli.launch blocks them from the start of the process.
        signal.pthread_sigmask(
            signal.SIG_UNBLOCK,
            {*STOP_SIGNALS, signal.SIGHUP, *IGNORED_SIGNALS},
        )

    def release(self) -> None:
        """Let SIGTERM and SIGINT end the process, also one that has come."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self.stop_s is not None:
            signal.raise_signal(self._stop_number)

    def wait(self) -> bool:
        """Wait until any signal that Python handles is received.

        :returns: whether the options must be reloaded.
        """
        self._wake_reader.recv(64)
        # Cleared only after it was read: another SIGHUP may come between.
        if self._reload:
            self._reload = False
            return True
        return False

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self.stop_s is None:
            self.stop_s = time.monotonic()
            self._stop_number = signal.Signals(number)

    def _on_hup(self, number: int, frame: FrameType | None) -> None:
        self._reload = True


def stop_all(parts: Iterable[Any], end_s: float) -> list[threading.Thread]:
    """Call ``stop()`` of all parts, each in a thread.

    The threads are daemon threads: one that is still running when the
    process exits ends with it.

    :param parts: parts of the agent that have a method ``stop``.
    :param end_s: deadline on the monotonic clock, in seconds.
    :returns: the threads that are still running.
    """
    threads = [
        threading.Thread(target=part.stop, daemon=True) for part in parts
    ]
    for thread in threads:
        thread.start()
    return join_all(threads, end_s)


def join_all(
    threads: Iterable[threading.Thread], end_s: float
) -> list[threading.Thread]:
    """Wait for threads.

    :param end_s: deadline on the monotonic clock, in seconds.
    :returns: the threads that are still running.
    """
    running = []
    for thread in threads:
        thread.join(max(0.05, end_s - time.monotonic()))
        if thread.is_alive():
            running.append(thread)
    return running
