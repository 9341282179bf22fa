# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Limits of a small HTTP server: clients at a time, and time for a request.

The servers of the standard library give each client a thread for as long as
the client likes, so that slow clients could take any number of them.
"""

import contextlib
import io
import socket
import threading
import time
from typing import Any
from wsgiref import simple_server

MAX_BODY_BYTES = 1 << 20
"""Largest body that is read. Nova's request for vendordata includes the user
data, up to 64 KiB in base64."""


class Clients:
    """The clients of one server.

    :param most: most clients at a time.
    :param receive_s: longest time for a client to send its request, in
        seconds.
    """

    def __init__(self, most: int, receive_s: float) -> None:
        self._most = most
        self._receive_s = receive_s
        self._lock = threading.Lock()
        self._served: set[LimitedHandler] = set()
        # Those that are still sending, longest first, and since when.
        self._sending: dict[LimitedHandler, float] = {}

    def enter(self, handler: 'LimitedHandler') -> bool:
        """Take a client in, if need be in place of the slowest other one.

        :returns: False if all others have sent their requests, and wait for
            the answers.
        """
        with self._lock:
            if len(self._served) >= self._most:
                slowest = next(iter(self._sending), None)
                if slowest is None:
                    return False
                self._disconnect(slowest)
            self._served.add(handler)
            self._sending[handler] = time.monotonic()
        return True

    def received(self, handler: 'LimitedHandler') -> None:
        """Take note that a client has sent all of its request."""
        with self._lock:
            self._sending.pop(handler, None)

    def leave(self, handler: 'LimitedHandler') -> None:
        """Take note that a client is served, or gone."""
        with self._lock:
            self._served.discard(handler)
            self._sending.pop(handler, None)

    def expire(self) -> None:
        """Disconnect the clients that send for too long."""
        with self._lock:
            latest = time.monotonic() - self._receive_s
            for handler, since in list(self._sending.items()):
                if since > latest:
                    return
                self._disconnect(handler)

    def _disconnect(self, handler: 'LimitedHandler') -> None:
        self._served.discard(handler)
        del self._sending[handler]
        # Not closed: its thread reads from it, and ends by this.
        with contextlib.suppress(OSError):
            handler.connection.shutdown(socket.SHUT_RDWR)


class LimitedHandler(simple_server.WSGIRequestHandler):
    """Answers one client, in a thread of its own.

    The server must call :meth:`Clients.expire` every now and then.

    :cvar timeout: time to wait for a silent client, in seconds.
    :cvar clients: set by each subclass.
    """

    timeout = 10
    clients: Clients

    def handle(self) -> None:
        """Answer, unless there are too many clients."""
        if not self.clients.enter(self):
            return
        try:
            # A client that is silent or gone is not worth a log line.
            with contextlib.suppress(OSError):
                super().handle()
        finally:
            self.clients.leave(self)

    def parse_request(self) -> bool:
        """Read the request with its body, so that the application need not.

        A larger body than allowed is not read; its length is for the
        application to refuse.
        """
        if not super().parse_request():
            return False
        size = 0
        with contextlib.suppress(ValueError):
            size = int(self.headers.get('Content-Length', ''))
        body = b''
        if 0 < size <= MAX_BODY_BYTES:
            # The application refuses half a body.
            with contextlib.suppress(TimeoutError):
                body = self.rfile.read(size)
        self.rfile.close()
        self.rfile = io.BytesIO(body)
        self.clients.received(self)
        return True

    def log_message(self, *args: Any) -> None:
        """Log nothing: requests are frequent."""
