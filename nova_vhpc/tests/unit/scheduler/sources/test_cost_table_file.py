# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The operator's own cost table."""

import json
import pathlib

import fixtures

from nova_vhpc.scheduler.planner import cost_table
from nova_vhpc.scheduler.sources import cost_table_file
from nova_vhpc.tests import base


def paper_document():
    return json.loads(json.dumps(cost_table_file.document(cost_table.PAPER)))


class ParseTest(base.TestCase):
    def test_written_table_is_read_back(self):
        table = cost_table_file.parse(paper_document())
        self.assertEqual(cost_table.PAPER, table)

    def test_further_keys_are_ignored(self):
        document = paper_document() | {'measured': 'yesterday'}
        self.assertEqual(cost_table.PAPER, cost_table_file.parse(document))

    def test_missing_or_wrong_values_are_named(self):
        for key, value, named in (
            ('link_mbps', None, 'link_mbps'),
            ('link_mbps', 0, 'link_mbps'),
            ('no_spare_cpu', '1', 'no_spare_cpu'),
            ('latency_us', {}, 'latency_us.native'),
            ('local_mb_s', [], 'local_mb_s'),
            ('shared_uplinks', {'shared': -1}, 'shared_uplinks.shared'),
            ('two_interfaces', None, 'two_interfaces'),
        ):
            error = self.assertRaises(
                ValueError,
                cost_table_file.parse,
                paper_document() | {key: value},
            )
            self.assertIn(named, str(error))

    def test_row_must_be_numbers_above_zero(self):
        for row in ([], [1, 0], [1, None], 'fast', [float('nan')], [True]):
            document = paper_document()
            document['remote_mb_s']['shared'] = row
            error = self.assertRaises(
                ValueError, cost_table_file.parse, document
            )
            self.assertIn('remote_mb_s.shared', str(error))

    def test_other_documents_are_refused(self):
        for document in (None, [], 3, 'text'):
            self.assertRaises(ValueError, cost_table_file.parse, document)


class ReadTest(base.TestCase):
    def setUp(self):
        super().setUp()
        scratch = self.useFixture(fixtures.TempDir()).path
        self.path = pathlib.Path(scratch) / 'costs.json'

    def test_without_a_file_the_papers_hosts_count(self):
        for path in (None, ''):
            self.assertIs(cost_table.PAPER, cost_table_file.read(path))

    def test_file_is_read(self):
        self.path.write_text(json.dumps(paper_document() | {'link_mbps': 50}))
        self.assertEqual(50, cost_table_file.read(str(self.path)).link_mbps)

    def test_missing_file_is_named(self):
        error = self.assertRaises(
            ValueError, cost_table_file.read, str(self.path)
        )
        self.assertIn(str(self.path), str(error))
        self.assertIn('[vhpc_scheduler] cost_table', str(error))

    def test_broken_file_is_named_with_its_remedy(self):
        self.path.write_text('{"link_mbps": 50}')
        error = self.assertRaises(
            ValueError, cost_table_file.read, str(self.path)
        )
        self.assertIn(str(self.path), str(error))
        self.assertIn('--calibrate', str(error))
