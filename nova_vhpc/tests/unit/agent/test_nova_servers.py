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

"""What Nova says, from answers made up; a real Nova is a functional test."""

import http.server
import json
import threading
import urllib.parse
from typing import Any

from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent import nova_servers
from nova_vhpc.conf import nova_api
from nova_vhpc.tests.unit.agent import test_membership


class _Nova(http.server.BaseHTTPRequestHandler):
    """Says what it was told to say."""

    server: Any

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        if url.path == '/servers/detail':
            query = dict(urllib.parse.parse_qsl(url.query))
            self.server.asked.append(query)
            self.answer(200, self.server.pages[query.get('marker')])
        else:
            self.answer(self.server.groups[url.path.rpartition('/')[2]], {})

    def answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *arguments: Any) -> None:
        pass


class NovaServersTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.nova: Any = http.server.HTTPServer(('127.0.0.1', 0), _Nova)
        self.nova.asked, self.nova.pages, self.nova.groups = [], {}, {}
        thread = threading.Thread(target=self.nova.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.nova.server_close)
        self.addCleanup(self.nova.shutdown)
        self.conf = cfg.ConfigOpts()
        nova_api.register_opts(self.conf)
        self.conf([], project='nova-vhpc', default_config_files=[])
        self.conf.set_override('auth_type', 'none', 'vhpc_nova')
        self.conf.set_override(
            'endpoint_override',
            f'http://127.0.0.1:{self.nova.server_port}',
            'vhpc_nova',
        )
        self.servers = nova_servers.NovaServers(self.conf, 'host1')

    def pages(self, *servers: dict[str, Any]) -> None:
        marker = None
        for server in servers:
            self.nova.pages[marker] = {
                'servers': [server],
                'servers_links': [{'rel': 'next', 'href': 'x'}],
            }
            marker = server['id']
        self.nova.pages[marker] = {'servers': []}

    def test_all_pages_of_this_host(self) -> None:
        make = test_membership.server
        self.pages(
            make(id='a', scheduler_hints={'group': 'there'}),
            make(id='b', scheduler_hints={'group': 'gone'}),
            make(id='c', scheduler_hints={'group': 'secret'}),
            make(id='d', **{'OS-EXT-STS:task_state': 'migrating'}),
            make(id='not-ours', flavor={}),
        )
        self.nova.groups = {'there': 200, 'gone': 404, 'secret': 403}
        answer = self.servers.ask()
        self.assertEqual({'a', 'b', 'c', 'd'}, answer.servers)
        self.assertEqual({'a': 'there', 'c': 'secret'}, answer.clusters)
        self.assertEqual({'d'}, answer.migrating)
        self.assertEqual(6, len(self.nova.asked))
        self.assertEqual({'host1'}, {one['host'] for one in self.nova.asked})

    def test_an_answer_that_is_none(self) -> None:
        self.nova.pages[None] = {'surprise': 1}
        error = self.assertRaises(nova_servers.NovaError, self.servers.ask)
        self.assertIn('not understood', str(error))

    def test_nova_refuses(self) -> None:
        self.pages(test_membership.server(scheduler_hints={'group': 'g'}))
        self.nova.groups = {'g': 401}
        self.assertRaises(nova_servers.NovaError, self.servers.ask)

    def test_unusable_options(self) -> None:
        self.conf.set_override('auth_type', 'magic', 'vhpc_nova')
        error = self.assertRaises(nova_servers.NovaError, self.servers.ask)
        self.assertIn('magic', str(error))
