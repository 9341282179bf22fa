# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A TLS proxy with a certificate of an authority that nobody knows."""

import contextlib
import functools
import http.client
import http.server
import ssl
import threading
from pathlib import Path
from typing import Any

import fixtures

from nova_vhpc.tests import certificates


class TlsProxy(fixtures.Fixture):
    """Passes requests that arrive by TLS on to a port of this machine.

    :param port: the port that is connected to.
    :ivar port: the port that speaks TLS.
    :ivar authority: file of the certificate, which is its own authority.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._target = port
        self.port = 0
        self.authority = Path()

    def _setUp(self) -> None:
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.authority = folder / 'ca.pem'
        key_file = folder / 'key.pem'
        certificates.write(self.authority, key_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, key_file)
        server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), functools.partial(_Handler, self._target)
        )
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Passes each request on to a port, and the response back."""

    def __init__(self, port: int, *args: Any) -> None:
        self._port = port
        super().__init__(*args)

    def do_GET(self) -> None:
        length = int(self.headers.get('Content-Length') or 0)
        connection = http.client.HTTPConnection('127.0.0.1', self._port)
        with contextlib.closing(connection):
            connection.request(
                self.command,
                self.path,
                self.rfile.read(length),
                dict(self.headers),
            )
            response = connection.getresponse()
            body = response.read()
        self.send_response(response.status)
        for name, value in response.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to stderr."""
