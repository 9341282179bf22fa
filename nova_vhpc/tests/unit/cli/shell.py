# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Commands against openstacksdk's own connection, over HTTP.

Only what answers the connection is of the test.
"""

import json
import re
import urllib.parse

from keystoneauth1 import plugin, session
from openstack import connection

from nova_vhpc.tests import base, osc_shell, served


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
        return osc_shell.run(self.connection, *argv)

    def json(self, *argv):
        """Run a command that succeeds, and return what it prints."""
        status, out, err = self.run_(*argv, '-f', 'json')
        self.assertEqual(0, status, err)
        return json.loads(out)
