# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.cli.agent`."""

import contextlib
import io
import os
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.cli import agent, withdraw


class CommandLineTest(base.BaseTestCase):
    def test_dry_run_with_restore_or_withdraw_is_refused(self) -> None:
        for option in ('--restore', '--withdraw'):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                code = agent.main(
                    ['--config-file', os.devnull, '--dry-run', option]
                )
            self.assertEqual(2, code)
            self.assertIn(option, err.getvalue())

    def test_missing_file_is_reported_in_one_line(self) -> None:
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = agent.main(['--config-file', '/nonexistent'])
        self.assertEqual(2, code)
        self.assertEqual(1, len(err.getvalue().strip().splitlines()))
        self.assertIn('/nonexistent', err.getvalue())

    def test_directory_as_file_is_reported_in_one_line(self) -> None:
        folder = self.useFixture(fixtures.TempDir()).path
        for options in ((), ('--restore',)):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                code = agent.main(['--config-file', folder, *options])
            self.assertEqual(2, code)
            self.assertEqual(1, len(err.getvalue().splitlines()))
            self.assertIn(folder, err.getvalue())

    def start(self, text: str, *options: str) -> tuple[int, str]:
        """Return exit code and stderr of an agent with this configuration."""
        temp_dir = self.useFixture(fixtures.TempDir()).path
        path = pathlib.Path(temp_dir, 'agent.conf')
        own = f'[vhpc_agent]\nstate_path={temp_dir}\nrun_path={temp_dir}\n'
        path.write_text(own + text)
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = agent.main(['--config-file', str(path), *options])
        return code, err.getvalue()

    def test_invalid_value_is_reported_before_the_agent_starts(self) -> None:
        for text, words in (
            ('foreign_changes = ask', "[vhpc_agent]foreign_changes: .*'ask'"),
            ('state_path = here', "[vhpc_agent]state_path: .*'here'"),
            ('run_path =', '[vhpc_agent]run_path: .*it is empty'),
            ('period_ms =', "[vhpc_agent]period_ms: .*'' is not an integer"),
            ('[vhpc_control]\nguard_margin = nan', "'nan' is not a number"),
            ('[vhpc_peers]\nlease = 0', "[vhpc_peers]lease: .*'0' is not"),
            ('[vhpc_topology]\npoll_interval = 0', "'0' is not an integer"),
            ('[vhpc_peers]\ncall_timeout = 1e300', 'from 0.1 to 86400'),
            ('[vhpc_nova]\nmin_interval = 9e9', 'from 1 to 2678400'),
            ('[vhpc_nova]\ngroups_file = g.yaml', "groups_file: .*'g.yaml'"),
            (
                '[vhpc_nova]\nauth_type = password\nauth_url = k:5000',
                'auth_url must be a URL that begins with http://',
            ),
            ('reconcile_period = $no', r'_period: .*no such option no .*\$\$'),
            ('host = a$b-c', r'[vhpc_agent]host: .*no such option b '),
            ('host = my host', "[vhpc_agent]host: .*'my host'"),
            ('ovs_run_dir = here', "[vhpc_agent]ovs_run_dir: .*'here'"),
            ('sys_root = sys', "[vhpc_agent]sys_root: .*'sys'"),
            ('proc_root = /no', '[vhpc_agent]proc_root = /no: no such dir'),
            ('metrics_key_file = /k', 'it needs metrics_cert_file'),
            ('metrics_client_ca_file = /c', 'it needs metrics_cert_file'),
            (
                'bind_uplinks = true\n[vhpc_topology]\npublish = false',
                r'it needs [vhpc_topology]publish = true',
            ),
            (
                '[vhpc_control]\ngang_min_window_us = 300000',
                'at most gang_max_window_us = 200000',
            ),
        ):
            code, complaint = self.start(text + '\n')
            self.assertEqual(2, code, text)
            self.assertEqual(1, len(complaint.splitlines()), complaint)
            self.assertRegex(complaint, words.replace('[', r'\['))

    def test_unresolvable_dollar_sign_is_reported_at_start(
        self,
    ) -> None:
        auth = 'auth_type = password\nauth_url = http://k/\n'
        for text, words in (
            ('host = $host', '[vhpc_agent]host: its value names itself'),
            ('host = ${vhpc_agent}', '[vhpc_agent]host: .* a group by'),
            ('host = ${no.x}', '[vhpc_agent]host: .* no such group [no\\]'),
            ('[DEFAULT]\nlogging_exception_prefix = $no', '_prefix: .* no in'),
            ('[DEFAULT]\nconfig_file = $config_file', '[DEFAULT] .* itself'),
            (
                f'[vhpc_nova]\n{auth}password = 1$k9x7',
                '[vhpc_nova]password: .* that there is not',
            ),
            (
                '[placement]\nauth_section = other\n'
                f'[other]\n{auth}password = 1$k9x7',
                '[other]password: .* that there is not',
            ),
            (
                '[DEFAULT]\ntransport_url = rabbit://u:1$k9x7@h/',
                '[DEFAULT]transport_url: .* that there is not',
            ),
            (
                '[DEFAULT]\ntransport_url = $transport_url',
                '[DEFAULT]transport_url: .* names itself',
            ),
        ):
            code, complaint = self.start(text + '\n')
            self.assertEqual(2, code, text)
            self.assertEqual(1, len(complaint.splitlines()), complaint)
            self.assertRegex(complaint, words.replace('[', r'\['))
            self.assertIn('a dollar sign is written $$', complaint)
            self.assertNotIn('k9x7', complaint)

    def test_restore_names_the_invalid_option_that_it_needs(self) -> None:
        for name in ('state_path', 'run_path', 'libvirt_uri'):
            code, complaint = self.start(f'{name} = ${name}\n', '--restore')
            self.assertEqual(2, code)
            self.assertRegex(
                complaint.splitlines()[-1],
                rf'^nova-vhpc-agent: \[vhpc_agent\]{name}: .* itself',
            )

    def test_restore_runs_with_other_options_invalid(self) -> None:
        restored = []
        self.useFixture(
            fixtures.MockPatchObject(
                agent.restore_host,
                'restore_host',
                lambda conf: restored.append(conf) or 0,
            )
        )
        for number, text in enumerate(
            (
                'foreign_changes = ask\n',
                '[DEFAULT]\ndebug = maybe\n',
                '[DEFAULT]\nlog_config_append = /nonexistent\n',
                '[DEFAULT]\nlog_file = /nonexistent/agent.log\n',
                '[DEFAULT]\nlog_file = $log_file\n',
            ),
            1,
        ):
            code, _ = self.start(text, '--restore')
            self.assertEqual((0, number), (code, len(restored)), text)

    def test_restore_and_withdraw_run_in_one_call(self) -> None:
        for restored, withdrawn, expected in ((0, 0, 0), (1, 0, 1), (0, 1, 1)):
            with (
                mock.patch.object(
                    agent.restore_host, 'restore_host', return_value=restored
                ) as restore,
                mock.patch.object(
                    withdraw, 'withdraw', return_value=withdrawn
                ) as away,
            ):
                code, _ = self.start('', '--withdraw', '--restore')
            self.assertEqual(expected, code)
            restore.assert_called_once()
            away.assert_called_once()

    def test_invalid_value_for_an_argument_is_reported(self) -> None:
        for text, word in (
            ('debug = maybe', '--debug'),
            ('restore = maybe', '--restore'),
            ('log_config_append = /nonexistent', '/nonexistent'),
            # As with a log_dir that the systemd unit may not write to.
            (
                'log_file = /nonexistent/a.log',
                '/nonexistent/a.log cannot be written: No such file or '
                'directory; its directory must be there',
            ),
        ):
            code, complaint = self.start(f'[DEFAULT]\n{text}\n')
            self.assertEqual(2, code, text)
            self.assertTrue(
                complaint.splitlines()[-1].startswith('nova-vhpc-agent: ')
            )
            self.assertIn(word, complaint)
