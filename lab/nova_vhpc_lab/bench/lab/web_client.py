# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Send requests to the web guest and measure the latency of its answers.

The loop is open: requests are sent at a steady rate whether or not the last
one was answered, so the load does not fall while the guest is stalled.
"""

import contextlib
import socket
import struct
import threading
import time
from typing import Self

PORT = 8080
_FORMAT = '<Qd'


class WebClient:
    """Sends requests in one thread and receives answers in another.

    :param address: IP address of the guest.
    :param interval_s: time between two requests, in seconds.
    """

    def __init__(self, address: str, interval_s: float = 0.02) -> None:
        self._address = (address, PORT)
        self._interval_s = interval_s
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(0.2)
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._latencies_ms: list[float] = []
        self._threads = [
            threading.Thread(target=self._send, daemon=True),
            threading.Thread(target=self._receive, daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def take(self) -> list[float]:
        """Return the latencies, in ms, of the answers since the last call."""
        with self._lock:
            taken, self._latencies_ms = self._latencies_ms, []
        return taken

    def _send(self) -> None:
        number = 0
        due = time.monotonic()
        while not self._end.is_set():
            number += 1
            message = struct.pack(_FORMAT, number, time.monotonic())
            # The guest may not have booted, or its queue may be full.
            with contextlib.suppress(OSError):
                self._socket.sendto(message, self._address)
            due += self._interval_s
            self._end.wait(max(0.0, due - time.monotonic()))

    def _receive(self) -> None:
        while not self._end.is_set():
            try:
                message = self._socket.recv(2048)
            except OSError:
                continue
            _, sent = struct.unpack(_FORMAT, message)
            latency_ms = (time.monotonic() - sent) * 1000
            with self._lock:
                self._latencies_ms.append(latency_ms)
