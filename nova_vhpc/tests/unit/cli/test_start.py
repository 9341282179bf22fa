# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Console scripts that cannot start say why in one line."""

import contextlib
import io
import json
import pathlib
import socket

import fixtures
from keystoneauth1 import exceptions as ks_exceptions

from nova_vhpc.cli import (
    agent,
    ctl,
    explain,
    flavor,
    status,
    top,
    vendordata,
)
from nova_vhpc.tests import base

SECRET = 'id_secret = only the operator knows\n'
"""Without it the service would make a file."""


class StartTest(base.TestCase):
    def setUp(self):
        super().setUp()
        # It would redirect the log of all other tests.
        self.useFixture(fixtures.MockPatch('oslo_log.log.setup'))
        # A server that starts by mistake must not run for ever.
        self.useFixture(
            fixtures.MockPatch('socketserver.BaseServer.serve_forever')
        )

    def run_(self, program, *argv, **more):
        """Return exit code, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = program.main(list(argv), **more)
            except SystemExit as stop:
                code = stop.code
        return code, out.getvalue(), err.getvalue()

    def file(self, text):
        folder = self.useFixture(fixtures.TempDir()).path
        path = pathlib.Path(folder, 'some.conf')
        path.write_text(text)
        return str(path)

    def assert_refused(self, code, words, program, *argv, **more):
        found, out, err = self.run_(program, *argv, **more)
        self.assertEqual((code, '', 1), (found, out, len(err.splitlines())))
        name = program.__name__.rpartition('.')[2]
        self.assertTrue(err.startswith(f'nova-vhpc-{name}: '), err)
        self.assertIn(words, err)

    def test_missing_configuration_is_told_of(self):
        for name in ('find_config_files', 'find_config_dirs'):
            self.useFixture(
                fixtures.MockPatch(f'oslo_config.cfg.{name}', return_value=[])
            )
        self.useFixture(
            fixtures.MockPatchObject(status, 'default_files', lambda: [])
        )
        # It would make a file.
        self.useFixture(
            fixtures.MockPatchObject(vendordata.opaque_ids, 'secret')
        )
        for program, argv in (
            (status, ('upgrade', 'check')),
            (vendordata, ()),
        ):
            with fixtures.FakeLogger('nova_vhpc.conf') as log:
                self.run_(program, *argv)
            self.assertIn('There is no configuration file', log.output)

    def test_invalid_value_names_the_file(self):
        path = self.file('[vhpc_scheduler]\nspare_cpus = many\n')
        argv = ('--flavor', 'x', '--config-file', path)
        self.assert_refused(1, f'from {path} is not valid', explain, *argv)

    def test_status_names_the_file_of_every_invalid_value(self):
        path = self.file(
            '[vhpc_agent]\nlibvirt_uri = test:///default\n'
            '[vhpc_scheduler]\nspare_cpus = many\n'
            '[filter_scheduler]\nhost_subset_size = many\n'
            '[placement]\nauth_type = password\nconnect_retries = many\n'
        )
        argv = ('--config-file', path, 'upgrade', 'check', '--json')
        code, out, _ = self.run_(status, *argv)
        self.assertEqual(2, code)
        self.assertIn(f'from {path} is not valid', out)
        self.assertNotIn('LocationInfo', out)

    def test_binary_configuration_is_reported(self):
        path = self.file('')
        pathlib.Path(path).write_bytes(b'[DEFAULT]\n# 50 \xb5s\n')
        words = f'{path}: not UTF-8 text: '
        options = ('--config-file', path)
        self.assert_refused(2, words, agent, *options)
        self.assert_refused(2, words, agent, *options, '--restore')
        self.assert_refused(2, words, ctl, *options, 'status')
        self.assert_refused(2, words, status, *options, 'upgrade', 'check')
        self.assert_refused(2, words, vendordata, *options)

    def test_invalid_vendordata_options_are_reported(self):
        for text, words in (
            ('garbage', "No ':' or '='"),
            ('[vhpc_vendordata]\nlisten_port = 65536', "'65536' is not an"),
            ('[vhpc_vendordata]\nauth_strategy = any', "found 'any'"),
            ('[vhpc_nova]\nauth_type = any', 'plugin any could not be'),
            (
                '[vhpc_nova]\nauth_type = password\npassword = a$b',
                '[vhpc_nova]password: its value names an option by $',
            ),
            (
                f'[vhpc_vendordata]\n{SECRET}',
                'no token can be checked without auth_type',
            ),
            (
                f'[vhpc_vendordata]\n{SECRET}auth_strategy = noauth\n'
                'listen_host = 0.0.0.0',
                'only a loopback address',
            ),
        ):
            path = self.file(text)
            self.assert_refused(2, words, vendordata, '--config-file', path)
        self.assert_refused(
            2, '/nowhere', vendordata, '--config-file', '/nowhere'
        )

    def test_vendordata_listens_on_ipv6_or_ipv4(self):
        # Hosts that run the tests may lack IPv6.
        make_server = self.useFixture(
            fixtures.MockPatch('wsgiref.simple_server.make_server')
        ).mock
        for host, family in (
            ('::1', socket.AF_INET6),
            ('127.0.0.1', socket.AF_INET),
            ('localhost', socket.AF_INET),
        ):
            path = self.file(
                f'[vhpc_vendordata]\n{SECRET}auth_strategy = noauth\n'
                f'listen_host = {host}\n'
            )
            vendordata._server(vendordata.load(['--config-file', path]))
            server_class = make_server.call_args.args[3]
            self.assertEqual(family, server_class.address_family)

    def test_vendordata_reports_a_port_in_use(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            port = taken.getsockname()[1]
            path = self.file(
                f'[vhpc_vendordata]\n{SECRET}auth_strategy = noauth\n'
                f'listen_port = {port}\n'
            )
            self.assert_refused(
                1,
                f'listen_port = {port}: cannot listen there',
                vendordata,
                '--config-file',
                path,
            )

    def test_status_exits_with_2_on_unreadable_configuration(self):
        for path in ('/nowhere', self.file('garbage')):
            self.assert_refused(
                2, path, status, '--config-file', path, 'upgrade', 'check'
            )
        # Exit code 1 would mean that the checks ran and gave a warning.
        self.assert_refused(
            2, "can't decode", status, '--config-file', self.binary_file()
        )

    def test_directory_as_configuration_is_reported(self):
        folder = self.useFixture(fixtures.TempDir()).path
        for program, *words in ((status, 'upgrade', 'check'), (ctl, 'status')):
            self.assert_refused(
                2, folder, program, '--config-file', folder, *words
            )

    def binary_file(self):
        path = self.file('')
        pathlib.Path(path).write_bytes(b'\xff\xfe')
        return path

    def test_cloud_that_does_not_answer_is_reported(self):
        class Away:
            def __getattr__(self, name):
                raise ks_exceptions.ConnectFailure('nobody\nthere')

        words = 'the cloud says: nobody there'
        for program, argv in (
            (explain, ['--flavor', 'f']),
            (flavor, ['show', 'f']),
        ):
            self.assert_refused(1, words, program, *argv, connection=Away())

    def test_invalid_json_is_reported_with_its_file(self):
        path = self.file('garbage')
        self.assert_refused(1, f'{path}: not JSON', explain, path)

    def test_missing_message_bus_is_reported(self):
        self.assert_refused(
            2,
            'transport_url is not set',
            ctl,
            '--config-file',
            self.file(''),
            'status',
        )

    def test_invalid_numbers_are_refused(self):
        nothing = self.file('')
        for value in ('nan', '0', 'x', ''):
            self.assert_refused(
                2,
                f"--timeout: '{value}' is not a number",
                ctl,
                '--config-file',
                nothing,
                '--timeout',
                value,
                'status',
            )
            code, _, err = self.run_(top, '--interval', value)
            self.assertEqual(2, code)
            self.assertIn(f"--interval: '{value}' is not a number", err)

    def test_json_has_no_colours(self):
        path = self.file(
            '{"flavor": {"vcpus": 1, "ram_mb": 1}, "hosts": ['
            '{"name": "c1", "cpus": 1, "free_ram_mb": 1, "used_vcpus": 0}]}'
        )
        # Job runners set it.
        self.useFixture(fixtures.EnvironmentVariable('FORCE_COLOR', '1'))
        code, out, _ = self.run_(explain, path, '--json')
        self.assertEqual(0, code)
        self.assertEqual(1, json.loads(out)['members'])

    def test_top_without_terminal_or_once_is_refused(self):
        for is_terminal, kind in ((False, 'xterm'), (True, 'dumb')):
            self.useFixture(fixtures.EnvironmentVariable('TERM', kind))
            out = io.StringIO()
            out.isatty = lambda is_terminal=is_terminal: is_terminal
            err = io.StringIO()
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                error = self.assertRaises(SystemExit, top.main, [])
            self.assertEqual((2, ''), (error.code, out.getvalue()))
            self.assertIn('--once', err.getvalue())

    def test_top_json_without_once_is_refused(self):
        code, _, err = self.run_(top, '--json')
        self.assertEqual(2, code)
        self.assertIn('--once', err)

    def test_every_script_has_version(self):
        for program in (
            agent,
            ctl,
            explain,
            flavor,
            status,
            top,
            vendordata,
        ):
            code, out, _ = self.run_(program, '--version')
            self.assertEqual(0, code)
            self.assertRegex(out, r'^\d+\.')
