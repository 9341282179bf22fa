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


"""Stand-ins for Keystone, Glance and Neutron, in one small process.

Run as ``python -m nova_vhpc.tests.stack.standins STATE PORT``. STATE is a
directory. Its ``images.json`` maps image IDs to Glance's properties plus
``path``, the file with the content; its ``catalog.json`` is Keystone's service
catalog. The released keystonemiddleware, keystoneauth, glanceclient and
neutronclient use these stand-ins, so nova and placement have configuration
files like those of a real cloud.
"""

import datetime
import hashlib
import http.server
import json
import re
import secrets
import shutil
import sys
import threading
from pathlib import Path
from typing import Any
from urllib import parse

from nova_vhpc.tests.stack import network

USERS = {
    'admin': ('admin', 'member', 'reader'),
    'nova': ('admin', 'service'),
    'placement': ('admin', 'service'),
    # The roles that doc/source/install asks an operator to give the agent.
    'vhpc-agent': ('admin', 'service'),
    'tenant': ('member', 'reader'),
}
"""Roles of each user in the project of the same name."""

PASSWORD = 'secret'

_BASE_PROPERTIES = (
    'id',
    'name',
    'status',
    'visibility',
    'protected',
    'os_hidden',
    'tags',
    'container_format',
    'disk_format',
    'size',
    'checksum',
    'min_disk',
    'min_ram',
    'owner',
    'created_at',
    'updated_at',
    'file',
    'self',
    'schema',
)
"""Base properties of Glance's schema; all others are image properties."""


def hex_id(name: str) -> str:
    """Return an ID that looks like Keystone's, the same for the same name."""
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()


class State:
    """State of the stand-ins, shared by all requests.

    :param folder: the directory STATE.
    :param url: URL of this process.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.tokens: dict[str, dict[str, Any]] = {}
        self.network = network.Network(self._claims)
        self.lock = threading.Lock()

    def _claims(self, server: str) -> set[str]:
        token, issued = self.issue('nova')
        placement = next(
            service['endpoints'][0]['url']
            for service in issued['catalog']
            if service['type'] == 'placement'
        )
        return network.claims_in(placement, token, server)

    def images(self) -> dict[str, dict[str, Any]]:
        """Return the properties of all images, by ID."""
        return json.loads((self.folder / 'images.json').read_text())

    def issue(self, user: str) -> tuple[str, dict[str, Any]]:
        """Issue a token and return its key and content."""
        now = datetime.datetime.now(datetime.UTC)
        domain = {'id': 'default', 'name': 'Default'}
        token = {
            'methods': ['password'],
            'user': {'id': hex_id(user), 'name': user, 'domain': domain},
            'project': {'id': hex_id(user), 'name': user, 'domain': domain},
            'roles': [{'id': hex_id(r), 'name': r} for r in USERS[user]],
            'catalog': json.loads((self.folder / 'catalog.json').read_text()),
            'issued_at': now.strftime('%Y-%m-%dT%H:%M:%S.%fZ'),
            'expires_at': (now + datetime.timedelta(hours=8)).strftime(
                '%Y-%m-%dT%H:%M:%S.%fZ'
            ),
            'audit_ids': [secrets.token_urlsafe(8)],
        }
        key = secrets.token_hex(16)
        self.tokens[key] = token
        return key, token


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves requests for /v3 (Keystone), /image and /network."""

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
        query = parse.parse_qs(url.query)
        path = url.path.rstrip('/')
        if path in ('', '/v3') or path.startswith('/v3/'):
            self._identity(method, path, body)
        elif path.startswith('/image'):
            self._image(method, path.removeprefix('/image'))
        elif path.startswith('/network'):
            with self.state.lock:
                status, response = self.state.network.serve(
                    method, path.removeprefix('/network'), query, body
                )
            self._json(status, response)
        else:
            self._json(404, {'error': {'message': f'no {path}'}})

    def _identity(self, method: str, path: str, body: Any) -> None:
        version = {
            'id': 'v3.14',
            'status': 'stable',
            'links': [{'rel': 'self', 'href': f'{self.state.url}/v3'}],
            'media-types': [],
        }
        if path == '':
            self._json(300, {'versions': {'values': [version]}})
        elif path == '/v3':
            self._json(200, {'version': version})
        elif path == '/v3/auth/tokens' and method == 'POST':
            password = body['auth']['identity'].get('password', {})
            user = password.get('user', {})
            if (
                user.get('name') not in USERS
                or user.get('password') != PASSWORD
            ):
                self._json(401, {'error': {'code': 401, 'message': 'no'}})
                return
            key, token = self.state.issue(user['name'])
            self._json(201, {'token': token}, {'X-Subject-Token': key})
        elif path == '/v3/auth/tokens':
            key = self.headers.get('X-Subject-Token', '')
            token = self.state.tokens.get(key)
            if token is None:
                self._json(404, {'error': {'code': 404, 'message': 'no'}})
                return
            self._json(200, {'token': token}, {'X-Subject-Token': key})
        elif re.fullmatch('/v3/(projects|users)/[^/]+', path):
            self._json(200, {'project': {}, 'user': {}})
        else:
            self._json(404, {'error': {'code': 404, 'message': path}})

    def _image(self, method: str, path: str) -> None:
        images = self.state.images()
        match = re.fullmatch('/v2/images/([^/]+)(/file)?', path)
        if path == '/v2/images':
            shown = [self._shown(*item) for item in images.items()]
            self._json(200, {'images': shown})
        elif path == '/v2/schemas/image':
            self._json(
                200,
                {
                    'name': 'image',
                    'properties': {name: {} for name in _BASE_PROPERTIES},
                    'additionalProperties': {'type': 'string'},
                },
            )
        elif match is None or match[1] not in images:
            self._json(404, {'error': 'no such image'})
        elif match[2]:
            content = Path(images[match[1]]['path'])
            self.send_response(200)
            self.send_header('Content-Type', 'application/octet-stream')
            self.send_header('Content-Length', str(content.stat().st_size))
            self.end_headers()
            with content.open('rb') as source:
                shutil.copyfileobj(source, self.wfile)
        else:
            self._json(200, self._shown(match[1], images[match[1]]))

    @staticmethod
    def _shown(image_id: str, image: dict[str, Any]) -> dict[str, Any]:
        path = Path(image['path'])
        stamp = '2026-01-01T00:00:00Z'
        return {
            'id': image_id,
            'name': image_id,
            'status': 'active',
            'visibility': 'public',
            'protected': False,
            'os_hidden': False,
            'tags': [],
            'container_format': 'bare',
            'disk_format': 'raw',
            'size': path.stat().st_size,
            'checksum': hashlib.md5(
                path.read_bytes(), usedforsecurity=False
            ).hexdigest(),
            'min_disk': 0,
            'min_ram': 0,
            'owner': hex_id('admin'),
            'created_at': stamp,
            'updated_at': stamp,
            'file': f'/v2/images/{image_id}/file',
            'self': f'/v2/images/{image_id}',
            'schema': '/v2/schemas/image',
            **{k: v for k, v in image.items() if k != 'path'},
        }

    def _json(
        self, status: int, body: Any, headers: dict[str, str] | None = None
    ) -> None:
        data = b'' if status == 204 else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        print(format % args, flush=True)


def main() -> None:
    """Run the program."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    Handler.state = State(folder, f'http://127.0.0.1:{port}')
    server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == '__main__':
    main()
