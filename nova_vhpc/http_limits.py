# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Limits of a small HTTP server: clients at a time, and time for a request.

The servers of the standard library give each client a thread for as long as
the client likes, so that slow clients could take any number of them. Here
further clients wait in the listen queue until one has its answer, and one that
is disconnected is told why.
"""

import contextlib
import io
import select
import socket
import socketserver
import threading
import time
from typing import Any
from wsgiref import simple_server

MAX_BODY_BYTES = 1 << 20
"""Largest body that is read. Nova's request for vendordata includes the user
data, up to 64 KiB in base64."""

MOST_CLIENTS = 128
"""Most clients at a time of ``nova-vhpc-vendordata``."""

_WAIT_S = 0.1
"""Longest time for which a server waits for a place before it looks whether it
is to end, in seconds."""

_TIMEOUT = 408, 'Request Timeout', 'the request did not arrive in time'
_BUSY = 503, 'Service Unavailable', 'too many clients; ask again'

_MOST_LINES = 100
_LONGEST_LINE = 65_537
"""As the standard library: more lines, or longer ones, are refused by it."""

_Refusal = tuple[int, str, str]


class Clients:
    """The clients of one server.

    :param most: most clients at a time.
    :param receive_s: longest time for a client to send its request, in
        seconds.
    :param grace_s: time to send it for which a client keeps its place although
        another one waits, in seconds.
    """

    def __init__(
        self, most: int, receive_s: float, grace_s: float = 1.0
    ) -> None:
        self._most = most
        self._receive_s = receive_s
        self._grace_s = grace_s
        self._changed = threading.Condition()
        self._served: set[socket.socket] = set()
        # Those that are still sending, longest first, and since when.
        self._sending: dict[socket.socket, float] = {}
        self._refused: dict[socket.socket, _Refusal] = {}

    def guard(self, server: socketserver.TCPServer) -> None:
        """Have a server accept a client only if there is a place for it."""
        accept, close = server.get_request, server.close_request

        def get_request() -> Any:
            if not self._wait_for_place():
                # The server then goes on as if the client had gone.
                raise BlockingIOError
            connection, address = accept()
            with self._changed:
                self._served.add(connection)
                self._sending[connection] = time.monotonic()
            return connection, address

        def close_request(request: Any) -> None:
            with self._changed:
                self._served.discard(request)
                self._sending.pop(request, None)
                self._refused.pop(request, None)
                self._changed.notify()
            close(request)

        # Not a subclass: prometheus_client makes its server itself.
        server.get_request = get_request  # type: ignore[method-assign]
        server.close_request = close_request  # type: ignore[method-assign]

    def received(self, connection: socket.socket) -> None:
        """Take note that a client has sent all of its request."""
        with self._changed:
            self._sending.pop(connection, None)

    def expire(self) -> None:
        """Disconnect the clients that send for too long."""
        with self._changed:
            self._refuse_senders(self._receive_s, len(self._sending), _TIMEOUT)

    def refusal(self, connection: socket.socket) -> _Refusal | None:
        """Return why a client is disconnected; None if it is not."""
        with self._changed:
            return self._refused.get(connection)

    def _wait_for_place(self) -> bool:
        """Wait for a place, if need be that of a client that sends nothing."""
        with self._changed:
            if len(self._served) >= self._most:
                self._refuse_senders(self._grace_s, 1, _BUSY)
                self._changed.wait(_WAIT_S)
            return len(self._served) < self._most

    def _refuse_senders(
        self, age_s: float, most: int, refusal: _Refusal
    ) -> None:
        """Disconnect clients that have been sending for long, and pause.

        What a client has sent already may wait for the client's thread.
        """
        latest = time.monotonic() - age_s
        late = [one for one, since in self._sending.items() if since <= latest]
        poll = select.poll()
        for connection in late:
            poll.register(connection, select.POLLIN)
        readable = {descriptor for descriptor, _ in poll.poll(0)}
        silent = [one for one in late if one.fileno() not in readable]
        for connection in silent[:most]:
            del self._sending[connection]
            self._refused[connection] = refusal
            # Not closed: its thread reads from it, and ends by this.
            # TLS would forget its keys by its own method.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RD)


class LimitedHandler(simple_server.WSGIRequestHandler):
    """Answers one client, in a thread of its own.

    The clients must guard the server, which must call :meth:`Clients.expire`
    every now and then.

    :cvar timeout: time to wait for a silent client, in seconds.
    :cvar clients: set by each subclass.
    """

    timeout = 10
    clients: Clients

    def handle(self) -> None:
        """Answer; a client that is gone is not worth a log line."""
        with contextlib.suppress(OSError):
            try:
                super().handle()
            except TimeoutError:
                self._refuse(_TIMEOUT)
            except OSError:
                self._is_refused()

    def parse_request(self) -> bool:
        """Read the request with its body, so that the application need not.

        A larger body than allowed is not read; its length is for the
        application to refuse.
        """
        connection = self.rfile
        lines = [self.raw_requestline]
        while lines[-1].strip() and len(lines) <= _MOST_LINES:
            lines.append(connection.readline(_LONGEST_LINE))
        # The thread of a client that is refused may have read all already.
        if not lines[-1].endswith(b'\n') and self._is_refused():
            return False
        self.rfile = io.BytesIO(b''.join(lines[1:]))
        if not super().parse_request():
            return False
        size = 0
        with contextlib.suppress(ValueError):
            size = int(self.headers.get('Content-Length', ''))
        body = b''
        if 0 < size <= MAX_BODY_BYTES:
            # The application refuses half a body.
            with contextlib.suppress(TimeoutError):
                body = connection.read(size)
            if len(body) < size and self._is_refused():
                return False
        connection.close()
        self.rfile = io.BytesIO(body)
        self.clients.received(self.connection)
        return True

    def log_message(self, *args: Any) -> None:
        """Log nothing: requests are frequent."""

    def _is_refused(self) -> bool:
        refusal = self.clients.refusal(self.connection)
        if refusal is not None:
            self._refuse(refusal)
        return refusal is not None

    def _refuse(self, refusal: _Refusal) -> None:
        """Tell a client why it is disconnected."""
        status, phrase, reason = refusal
        body = f'{reason}\n'.encode()
        self.wfile.write(
            f'HTTP/1.0 {status} {phrase}\r\nRetry-After: 1\r\n'
            'Content-Type: text/plain\r\nConnection: close\r\n'
            f'Content-Length: {len(body)}\r\n\r\n'.encode()
            + body
        )
