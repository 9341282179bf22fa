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


"""Serve the stand-in for Neutron.

Run as ``python -m nova_vhpc.tests.stack.standins CREDENTIALS PORT``.
CREDENTIALS is a JSON file with keystoneauth's options of a user who may read
allocations, and Placement's URL.
"""

import http.server
import json
import sys
import threading
from pathlib import Path
from typing import Any
from urllib import parse

from keystoneauth1 import session
from keystoneauth1.identity import v3

from nova_vhpc.tests.stack import network


class State:
    """State of the stand-in, shared by all requests.

    :param credentials: the file CREDENTIALS.
    """

    def __init__(self, credentials: Path) -> None:
        options = json.loads(credentials.read_text())
        options.pop('auth_type')
        self._placement = options.pop('placement')
        self._session = session.Session(auth=v3.Password(**options))
        self.network = network.Network(self._claims)
        self.lock = threading.Lock()

    def _claims(self, server: str) -> set[str]:
        token = self._session.get_token()
        return network.claims_in(self._placement, token, server)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves requests for /network."""

    protocol_version = 'HTTP/1.1'
    state: State

    def do_GET(self) -> None:
        self._serve('GET')

    def do_HEAD(self) -> None:
        self._serve('GET')

    def do_POST(self) -> None:
        self._serve('POST')

    def do_PUT(self) -> None:
        self._serve('PUT')

    def do_DELETE(self) -> None:
        self._serve('DELETE')

    def _serve(self, method: str) -> None:
        length = int(self.headers.get('Content-Length') or 0)
        data = self.rfile.read(length)
        body = json.loads(data) if data else {}
        url = parse.urlsplit(self.path)
        path = url.path.rstrip('/').removeprefix('/network')
        with self.state.lock:
            status, response = self.state.network.serve(
                method, path, parse.parse_qs(url.query), body
            )
        self._json(status, response)

    def _json(self, status: int, body: Any) -> None:
        data = b'' if status == 204 else json.dumps(body).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        print(format % args, flush=True)


def main() -> None:
    """Run the program."""
    credentials, port = Path(sys.argv[1]), int(sys.argv[2])
    Handler.state = State(credentials)
    server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == '__main__':
    main()
