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

"""Arguments of ``nova-vhpc-bench network``."""

import pathlib

import fixtures

from nova_vhpc.cmd import bench
from nova_vhpc.tests import base


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
