# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.conf`."""

import contextlib
import io
import logging
import os
from typing import Any

import fixtures
from oslo_config import cfg
from oslotest import base

from nova_vhpc import conf as conf_package
from nova_vhpc.agent.daemon import options
from nova_vhpc.cli import status


def make_conf(
    arguments: tuple[str, ...] = (), **calls: Any
) -> conf_package.Options:
    conf = conf_package.Options()
    conf.register_opt(cfg.IntOpt('number'), group='g')
    conf.register_cli_opt(cfg.IntOpt('argument'))
    conf(list(arguments), project='nova-vhpc', **calls)
    return conf


class PlacesTest(base.BaseTestCase):
    def file(self, text: str) -> str:
        path: str = self.useFixture(fixtures.TempDir()).join('a.conf')
        with open(path, 'w') as file:
            file.write(text)
        return path

    def message(self, conf: cfg.ConfigOpts, group: str, name: str) -> str:
        error = self.assertRaises(
            cfg.Error, conf_package.read, conf, group, name
        )
        self.assertNotIn('LocationInfo', str(error))
        return str(error)

    def test_message_names_the_file(self) -> None:
        path = self.file('[g]\nnumber = many\n')
        conf = make_conf(('--config-file', path))
        self.assertIn(f'from {path} is', self.message(conf, 'g', 'number'))

    def test_message_names_the_environment(self) -> None:
        self.useFixture(fixtures.EnvironmentVariable('OS_G__NUMBER', 'many'))
        conf = make_conf(default_config_files=[])
        text = self.message(conf, 'g', 'number')
        self.assertIn('OS_G__NUMBER', text)

    def test_reason_names_the_file(self) -> None:
        path = self.file('[g]\nnumber = many\n')
        conf = make_conf(('--config-file', path))
        try:
            conf.g.number  # noqa: B018
        except cfg.Error as error:
            self.assertIn(f'from {path} is', conf_package.reason(error))
        else:
            self.fail('the value was accepted')


class AbbreviationTest(base.BaseTestCase):
    def test_option_must_be_whole(self) -> None:
        self.assertEqual(3, make_conf(('--argument', '3')).argument)
        for words in (('--argumen', '3'), ('--arg=3',)):
            with contextlib.redirect_stderr(io.StringIO()) as told:
                self.assertRaises(SystemExit, make_conf, words)
            self.assertIn('did you mean --argument?', told.getvalue())

    def test_agent_restores_only_if_it_is_spelt_out(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertRaises(SystemExit, options.make_conf, ['--restor'])
        self.assertIn('did you mean --restore?', told.getvalue())


class MissingFilesTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(
            fixtures.FakeLogger('nova_vhpc', level=logging.WARNING)
        )
        self.directory = self.useFixture(fixtures.TempDir()).path

    def test_missing_file_is_a_warning(self) -> None:
        conf = make_conf(default_config_files=[], default_config_dirs=[])
        conf_package.report_missing_files(conf)
        self.assertIn('/etc/nova-vhpc', self.log.output)
        self.assertIn('--config-file', self.log.output)

    def test_file_or_directory_is_enough(self) -> None:
        path = os.path.join(self.directory, 'a.conf')
        with open(path, 'w'):
            pass
        for arguments in (
            ('--config-file', path),
            ('--config-dir', self.directory),
        ):
            conf_package.report_missing_files(make_conf(arguments))
        self.assertEqual('', self.log.output)


class ShellCompletionTest(base.BaseTestCase):
    def test_no_program_offers_what_oslo_config_cannot_do(self) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertRaises(SystemExit, options.make_conf, ['--help'])
            self.assertRaises(SystemExit, status.main, ['--help'])
        self.assertIn('--config-file', out.getvalue())
        self.assertNotIn('shell_completion', out.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as refused:
            self.assertRaises(
                SystemExit, make_conf, ('--shell_completion', 'bash')
            )
        self.assertIn('unrecognized', refused.getvalue())
