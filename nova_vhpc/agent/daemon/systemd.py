# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Notifies systemd, as a ``Type=notify`` service must.

oslo.service can only send READY. The watchdog must be fed by the tick itself,
and without opening a socket each time.
"""

import contextlib
import os
import socket
import time


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
