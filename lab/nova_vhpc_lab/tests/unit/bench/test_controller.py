# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of ``nova-vhpc-bench controller``."""

import contextlib
import gc
import io
import json
import pathlib
import tempfile
from unittest import mock

from nova_vhpc.agent import errors, process_limits
from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench import controller


class ControllerBenchTest(base.TestCase):
    def test_figures_of_each_number_of_vms_are_consistent(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch, 'out.json')
            with contextlib.redirect_stdout(io.StringIO()) as out:
                status = bench.main(
                    (
                        'controller --vms 3 9 --ticks 70 '
                        f'--predictor last_value --json {path}'
                    ).split()
                )
            figures = json.loads(path.read_text())
        self.assertEqual(0, status)
        self.assertEqual({'3', '9'}, set(figures['vms']))
        for count, row in figures['vms'].items():
            self.assertLessEqual(row['median_ms'], row['p99_ms'])
            self.assertLessEqual(row['p99_ms'], row['max_ms'])
            self.assertAlmostEqual(
                1e3 * row['mean_ms'] / int(count), row['us_per_vm']
            )
        self.assertIn('us per VM', out.getvalue())

    def run_bench(self, *words):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch, 'out.json')
            with contextlib.redirect_stdout(io.StringIO()) as out:
                status = bench.main(
                    [
                        *('controller', '--vms', '3', '--ticks', '5'),
                        *('--json', str(path), *words),
                    ]
                )
            figures = json.loads(path.read_text())
        self.assertEqual(0, status)
        headings = [
            line
            for line in out.getvalue().splitlines()
            if line.startswith('decide()')
        ]
        return figures, headings

    def test_agent_garbage_collection_applies_during_measurement(self):
        before = gc.get_threshold()
        self.addCleanup(gc.set_threshold, *before)
        settings = []
        measure = controller.measure

        def record_and_measure(*args):
            settings.append((gc.get_threshold(), gc.get_freeze_count() > 0))
            return measure(*args)

        with mock.patch.object(controller, 'measure', record_and_measure):
            self.run_bench()
        process_limits.settle_memory()
        self.addCleanup(gc.unfreeze)
        self.assertEqual([(gc.get_threshold(), True)] * 2, settings)

    def test_garbage_collection_is_reset_after_a_failed_measurement(self):
        before = gc.get_threshold()
        with mock.patch.object(
            controller, 'measure', side_effect=errors.ConfigError('none')
        ):
            self.assertEqual(
                2, self.status_of('controller', '--vms', '3', '--ticks', '5')
            )
        self.assertEqual(before, gc.get_threshold())
        self.assertEqual(0, gc.get_freeze_count())

    def status_of(self, *words):
        with (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            return bench.main([*words])

    def test_default_and_most_expensive_policies_are_measured_by_default(self):
        figures, headings = self.run_bench()
        self.assertEqual(2, len(headings))
        self.assertIn('gang / balance / nothing predicted', headings[0])
        self.assertIn('gang / io_pool / adaptive', headings[1])
        dearest = figures['dearest']
        for table, names in (
            (figures, ('gang', 'balance', False)),
            (dearest, ('gang', 'io_pool', True)),
        ):
            self.assertEqual(
                names,
                (
                    table['slice_policy'],
                    table['pinning_policy'],
                    table['predicts'],
                ),
            )
            self.assertEqual('adaptive', table['predictor'])
            self.assertEqual({'3'}, table['vms'].keys())
        self.assertNotIn('dearest', dearest)

    def test_given_policy_is_measured_alone(self):
        for words, heading in (
            (('--slice-policy', 'atc'), 'atc / balance / nothing predicted'),
            (('--pinning-policy', 'io_pool'), 'gang / io_pool / adaptive'),
        ):
            figures, headings = self.run_bench(*words)
            self.assertEqual(1, len(headings))
            self.assertIn(heading, headings[0])
            self.assertNotIn('dearest', figures)

    def test_unknown_predictor_is_refused_with_status_2(self):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(
                2, bench.main(['controller', '--predictor', 'nosuch'])
            )
        self.assertIn('predictor = nosuch', err.getvalue())
