# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.daemon.options`."""

import contextlib
import io
import os
import pathlib

import fixtures
from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent.daemon import options
from nova_vhpc.conf import agent as agent_conf


class CommandLineTest(base.BaseTestCase):
    def test_help_and_version_exit_with_0(self) -> None:
        for option, word in (('--help', '--restore'), ('--version', '.')):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                error = self.assertRaises(
                    SystemExit, options.make_conf, [option]
                )
            self.assertEqual(0, error.code)
            self.assertIn(word, out.getvalue())

    def test_dry_run_argument_sets_the_option(self) -> None:
        nothing = ['--config-file', os.devnull]
        self.assertFalse(options.make_conf(nothing).vhpc_agent.dry_run)
        self.assertTrue(
            options.make_conf([*nothing, '--dry-run']).vhpc_agent.dry_run
        )

    def test_credentials_may_refer_to_another_group(self) -> None:
        temp_dir = self.useFixture(fixtures.TempDir()).path
        path = pathlib.Path(temp_dir, 'agent.conf')
        auth = 'auth_type = password\nauth_url = http://k/\n'
        path.write_text(
            f'[vhpc_nova]\n{auth}password = ${{placement.password}}\n'
            f'[placement]\n{auth}password = se$$cret\n'
        )
        conf = options.make_conf(['--config-file', str(path)])
        options.check(conf)
        self.assertEqual('se$cret', conf.vhpc_nova.password)


class ReloadTest(base.BaseTestCase):
    def test_reload_with_an_invalid_value_changes_nothing(self) -> None:
        folder = self.useFixture(fixtures.TempDir()).path
        path = pathlib.Path(folder, 'agent.conf')
        path.write_text('[vhpc_agent]\nreconcile_period = 5\n')
        conf = options.make_conf(['--config-file', str(path)])
        for text in (
            'reconcile_period = 7\nforeign_changes = ask\n',
            'reconcile_period = nan\n',
            'reconcile_period = 7\nworkers = 99\n',
            'reconcile_period = 7\n[DEFAULT]\ndebug = maybe\n',
        ):
            path.write_text('[vhpc_agent]\n' + text)
            self.assertRaises(cfg.Error, conf.mutate_config_files)
            self.assertEqual(5.0, conf.vhpc_agent.reconcile_period)
            self.assertEqual('respect', conf.vhpc_agent.foreign_changes)
        path.write_text('[vhpc_agent]\nreconcile_period = 7\n')
        conf.mutate_config_files()
        self.assertEqual(7.0, conf.vhpc_agent.reconcile_period)

    def test_reload_logs_unknown_options(self) -> None:
        folder = self.useFixture(fixtures.TempDir()).path
        path = pathlib.Path(folder, 'agent.conf')
        path.write_text('[vhpc_agent]\nreconcile_period = 5\n')
        conf = options.make_conf(['--config-file', str(path)])
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        conf.mutate_config_files()
        self.assertEqual('', log.output)
        path.write_text('[vhpc_agent]\nslice_policy = atc\n')
        conf.mutate_config_files()
        self.assertIn('[vhpc_agent]slice_policy is no option', log.output)


class OptionTest(base.BaseTestCase):
    def test_every_option_has_a_long_help(self) -> None:
        for option in agent_conf.OPTS:
            self.assertGreater(len(option.help), 40, option.name)

    def test_error_names_the_value_and_what_is_allowed(self) -> None:
        conf = cfg.ConfigOpts()
        agent_conf.register_opts(conf)
        conf([])
        for name, value, word in (
            ('period_ms', '29', '30 to 10000'),
            ('workers', 'x', '1 to 16'),
            ('reconcile_period', '0', 'from 0.2'),
            ('reconcile_period', 'nan', 'seconds from 0.2 to 86400'),
            ('call_deadline', '', 'seconds from 0.1'),
            ('period_ms', '', '30 to 10000'),
            ('metrics_port', '70000', '0 to 65535'),
        ):
            option = next(o for o in agent_conf.OPTS if o.name == name)
            error = self.assertRaises(ValueError, option.type, value)
            self.assertIn(f"'{value}'", str(error))
            self.assertIn(word, str(error))
