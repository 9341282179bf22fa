# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bash, told by the files, completes the words of all programs."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tomllib
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.cmd import completion

TOP = pathlib.Path(__file__).parents[4]

ASK = """\
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
function=$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" "$1" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
echo "${COMPREPLY[@]}"
"""
"""What bash does when TAB is pressed after the last word."""


class CompletionTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = self.useFixture(fixtures.TempDir()).path

    def completed(self, program: str, *words: str) -> list[str]:
        """Return the words that bash offers for the last one."""
        name = f'nova-vhpc-{program}'
        path = pathlib.Path(self.folder, name)
        path.write_text(completion.script(program))
        done = subprocess.run(
            ['bash', '-c', ASK, 'bash', str(path), name, *words],
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual('', done.stderr)
        return done.stdout.split()

    def test_commands_are_completed(self) -> None:
        self.assertEqual(['status'], self.completed('ctl', 'sta'))
        self.assertEqual(['upgrade'], self.completed('status', 'up'))

    def test_options_are_completed(self) -> None:
        self.assertEqual(['--dry-run'], self.completed('agent', '--dr'))
        self.assertEqual(['--host'], self.completed('ctl', 'status', '--ho'))

    def test_values_of_extra_specs_are_completed(self) -> None:
        self.assertEqual(
            ['shared', 'shared-separate'],
            self.completed('flavor', 'set', 'a', '--network', 'sh'),
        )

    def test_files_are_completed(self) -> None:
        path = pathlib.Path(self.folder, 'some.conf')
        path.touch()
        self.assertEqual(
            [str(path)],
            self.completed('ctl', '--config-file', f'{self.folder}/so'),
        )

    def test_all_programs_are_known(self) -> None:
        scripts = tomllib.loads((TOP / 'pyproject.toml').read_text())
        self.assertEqual(
            sorted(scripts['project']['scripts']),
            [f'nova-vhpc-{program}' for program in completion.PROGRAMS],
        )

    def test_one_file_is_written_for_each_program(self) -> None:
        self.assertEqual(0, completion.main([self.folder]))
        for program in completion.PROGRAMS:
            path = pathlib.Path(self.folder, f'nova-vhpc-{program}')
            self.assertIn(f' {path.name}', path.read_text())

    def test_program_whose_library_is_missing_is_left_out(self) -> None:
        missing = mock.patch.dict(sys.modules, {'nova_vhpc.cmd.top': None})
        err = io.StringIO()
        with missing, contextlib.redirect_stderr(err):
            self.assertEqual(0, completion.main([self.folder]))
        self.assertIn('nova-vhpc-top: left out', err.getvalue())
        names = {path.name for path in pathlib.Path(self.folder).iterdir()}
        self.assertNotIn('nova-vhpc-top', names)
        self.assertIn('nova-vhpc-ctl', names)

    def test_missing_directory_or_library_exits_with_1(self) -> None:
        missing = str(pathlib.Path(self.folder, 'no'))
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(1, completion.main([missing]))
            self.assertIn(missing, err.getvalue())
            with mock.patch.dict(sys.modules, {'shtab': None}):
                self.assertEqual(1, completion.main([self.folder]))
        self.assertIn('nova-vhpc[completion]', err.getvalue())
