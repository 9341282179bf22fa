# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Pictures of the network bench."""

import pathlib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.common import outputs
from nova_vhpc_lab.bench.network import plot

DOCUMENT = {
    'clusters': {
        '2x4': {
            'openmpi': {
                'native': {'alltoall_ms': 20.0, 'keys_ms': 10.0},
                'shared': {'alltoall_ms': 90.0, 'keys_ms': 40.0},
            },
            'mpich-ofi': {'shared': {'alltoall_ms': 90.0}},
        },
        '3x2': {'openmpi': {'native': {'halo_ms': 5.0}}},
    }
}


class DrawTest(base.TestCase):
    def test_each_cluster_and_library_with_native_is_a_picture(self):
        scratch = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        files = plot.draw(DOCUMENT, scratch / 'new')
        self.assertEqual(
            [
                'network-figure-10-openmpi.svg',
                # It is no cluster of the paper.
                'network-3x2-openmpi.svg',
            ],
            [file.name for file in files],
        )
        for file in files:
            self.assertIn('<svg', file.read_text())

    def test_directory_that_cannot_be_made_is_named(self):
        error = self.assertRaises(
            outputs.OutputError,
            plot.draw,
            DOCUMENT,
            pathlib.Path('/dev/null/x'),
        )
        self.assertIn('/dev/null/x', str(error))
