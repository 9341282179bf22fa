# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Clients of nova-vhpc-vendordata that send no or half a request."""

import concurrent.futures
import contextlib
import io
import pathlib
import socket
import threading

import fixtures
from oslo_utils import uuidutils

from nova_vhpc import http_limits
from nova_vhpc.cli import vendordata
from nova_vhpc.tests import base
from nova_vhpc.tests.unit import waiting

SILENCE_S = 0.2
PATIENCE_S = waiting.PATIENCE_S


class ClientsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatch('oslo_log.log.setup'))
        self.assertIsNotNone(vendordata._Handler.timeout)
        self.useFixture(
            fixtures.MockPatchObject(vendordata._Handler, 'timeout', SILENCE_S)
        )
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        path.write_text(
            '[vhpc_vendordata]\nauth_strategy = noauth\n'
            f'listen_host = 127.0.0.1\nid_secret = {64 * "f"}\n'
        )
        conf = vendordata.load(['--config-file', str(path)])
        conf.set_override('listen_port', 0, group='vhpc_vendordata')
        server = vendordata._server(conf)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.address = server.server_address
        err = io.StringIO()
        self.useFixture(fixtures.MonkeyPatch('sys.stderr', err))
        self.addCleanup(lambda: self.assertEqual('', err.getvalue()))

    def ask(self, words):
        """Return the answer until the connection ends."""
        with socket.create_connection(self.address) as client:
            client.settimeout(PATIENCE_S)
            client.sendall(words)
            return b''.join(iter(lambda: client.recv(4096), b''))

    def test_silent_client_is_told_that_it_is_disconnected(self):
        for words in (b'', b'POST / HT', b'POST / HTTP/1.1\r\nHost: x\r\n'):
            self.assertIn(b' 408 ', self.ask(words).splitlines()[0])

    def test_half_a_body_is_answered_with_400(self):
        body = '{"instance-id": "' + uuidutils.generate_uuid()
        answer = self.ask(
            b'POST / HTTP/1.1\r\nContent-Length: 200\r\n\r\n' + body.encode()
        )
        self.assertIn(b' 400 ', answer.splitlines()[0])

    def test_slow_clients_keep_nobody_out(self):
        slow = []
        for _ in range(300):
            client = socket.create_connection(self.address, PATIENCE_S)
            self.addCleanup(client.close)
            client.sendall(b'POST / HTTP/1.1\r\nContent-Length: 200\r\n\r\n')
            slow.append(client)
        answer = self.ask(b'GET / HTTP/1.1\r\n\r\n')
        self.assertIn(b' 200 ', answer.splitlines()[0])

    def test_guests_of_a_rack_that_boot_at_once_are_all_answered(self):
        with concurrent.futures.ThreadPoolExecutor(300) as pool:
            answers = list(
                pool.map(self.ask, 300 * [b'GET / HTTP/1.1\r\n\r\n'])
            )
        self.assertEqual(
            {b'HTTP/1.0 200 OK'}, {one.splitlines()[0] for one in answers}
        )


class ContainerTest(base.TestCase):
    """A server such as uWSGI refuses what the command refuses."""

    def test_unsafe_configuration_is_refused(self):
        self.useFixture(fixtures.MockPatch('oslo_log.log.setup'))
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        self.useFixture(
            fixtures.MockPatch(
                'oslo_config.cfg.find_config_files', return_value=[str(path)]
            )
        )
        for text, reason in (
            ('', 'no token can be checked without auth_type'),
            (
                'auth_strategy = noauth\nlisten_host = 192.0.2.1\n',
                'only a loopback address',
            ),
        ):
            path.write_text(
                f'[vhpc_vendordata]\nid_secret = {64 * "f"}\n{text}'
            )
            error = self.assertRaises(ValueError, vendordata.application)
            self.assertIn(reason, str(error))


class IdSecretTest(base.TestCase):
    def test_without_a_secret_members_get_no_ids_as_the_log_says(self):
        self.useFixture(fixtures.MockPatch('oslo_log.log.setup'))
        log = self.useFixture(fixtures.FakeLogger())
        source = self.useFixture(
            fixtures.MockPatchObject(vendordata.nova, 'NovaClusterSource')
        ).mock
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        for option, secret in (
            ('id_secret_file = /dev/null/id_secret', None),
            (f'id_secret = {16 * "x"}', 16 * b'x'),
        ):
            path.write_text(
                f'[vhpc_vendordata]\nauth_strategy = noauth\n{option}\n'
            )
            vendordata.make(vendordata.load(['--config-file', str(path)]))
            self.assertEqual(secret, source.call_args.args[1])
        (line,) = [x for x in log.output.splitlines() if 'no IDs' in x]
        self.assertIn('id_secret_file = /dev/null/id_secret', line)
        self.assertIn('openssl rand -hex 32', line)


class OptionsTest(base.TestCase):
    def test_value_that_would_refuse_or_hide_all_is_named(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        for line in (
            'allowed_roles =',
            'allowed_roles = ,',
            'switch_key =',
            'rack_key = ',
            'auth_strategy = none',
            'cache_seconds = 5000',
            'cache_seconds = nan',
            'agent_timeout = 0',
            'listen_port = 70000',
            'listen_host = a host',
            'ask_agents = perhaps',
            'id_secret_file =',
        ):
            path.write_text(f'[vhpc_vendordata]\n{line}\n')
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                status = vendordata.main(['--config-file', str(path)])
            self.assertEqual(2, status, line)
            self.assertIn(line.split(' ')[0], err.getvalue(), line)
            self.assertEqual(1, err.getvalue().count('\n'), line)


class ConnectionsTest(base.TestCase):
    def test_each_thread_keeps_a_connection_to_nova(self):
        self.useFixture(fixtures.MockPatch('oslo_log.log.setup'))
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        path.write_text(
            f'[vhpc_vendordata]\nauth_strategy = noauth\n'
            f'id_secret = {64 * "f"}\n[vhpc_nova]\nauth_type = none\n'
        )
        source = self.useFixture(
            fixtures.MockPatchObject(vendordata.nova, 'NovaClusterSource')
        ).mock
        vendordata.make(vendordata.load(['--config-file', str(path)]))
        session = source.call_args.args[0].session.session
        for url in ('http://nova', 'https://nova'):
            pool = session.get_adapter(url).poolmanager
            size = pool.connection_pool_kw['maxsize']
            self.assertEqual(http_limits.MOST_CLIENTS, size)


class TierKeysTest(base.TestCase):
    def test_keys_of_aggregates_are_those_that_are_configured(self):
        self.useFixture(fixtures.MockPatch('oslo_log.log.setup'))
        source = self.useFixture(
            fixtures.MockPatchObject(vendordata.nova, 'NovaClusterSource')
        ).mock
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        path.write_text(
            '[vhpc_vendordata]\nauth_strategy = noauth\n'
            'switch_key = leaf\nrack_key = row\n'
            f'id_secret = {64 * "f"}\n'
        )
        vendordata.make(vendordata.load(['--config-file', str(path)]))
        self.assertIn(('leaf', 'row'), source.call_args.args)


class LogTest(base.TestCase):
    def test_unwritable_log_is_reported_in_one_line(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        path.write_text('[DEFAULT]\nlog_dir = /nonexistent\n')
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            status = vendordata.main(['--config-file', str(path)])
        self.assertEqual(2, status)
        self.assertRegex(
            err.getvalue(),
            r'\[DEFAULT\]log_dir or log_file: /nonexistent/.* cannot be '
            'written: .* LogsDirectory=',
        )
