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

"""Pictures of simulated clouds."""

import pathlib

import fixtures
from oslotest import base

from nova_vhpc.bench import cloud_plot
from nova_vhpc.bench.common import outputs
from nova_vhpc.tests.unit.bench import test_cloud_claims


class CloudPlotTest(base.BaseTestCase):
    def test_each_figure_is_a_picture(self) -> None:
        scratch = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        files = cloud_plot.draw(test_cloud_claims.LINUX, scratch / 'new')
        self.assertEqual(
            [
                f'cloud-linux-figure-{number}.svg'
                for number in ('10', '11', '12', '13-14')
            ],
            [file.name for file in files],
        )
        for file in files:
            self.assertIn('<svg', file.read_text())

    def test_directory_that_cannot_be_made_is_named(self) -> None:
        error = self.assertRaises(
            outputs.OutputError,
            cloud_plot.draw,
            test_cloud_claims.LINUX,
            pathlib.Path('/dev/null/x'),
        )
        self.assertIn('/dev/null/x', str(error))
