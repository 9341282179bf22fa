# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Files that cannot be written: said at once, and nothing is lost."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
from unittest import mock

from nova_vhpc.bench.common import outputs
from nova_vhpc.cmd import bench
from nova_vhpc.tests import base

FULL = pathlib.Path('/dev/full')
"""Takes no byte, but can be opened."""


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

    def test_what_can_be_written(self):
        there = self.directory / 'there.json'
        there.write_text('old')
        outputs.check(None, there, self.directory / 'new.json')
        outputs.check(pathlib.Path(os.devnull), pathlib.Path('name-only'))
        self.assertEqual('old', there.read_text())
        self.assertEqual([there], list(self.directory.iterdir()))

    def test_no_directory(self):
        path = self.directory / 'none' / 'out.json'
        self.assert_refused(path, f'no directory {path.parent}')
        file = self.directory / 'file'
        file.touch()
        self.assert_refused(file / 'out.json', f'no directory {file}')

    def test_a_directory_is_no_file(self):
        self.assert_refused(self.directory, 'is a directory')

    def test_the_second_is_looked_at_too(self):
        self.assertRaises(
            outputs.OutputError, outputs.check, None, self.directory
        )

    def test_no_permission(self):
        # Root may write anywhere.
        there = self.directory / 'there.json'
        there.touch()
        with mock.patch.object(os, 'access', return_value=False):
            self.assert_refused(there, 'no permission')
            self.assert_refused(
                self.directory / 'new.json',
                f'no permission to make a file in {self.directory}',
            )

    def test_a_document(self):
        path = self.directory / 'out.json'
        outputs.write_json(path, {'a': [1]})
        self.assertEqual({'a': [1]}, json.loads(path.read_text()))
        outputs.write_json(None, {'a': [1]})

    def test_a_disk_that_is_full(self):
        outputs.check(FULL)
        error = self.assertRaises(
            outputs.OutputError, outputs.write_json, FULL, {}
        )
        self.assertIn('/dev/full cannot be written: No space', str(error))

    def test_a_reader_that_leaves(self):
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, 'w') as out, contextlib.redirect_stdout(out):
            with outputs.tables():
                print('what fills the pipe ' * 10_000)
                print('and more', flush=True)
                self.assertFalse(sys.stdout.isatty())
            self.assertIs(out, sys.stdout)

    def test_standard_output_that_is_closed(self):
        with contextlib.redirect_stdout(None), outputs.tables():
            print('nothing')


class SubcommandsTest(base.TestCase):
    def run_bench(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = bench.main([*words])
        return status, out.getvalue(), err.getvalue()

    def test_all_complain_before_they_measure(self):
        path = '/nonexistent/out.json'
        needed = {'predictors': ('--traces', '/tmp'), 'replay': ('x.csv',)}
        for name in bench.SUBCOMMANDS:
            status, out, err = self.run_bench(
                name, *needed.get(name, ()), '--json', path
            )
            self.assertEqual((1, ''), (status, out), name)
            self.assertTrue(
                err.startswith(f'nova-vhpc-bench {name}: {path} cannot be'),
                err,
            )
            self.assertEqual(1, err.count('\n'), err)

    def test_the_picture_is_looked_at_before_the_replay(self):
        status, out, err = self.run_bench(
            'replay', 'x.csv', '--plot', '/nonexistent/out.png'
        )
        self.assertEqual((1, ''), (status, out))
        self.assertIn('/nonexistent/out.png cannot be written', err)

    def test_tables_are_printed_when_writing_fails_in_the_end(self):
        with tempfile.TemporaryDirectory() as name:
            trace = pathlib.Path(name, 'a.csv')
            trace.write_text('vm0\n' + '1\n90\n' * 10)
            picture = pathlib.Path(name, 'full.png')
            picture.symlink_to(FULL)
            for words, table in (
                (
                    'controller --vms 3 --ticks 5 --json /dev/full',
                    'us per VM',
                ),
                (
                    f'predictors --traces {name} --rounds 1 --json /dev/full',
                    'table II',
                ),
                (f'replay {trace} --json /dev/full', 'predicted right'),
                (f'replay {trace} --plot {picture}', 'predicted right'),
            ):
                status, out, err = self.run_bench(*words.split())
                self.assertEqual(1, status, words)
                self.assertIn(table, out)
                # Matplotlib may have something to say before it.
                last = err.splitlines()[-1]
                self.assertTrue(last.startswith('nova-vhpc-bench '), err)
                self.assertIn('cannot be written: No space left', last)
