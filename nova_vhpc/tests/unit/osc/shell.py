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

"""The plugin's commands in a shell, with openstacksdk over HTTP.

The shell is cliff's, which ``openstack`` extends; the commands are those that
``pyproject.toml`` names. The connection is openstacksdk's own; only what
answers it is of the test.
"""

import importlib
import io
import json
import logging
import pathlib
import re
import tomllib
import types
import urllib.parse

import fixtures
from cliff import app, commandmanager
from keystoneauth1 import plugin, session
from openstack import connection

from nova_vhpc.osc import plugin as osc_plugin
from nova_vhpc.tests import base, served

TOP = pathlib.Path(__file__).parents[4]

_GROUP = f'openstack.{osc_plugin.API_NAME}.v{osc_plugin.DEFAULT_API_VERSION}'


def entry_points(group=_GROUP):
    """Return the entry points of a group, as an installation has them."""
    project = tomllib.loads((TOP / 'pyproject.toml').read_text())['project']
    return project['entry-points'][group]


def load(entry_point):
    """Return what an entry point names."""
    module, _, name = entry_point.partition(':')
    return getattr(importlib.import_module(module), name)


class Cloud:
    """What answers as Nova and Placement: fixed answers, by user's right.

    A WSGI application.

    :ivar answers: decoded JSON, by path; a path may have a query, which then
        counts as well.
    :ivar refused: patterns of ``METHOD path`` that are answered 403, as by a
        policy.
    :ivar requests: method, path and body of each request.
    """

    def __init__(self):
        self.answers = {}
        self.refused = []
        self.requests = []

    def __call__(self, environ, start_response):
        path = environ['PATH_INFO'].removeprefix('/placement')
        path = path.removeprefix('/v2.1')
        query = urllib.parse.unquote(environ.get('QUERY_STRING', ''))
        whole = f'{path}?{query}' if query else path
        size = int(environ.get('CONTENT_LENGTH') or 0)
        method = environ['REQUEST_METHOD']
        body = environ['wsgi.input'].read(size) or b'null'
        self.requests.append((method, whole, json.loads(body)))
        asked = f'{method} {whole}'
        if any(re.search(pattern, asked) for pattern in self.refused):
            status, answer = '403 Forbidden', _refusal()
        elif path in ('', '/'):
            status, answer = '200 OK', _versions(environ['HTTP_HOST'])
        elif method != 'GET':
            status, answer = '200 OK', json.loads(body) or {}
        elif whole in self.answers or path in self.answers:
            answer = self.answers.get(whole, self.answers.get(path))
            status = '200 OK'
        else:
            status = '404 Not Found'
            answer = {'itemNotFound': {'message': f'{path} is unknown'}}
        start_response(status, [('Content-Type', 'application/json')])
        return [json.dumps(answer).encode()]


def _versions(host):
    version = {
        'id': 'v2.1',
        'status': 'CURRENT',
        'version': '2.103',
        'min_version': '2.1',
        'links': [{'rel': 'self', 'href': f'http://{host}/v2.1/'}],
    }
    return {'version': version, 'versions': [version]}


def _refusal():
    return {
        'forbidden': {
            'code': 403,
            'message': "Policy doesn't allow this to be performed.",
        }
    }


class _Auth(plugin.BaseAuthPlugin):
    """A login that both services accept."""

    def __init__(self, url):
        super().__init__()
        self._url = url

    def get_headers(self, session, **kwargs):
        return {'X-Auth-Token': 'secret'}

    def get_endpoint(self, session, service_type=None, **kwargs):
        if service_type == 'placement':
            return f'{self._url}placement'
        return f'{self._url}v2.1'

    def get_project_id(self, session, **kwargs):
        return 'p'


class Shell(app.App):
    """The ``openstack`` client as far as commands see it."""

    def __init__(self, sdk_connection):
        manager = commandmanager.CommandManager('test.none')
        for name, target in entry_points().items():
            manager.add_command(name.replace('_', ' '), load(target))
        self.out, self.err = io.StringIO(), io.StringIO()
        super().__init__(
            'test',
            '1',
            manager,
            stdout=self.out,
            stderr=self.err,
            deferred_help=True,
        )
        self.client_manager = types.SimpleNamespace(
            sdk_connection=sdk_connection,
            vhpc=osc_plugin.make_client(
                types.SimpleNamespace(sdk_connection=sdk_connection)
            ),
        )

    def configure_logging(self):
        """Leave the process's logging alone, unlike cliff."""


class ShellTestCase(base.TestCase):
    """Runs commands against :class:`Cloud`.

    :ivar cloud: what answers.
    """

    def setUp(self):
        super().setUp()
        self.cloud = Cloud()
        url = self.useFixture(served.Served(self.cloud)).url
        self.connection = connection.Connection(
            session=session.Session(auth=_Auth(url)),
            compute_api_version='2.1',
            compute_endpoint_override=f'{url}v2.1',
            placement_endpoint_override=f'{url}placement',
        )
        self.addCleanup(self.connection.close)

    def run_(self, *argv):
        """Run a command.

        :returns: exit status, standard output, standard error and log.
        """
        shell = Shell(self.connection)
        log = fixtures.FakeLogger(level=logging.ERROR, nuke_handlers=False)
        with log:
            status = shell.run(['vhpc', *argv])
            err = shell.err.getvalue() + log.output
        return status, shell.out.getvalue(), err

    def json(self, *argv):
        """Run a command that succeeds, and return what it prints."""
        status, out, err = self.run_(*argv, '-f', 'json')
        self.assertEqual(0, status, err)
        return json.loads(out)
