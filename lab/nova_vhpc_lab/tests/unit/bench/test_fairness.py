# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The command ``nova-vhpc-bench fairness``."""

import json
import pathlib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench

KEYS = {
    'vms',
    'worst',
    'below_090',
    'below_095',
    'worse_off',
    'progress_geomean',
    'stock_geomean',
    'equal_spread',
}


class TestFairness(base.TestCase):
    def setUp(self):
        super().setUp()
        scratch = self.useFixture(fixtures.TempDir()).path
        self.file = pathlib.Path(scratch) / 'fairness.json'

    def run_bench(self, *arguments):
        """Return the figures."""
        status = bench.main(
            [
                'fairness',
                '--seconds',
                '12',
                '--warm-up',
                '4',
                '--jobs',
                '1',
                '--json',
                str(self.file),
                *arguments,
            ]
        )
        self.assertEqual(0, status)
        return json.loads(self.file.read_text())

    def test_figures_have_the_keys_of_the_contract(self):
        figures = self.run_bench('--only', 'one-wide-neighbour')
        self.assertLessEqual(KEYS, figures.keys())
        self.assertEqual(3, figures['vms'])
        self.assertEqual(['one-wide-neighbour'], [*figures['by_host']])
        self.assertGreater(
            figures['progress_geomean'], figures['stock_geomean']
        )

    def test_same_seed_gives_the_same_figures(self):
        arguments = ('--hosts', '1', '--seed', '5')
        self.assertEqual(
            self.run_bench(*arguments), self.run_bench(*arguments)
        )

    def test_no_policy_changes_nothing(self):
        figures = self.run_bench(
            '--only',
            'starved-equal-gangs',
            '--slice-policy',
            'none',
            '--pinning-policy',
            'none',
        )
        self.assertEqual(0, figures['below_095'])

    def test_unknown_host_is_reported(self):
        self.assertEqual(2, bench.main(['fairness', '--only', 'nowhere']))
