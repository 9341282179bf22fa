# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Arguments of ``nova-vhpc-bench network``."""

import pathlib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench


class ArgumentsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.errors = self.useFixture(fixtures.StringStream('stderr'))
        self.useFixture(fixtures.MonkeyPatch('sys.stderr', self.errors.stream))
        scratch = self.useFixture(fixtures.TempDir()).path
        self.file = pathlib.Path(scratch) / 'costs.json'

    def said(self):
        self.errors.stream.flush()
        return self.errors.getDetails()['stderr'].as_text()

    def test_clusters_are_hosts_and_guests(self):
        for text in ('2', '1x1'):
            error = self.assertRaises(
                SystemExit, bench.main, ['network', '--clusters', text]
            )
            self.assertEqual(2, error.code)

    def test_calibration_needs_all_configurations(self):
        words = ['network', '--calibrate', str(self.file)]
        status = bench.main([*words, '--configurations', 'shared', 'separate'])
        self.assertEqual(2, status)
        self.assertIn('add exported, multiple-shared', self.said())

    def test_calibration_needs_two_guests_on_a_host(self):
        words = ['network', '--calibrate', str(self.file)]
        self.assertEqual(2, bench.main([*words, '--clusters', '8x1']))
        self.assertIn('best 2x4', self.said())

    def test_wrong_cost_table_is_named(self):
        self.file.write_text('{}')
        words = ['network', '--cost-table', str(self.file)]
        self.assertEqual(2, bench.main(words))
        self.assertIn(str(self.file), self.said())
