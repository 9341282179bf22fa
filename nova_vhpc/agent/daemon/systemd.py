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

"""What systemd wants to hear from a ``Type=notify`` service.

oslo.service says READY only; the watchdog must be fed by the tick itself,
without a socket made anew each time.
"""

import contextlib
import os
import socket
import time


class Notifier:
    """Talks to systemd; does nothing without one."""

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
        self._fed_at = 0.0

    def ready(self) -> None:
        """The service is up."""
        self._send(b'READY=1')

    def stopping(self) -> None:
        """The service goes down."""
        self._send(b'STOPPING=1')

    def status(self, text: str) -> None:
        """One line for ``systemctl status``."""
        self._send(b'STATUS=' + text.encode())

    def feed(self) -> None:
        """The tick works. Sends three times per watchdog period."""
        if self._socket is None or self.interval_s <= 0:
            return
        now = time.monotonic()
        if now - self._fed_at >= self.interval_s:
            self._fed_at = now
            self._send(b'WATCHDOG=1')

    def _send(self, message: bytes) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(message)


def _watchdog_s() -> float:
    """Period of the watchdog; 0 without one for this process."""
    try:
        usec = int(os.environ.get('WATCHDOG_USEC', '0'))
        pid = int(os.environ.get('WATCHDOG_PID', os.getpid()))
    except ValueError:
        return 0.0
    return usec / 1e6 if pid == os.getpid() else 0.0
