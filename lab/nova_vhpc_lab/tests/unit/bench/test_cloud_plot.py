# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Pictures of simulated clouds."""

import pathlib

import fixtures
from oslotest import base

from nova_vhpc_lab.bench import cloud_plot
from nova_vhpc_lab.bench.common import outputs
from nova_vhpc_lab.tests.unit.bench import test_cloud_claims


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
