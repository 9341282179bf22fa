# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Errors of the command line name what was probably meant."""

import contextlib
import importlib
import io

from oslotest import base

from nova_vhpc.cli import agent
from nova_vhpc.tests import osc_shell


class ArgumentsTest(base.BaseTestCase):
    def error(self, program: str, *words: str) -> str:
        """Return what a program prints about a wrong command line."""
        err = io.StringIO()
        module = importlib.import_module(f'nova_vhpc.cli.{program}')
        with contextlib.redirect_stderr(err):
            exit_request = self.assertRaises(
                SystemExit, module.main, list(words)
            )
        self.assertEqual(2, exit_request.code)
        return err.getvalue()

    def test_misspelt_command_names_the_command(self) -> None:
        for program, word, meant in (
            ('ctl', 'satus', 'status'),
            ('flavor', 'sett', 'set'),
        ):
            text = self.error(program, word)
            self.assertIn(f"'{word}'", text)
            self.assertIn(f'did you mean {meant}?', text)

    def test_misspelt_option_names_the_option(self) -> None:
        for program, words, meant in (
            ('agent', ['--dryrun'], '--dry-run'),
            ('ctl', ['--jsno', 'status'], '--json'),
            ('explain', ['--flavour', 'x'], '--flavor'),
            (
                'status',
                ['upgrade', 'check', '--configfile=a'],
                '--config-file',
            ),
            ('top', ['--onec'], '--once'),
            ('vendordata', ['--configfile=a'], '--config-file'),
        ):
            text = self.error(program, *words)
            self.assertIn(f'did you mean {meant}?', text)

    def test_misspelt_option_of_a_command_names_the_option(self) -> None:
        for program, words, meant in (
            ('ctl', ['status', '--hots=a'], '--host'),
            ('flavor', ['set', 'x', '--workloads', 'latency'], '--workload'),
        ):
            text = self.error(program, *words)
            self.assertIn(f'did you mean {meant}?', text)

    def test_abbreviations_are_refused(self) -> None:
        for program, *words in (
            ('agent', '--restor'),
            ('ctl', '--jso', 'status'),
            ('ctl', 'restore', '--serv', 'x'),
            ('explain', '--flav', 'x'),
            ('flavor', 'set', 'x', '--workl', 'latency'),
            ('status', 'upgrade', 'check', '--js'),
            ('top', '--onc'),
            ('vendordata', '--config-fil', 'a'),
        ):
            with self.subTest(program=program, words=words):
                text = self.error(program, *words)
                self.assertIn('unrecognized arguments: --', text)
        for words in (
            ('flavor', 'unset', 'x', '--dry'),
            ('host', 'restore', 'a', '--serv', 'x'),
            ('cluster', 'list', '--all'),
        ):
            with self.subTest(words=words):
                err = io.StringIO()
                with contextlib.redirect_stderr(err):
                    self.assertRaises(
                        SystemExit, osc_shell.run, object(), *words
                    )
                self.assertIn('unrecognized arguments: --', err.getvalue())

    def test_wrong_number_names_the_option_as_it_is_written(self) -> None:
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            agent.main(['--withdraw-wait', 'x'])
        self.assertIn('argument --withdraw-wait: Invalid', err.getvalue())

    def test_options_of_other_commands_are_not_offered(self) -> None:
        text = self.error('flavor', 'show', 'x', '--workloads', 'latency')
        self.assertNotIn('did you mean', text)

    def test_option_like_no_other_gets_no_hint(self) -> None:
        for program, *words in (
            ('agent', '--xyzzy'),
            ('ctl', '--xyzzy', 'status'),
            ('top', '--xyzzy'),
        ):
            self.assertNotIn('did you mean', self.error(program, *words))
