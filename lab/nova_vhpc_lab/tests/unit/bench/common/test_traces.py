# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of reading traces without gaps."""

import pathlib
import tempfile

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.common import traces


class TracesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def write(self, text, name='a.csv'):
        path = self.directory / name
        path.write_text(text, encoding='utf-8')
        return path

    def assert_refused(self, text, *words):
        path = self.write(text)
        error = self.assertRaises(traces.TraceError, traces.read, path)
        for word in (str(path), *words):
            self.assertIn(word, str(error))

    def test_each_column_is_a_vm(self):
        trace = traces.read(self.write('vm0,vm1\n1,2\n3,4.5\n', 'bt-a.csv'))
        self.assertEqual('bt-a', trace.name)
        self.assertEqual(('vm0', 'vm1'), trace.vms)
        self.assertEqual(((1.0, 3.0), (2.0, 4.5)), trace.events)

    def test_byte_order_mark_and_blank_lines_are_ignored(self):
        trace = traces.read(self.write('\ufeffvm0\r\n1\r\n\r\n2\r\n\r\n'))
        self.assertEqual(('vm0',), trace.vms)
        self.assertEqual(((1.0, 2.0),), trace.events)

    def test_file_name_that_is_not_utf8_is_escaped(self):
        path = self.write('vm0\n1\n2\n', 'a\udcff.csv')
        for read in (traces.read, traces.read_gapped):
            self.assertEqual(r'a\udcff', read(path).name)

    def test_empty_file_is_refused(self):
        self.assert_refused('', 'empty')

    def test_single_period_is_refused(self):
        self.assert_refused('vm0\n1\n', '1 rows')

    def test_row_with_too_few_values_is_refused(self):
        self.assert_refused('vm0,vm1\n1,2\n3\n', 'line 3', '1 values')

    def test_cell_without_a_number_of_events_is_refused(self):
        for cell in ('x', '', 'nan', 'inf', '-1'):
            self.assert_refused(
                f'vm0,vm1\n1,2\n3,{cell}\n', 'line 3', f'"{cell}"'
            )

    def test_row_of_empty_cells_is_refused(self):
        self.assert_refused('vm0,vm1\n1,2\n,\n3,4\n', 'line 3', '""')

    def test_other_separators_are_refused_with_advice(self):
        for text in ('vm0;vm1\n1;2\n3;4\n', 'vm0\tvm1\n1\t2\n3\t4\n'):
            self.assert_refused(text, 'no number', 'separated by commas')

    def test_file_that_is_not_utf8_is_refused(self):
        path = self.directory / 'b.csv'
        path.write_bytes(b'vm0\n\xff\xfe\n1\n')
        self.assertRaises(traces.TraceError, traces.read, path)

    def test_directory_is_read_by_name_and_errors_are_returned(self):
        self.write('vm0\n1\n2\n', 'b.csv')
        self.write('vm0\n1\n2\n', 'a.csv')
        self.write('no trace', 'README.md')
        self.write('vm0\nx\n', 'ab.csv')
        readable, (error,) = traces.read_all(self.directory)
        self.assertEqual(['a', 'b'], [trace.name for trace in readable])
        self.assertIn('ab.csv', str(error))

    def test_empty_or_missing_directory_is_refused(self):
        for directory in (self.directory, self.directory / 'none'):
            error = self.assertRaises(
                traces.TraceError, traces.read_all, directory
            )
            self.assertIn(str(directory), str(error))
