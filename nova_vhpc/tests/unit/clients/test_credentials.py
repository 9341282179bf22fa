# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Logging in to a Keystone that requires a token for its versions."""

import argparse
import concurrent.futures
import http.server
import json
import logging
import pathlib
import threading

import fixtures
from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import session as ksa_session
from oslo_config import cfg

from nova_vhpc.clients import credentials, openstack
from nova_vhpc.conf import placement
from nova_vhpc.tests import base
from nova_vhpc.tests.unit import waiting

PATIENCE_S = waiting.PATIENCE_S

TOKEN = {
    'token': {
        'methods': ['password'],
        'expires_at': '2099-01-01T00:00:00.000000Z',
        'issued_at': '2026-01-01T00:00:00.000000Z',
        'user': {'id': 'u', 'name': 'u', 'domain': {'id': 'd', 'name': 'D'}},
    }
}


class _Keystone(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self._send(401, {'error': {'message': 'Who are you?'}})

    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self._send(201, TOKEN)

    def log_message(self, *args):
        """Write nothing to stderr."""

    def _send(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header('X-Subject-Token', 'a-token')
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class ProtectedVersionsTest(base.TestCase):
    def serve(self):
        """Start a Keystone server; return its URL."""
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Keystone)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f'http://127.0.0.1:{server.server_port}'

    def log_in(self, path):
        url = self.serve() + path
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(
            '[placement]\nauth_type = password\n'
            f'auth_url = {url}\n'
            'username = u\npassword = p\nproject_name = service\n'
            'user_domain_name = Default\nproject_domain_name = Default\n'
        )
        conf = cfg.ConfigOpts()
        placement.register_opts(conf)
        conf(['--config-file', str(file)])
        auth = credentials.load(conf, 'placement')
        return self.ask(ksa_session.Session(auth).get_token)

    def ask(self, question):
        """Call a function that may hang in a thread; return its result."""
        answer = concurrent.futures.Future()

        def ask():
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        return answer.result(PATIENCE_S)

    def test_login_succeeds_with_a_version_in_the_url(self):
        self.assertEqual('a-token', self.log_in('/v3'))

    def test_url_without_version_is_an_error(self):
        error = self.assertRaises(
            ksa_exceptions.DiscoveryFailure, self.log_in, ''
        )
        self.assertIn('without a token', str(error))

    def test_cloud_connection_logs_in_with_a_version_in_the_url(self):
        for name, value in (
            ('AUTH_URL', self.serve() + '/v3'),
            ('USERNAME', 'u'),
            ('PASSWORD', 'p'),
            ('PROJECT_NAME', 'service'),
            ('USER_DOMAIN_NAME', 'Default'),
            ('PROJECT_DOMAIN_NAME', 'Default'),
        ):
            self.useFixture(fixtures.EnvironmentVariable(f'OS_{name}', value))
        connection = openstack.connect(argparse.Namespace(os_cloud=None))
        self.addCleanup(connection.close)
        self.assertEqual('a-token', self.ask(connection.authorize))


class QuietTest(base.TestCase):
    """Errors are left to the caller; libraries would log each retry."""

    def setUp(self):
        super().setUp()
        for name in credentials._CHATTY:
            logger = logging.getLogger(name)
            self.addCleanup(logger.setLevel, logger.level)
            logger.setLevel(logging.NOTSET)
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))

    def configure(self, text):
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(f'[placement]\n{text}')
        conf = cfg.ConfigOpts()
        placement.register_opts(conf)
        conf(['--config-file', str(file)])
        return conf

    def test_unreachable_keystone_is_not_logged(self):
        plugin = credentials.load(
            self.configure(
                'auth_type = password\nauth_url = http://127.0.0.1:1/v3\n'
                'username = u\npassword = p\nuser_domain_name = D\n'
            ),
            'placement',
        )
        session = ksa_session.Session(auth=plugin)
        self.assertRaises(ksa_exceptions.ConnectFailure, session.get_token)
        self.assertEqual('', self.log.output)

    def test_unknown_auth_type_is_not_logged(self):
        conf = self.configure('auth_type = nosuch\n')
        credentials.check(conf, ['placement'])
        self.assertRaises(
            ksa_exceptions.NoMatchingPlugin,
            credentials.load,
            conf,
            'placement',
        )
        self.assertEqual('', self.log.output)

    def test_unknown_auth_type_is_logged_if_the_level_is_debug(self):
        for name in credentials._CHATTY:
            logging.getLogger(name).setLevel(logging.DEBUG)
        credentials.check(
            self.configure('auth_type = nosuch\n'), ['placement']
        )
        self.assertIn('nosuch', self.log.output)

    def test_value_that_no_request_could_use_is_refused(self):
        for text, name in (
            ('auth_url = k.example:5000/v3', 'auth_url'),
            ('auth_url = htp://u:s3cret@k/v3', 'auth_url'),
            ('auth_url = http://u:s3cret@[::1/v3', 'auth_url'),
            ('endpoint_override = 10.0.0.1:8778', 'endpoint_override'),
            ('endpoint_override = https:///placement', 'endpoint_override'),
            ('timeout = 0', 'timeout'),
            ('connect_retries = -1', 'connect_retries'),
            ('status_code_retry_delay = -0.5', 'status_code_retry_delay'),
        ):
            conf = self.configure(f'auth_type = password\n{text}\n')
            error = self.assertRaises(
                cfg.Error, credentials.check, conf, ['placement']
            )
            self.assertIn(f'[placement]{name}', str(error))
            self.assertNotIn('s3cret', str(error))

    def test_wrong_interface_is_an_error_of_the_configuration(self):
        conf = self.configure(
            'auth_type = password\nvalid_interfaces = privat\n'
        )
        error = self.assertRaises(
            cfg.Error, credentials.check, conf, ['placement']
        )
        self.assertIn('[placement]', str(error))
        self.assertIn('privat', str(error))
