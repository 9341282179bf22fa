# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Unwritable files are refused at once; printed figures are not lost."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench.common import outputs

FULL = pathlib.Path('/dev/full')
"""Can be opened, but not written."""


class OutputsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def assert_refused(self, path, *words):
        error = self.assertRaises(outputs.OutputError, outputs.check, path)
        for word in (f'{path} cannot be written', *words):
            self.assertIn(word, str(error))

    def test_writable_files_are_accepted_and_left_alone(self):
        existing = self.directory / 'existing.json'
        existing.write_text('old')
        outputs.check(None, existing, self.directory / 'new.json')
        outputs.check(pathlib.Path(os.devnull), pathlib.Path('name-only'))
        self.assertEqual('old', existing.read_text())
        self.assertEqual([existing], list(self.directory.iterdir()))

    def test_file_in_a_missing_directory_is_refused(self):
        path = self.directory / 'none' / 'out.json'
        self.assert_refused(path, f'no directory {path.parent}')
        file = self.directory / 'file'
        file.touch()
        self.assert_refused(file / 'out.json', f'no directory {file}')

    def test_directory_is_refused(self):
        self.assert_refused(self.directory, 'is a directory')

    def test_second_path_is_checked_too(self):
        self.assertRaises(
            outputs.OutputError, outputs.check, None, self.directory
        )

    def test_file_without_write_permission_is_refused(self):
        # Patched, because root may write anywhere.
        existing = self.directory / 'existing.json'
        existing.touch()
        with mock.patch.object(os, 'access', return_value=False):
            self.assert_refused(existing, 'no permission')
            self.assert_refused(
                self.directory / 'new.json',
                f'no permission to make a file in {self.directory}',
            )

    def test_document_is_written_if_there_is_a_path(self):
        path = self.directory / 'out.json'
        outputs.write_json(path, {'a': [1]})
        self.assertEqual({'a': [1]}, json.loads(path.read_text()))
        outputs.write_json(None, {'a': [1]})

    def test_full_disk_raises_output_error(self):
        outputs.check(FULL)
        error = self.assertRaises(
            outputs.OutputError, outputs.write_json, FULL, {}
        )
        self.assertIn('/dev/full cannot be written: No space', str(error))

    def test_output_is_discarded_once_its_reader_has_ended(self):
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, 'w') as out, contextlib.redirect_stdout(out):
            with outputs.tables():
                print('more than a pipe holds ' * 10_000)
                print('more', flush=True)
                self.assertFalse(sys.stdout.isatty())
            self.assertIs(out, sys.stdout)

    def test_closed_standard_output_is_ignored(self):
        with contextlib.redirect_stdout(None), outputs.tables():
            print('discarded')


class SubcommandsTest(base.TestCase):
    def run_bench(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = bench.main([*words])
        return status, out.getvalue(), err.getvalue()

    def test_every_bench_refuses_an_unwritable_file_before_measuring(self):
        path = '/nonexistent/out.json'
        arguments = {'predictors': ('--traces', '/tmp')}
        for name in bench.SUBCOMMANDS:
            status, out, err = self.run_bench(
                name, *arguments.get(name, ()), '--json', path
            )
            self.assertEqual((1, ''), (status, out), name)
            self.assertTrue(
                err.startswith(f'nova-vhpc-bench {name}: {path} cannot be'),
                err,
            )
            self.assertEqual(1, err.count('\n'), err)

    def test_tables_are_printed_if_writing_fails_at_the_end(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name, 'a.csv')
            trace.write_text('vm0\n' + '1\n90\n' * 10)
            for words, table in (
                (
                    'controller --vms 3 --ticks 5 --json /dev/full',
                    'us per VM',
                ),
                (
                    f'predictors --traces {name} --rounds 1 --json /dev/full',
                    'table II',
                ),
            ):
                status, out, err = self.run_bench(*words.split())
                self.assertEqual(1, status, words)
                self.assertIn(table, out)
                # Matplotlib may print warnings before.
                last = err.splitlines()[-1]
                self.assertTrue(last.startswith('nova-vhpc-bench '), err)
                self.assertIn('cannot be written: No space left', last)
