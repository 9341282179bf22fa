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

"""``nova-vhpc-bench controller``: figures that hold together."""

import contextlib
import gc
import io
import json
import pathlib
import tempfile
from unittest import mock

from nova_vhpc.agent import errors, process_limits
from nova_vhpc.bench import controller
from nova_vhpc.cmd import bench
from nova_vhpc.tests import base


class ControllerBenchTest(base.TestCase):
    def test_figures(self):
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
        for count, one in figures['vms'].items():
            self.assertLessEqual(one['median_ms'], one['p99_ms'])
            self.assertLessEqual(one['p99_ms'], one['max_ms'])
            self.assertAlmostEqual(
                1e3 * one['mean_ms'] / int(count), one['us_per_vm']
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

    def test_garbage_is_collected_as_in_the_agent(self):
        before = gc.get_threshold()
        self.addCleanup(gc.set_threshold, *before)
        seen = []
        measure = controller.measure

        def look(*args):
            seen.append((gc.get_threshold(), gc.get_freeze_count() > 0))
            return measure(*args)

        with mock.patch.object(controller, 'measure', look):
            self.run_bench()
        process_limits.settle_memory()
        self.addCleanup(gc.unfreeze)
        self.assertEqual([(gc.get_threshold(), True)] * 2, seen)

    def test_garbage_is_collected_as_before_afterwards(self):
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

    def test_what_is_shipped_and_what_is_dearest(self):
        figures, headings = self.run_bench()
        self.assertEqual(2, len(headings))
        self.assertIn('gang / balance / nothing predicted', headings[0])
        self.assertIn('gang / io_pool / adaptive', headings[1])
        dearest = figures['dearest']
        for one, names in (
            (figures, ('gang', 'balance', False)),
            (dearest, ('gang', 'io_pool', True)),
        ):
            self.assertEqual(
                names,
                (one['slice_policy'], one['pinning_policy'], one['predicts']),
            )
            self.assertEqual('adaptive', one['predictor'])
            self.assertEqual({'3'}, one['vms'].keys())
        self.assertNotIn('dearest', dearest)

    def test_a_policy_that_is_named_is_measured_alone(self):
        for words, heading in (
            (('--slice-policy', 'atc'), 'atc / balance / nothing predicted'),
            (('--pinning-policy', 'io_pool'), 'gang / io_pool / adaptive'),
        ):
            figures, headings = self.run_bench(*words)
            self.assertEqual(1, len(headings))
            self.assertIn(heading, headings[0])
            self.assertNotIn('dearest', figures)

    def test_bad_arguments(self):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(
                2, bench.main(['controller', '--predictor', 'nosuch'])
            )
        self.assertIn('predictor = nosuch', err.getvalue())
