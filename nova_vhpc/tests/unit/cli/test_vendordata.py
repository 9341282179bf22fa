# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Clients of nova-vhpc-vendordata that send no or half a request."""

import contextlib
import io
import pathlib
import socket
import threading

import fixtures
from oslo_utils import uuidutils

from nova_vhpc.cli import vendordata
from nova_vhpc.tests import base

SILENCE_S = 0.2
PATIENCE_S = 20


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
            'listen_host = 127.0.0.1\n'
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

    def ask(self, words):
        """Return the answer until the connection ends."""
        err = io.StringIO()
        with (
            contextlib.redirect_stderr(err),
            socket.create_connection(self.address) as client,
        ):
            client.settimeout(PATIENCE_S)
            client.sendall(words)
            answer = b''.join(iter(lambda: client.recv(4096), b''))
        self.assertEqual('', err.getvalue())
        return answer

    def test_silent_client_is_disconnected(self):
        self.assertEqual(b'', self.ask(b''))
        self.assertEqual(b'', self.ask(b'POST / HT'))

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
        self.assertLessEqual(len(vendordata._Handler.clients._served), 128)


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
            path.write_text(f'[vhpc_vendordata]\n{text}')
            error = self.assertRaises(ValueError, vendordata.application)
            self.assertIn(reason, str(error))


class IdSecretTest(base.TestCase):
    """Where the secret of the IDs that tenants get comes from."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatch('oslo_log.log.setup'))
        self.log = self.useFixture(fixtures.FakeLogger())

    def secret(self, password, id_secret=''):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        path.write_text(
            f'[vhpc_vendordata]\nid_secret = {id_secret}\n[vhpc_nova]\n'
            + (
                'auth_type = password\nauth_url = http://127.0.0.1:9/\n'
                f'username = u\npassword = {password}\n'
                if password
                else 'auth_type = none\n'
            )
        )
        conf = vendordata.load(['--config-file', str(path)])
        return vendordata.secret_of_ids(conf)

    def test_servers_of_one_user_agree(self):
        self.assertEqual(self.secret('hunter2'), self.secret('hunter2'))
        self.assertNotEqual(self.secret('hunter2'), self.secret('hunter3'))

    def test_option_comes_before_password(self):
        one = self.secret('hunter2', 'f' * 64)
        self.assertEqual(one, self.secret('hunter3', 'f' * 64))
        self.assertEqual(one, self.secret('', 'f' * 64))
        self.assertNotEqual(one, self.secret('', 'e' * 64))
        self.assertEqual('', self.log.output)

    def test_short_secret_is_refused(self):
        error = self.assertRaises(ValueError, self.secret, 'hunter2', 'f' * 15)
        self.assertIn('[vhpc_vendordata]id_secret', str(error))
        self.assertNotIn('ffff', str(error))

    def test_without_any_the_ids_last_until_a_restart_as_the_log_says(self):
        self.assertNotEqual(self.secret(''), self.secret(''))
        self.assertIn('[vhpc_vendordata]id_secret is not set', self.log.output)


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
