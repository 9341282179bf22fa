# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of ``nova-vhpc-bench replay`` by its command line."""

import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import xml.etree.ElementTree

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench.common import traces
from nova_vhpc_lab.bench.replay import plot, run

CG_LIKE = ([600.0] * 20 + [20.0] * 5) * 12


class ReplayTest(base.TestCase):
    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def trace(self, text=None):
        path = self.dir / 'cg-like.csv'
        if text is None:
            rows = [f'{value},{value / 2}' for value in CG_LIKE]
            text = '\n'.join(['vm0,vm1', *rows, ''])
        path.write_text(text, encoding='utf-8')
        return path

    def run_bench(self, *args):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = bench.main(
                ['replay', *map(str, args), '--predictor', 'last_value']
            )
        return status, out.getvalue(), err.getvalue()

    def test_json_has_the_moves_of_both_leave_rules(self):
        path = self.dir / 'out.json'
        status, out, _ = self.run_bench(self.trace(), '--json', path)
        self.assertEqual(0, status)
        figures = json.loads(path.read_text())
        paper, ours = (figures['rules'][rule] for rule in ('paper', 'ours'))
        # Figure 5 of the paper, by its own rule and by ours.
        self.assertGreaterEqual(paper['moves'], 12)
        self.assertEqual(1, ours['moves'])
        self.assertEqual(len(CG_LIKE), len(ours['phases']))
        self.assertEqual(CG_LIKE, ours['vms']['vm0']['events'])
        # Each of two VMs is written at each move, and once at the start.
        self.assertEqual(2 + 2 * paper['moves'], paper['writes'])
        self.assertIn('cg-like: 2 VMs, 300 periods', out)

    def test_prediction_is_listed_with_the_period_it_is_for(self):
        trace = traces.read_gapped(self.trace())
        line = run.replay(trace, 'ours', 'last_value').vms['vm0']
        self.assertEqual(line.states[:-1], line.predicted_states[1:])
        self.assertIsNone(line.predicted_states[0])
        changes = 2 * 12 - 1
        self.assertAlmostEqual(
            1 - changes / (len(CG_LIKE) - 1), line.precision
        )

    def test_members_move_in_the_period_in_which_the_phase_changes(self):
        trace = traces.read_gapped(self.trace())
        result = run.replay(trace, 'paper', 'last_value')
        self.assertEqual(result.phase_changes, len(result.moves))
        self.assertEqual(result.io_phase_fraction, result.io_fraction)
        self.assertEqual({}, result.not_followed)
        for move in result.moves:
            self.assertEqual(('vm0', 'vm1'), move.vms)
            self.assertEqual(move.to, result.phases[move.period])
            self.assertNotEqual(move.to, result.phases[move.period - 1])

    def test_phase_without_room_in_the_pool_is_counted_as_not_followed(self):
        path = self.dir / 'out.json'
        for cpus, expected_reason in (
            (2, 'has 2 vCPUs, too many for the I/O pool'),
            (1, 'no pools: 1 CPU to pin to'),
        ):
            status, out, _ = self.run_bench(
                self.trace(), '--cpus', cpus, '--json', path
            )
            self.assertEqual(0, status)
            self.assertIn('phase not followed', out)
            self.assertIn(expected_reason, out)
            self.assertRegex(out, r'paper +0 +0\.0% ')
            paper = json.loads(path.read_text())['rules']['paper']
            self.assertEqual((0, []), (paper['moves'], paper['move_list']))
            self.assertEqual(0.0, paper['io_fraction'])
            self.assertEqual(0.0, paper['vms']['vm0']['io_fraction'])
            # The phase changes although no VM moves.
            self.assertGreaterEqual(paper['phase_changes'], 12)
            periods = paper['phases'].count('io')
            self.assertEqual(periods / 300, paper['io_phase_fraction'])
            ((reason, vm_periods),) = paper['not_followed']['reasons'].items()
            self.assertIn(expected_reason, reason)
            self.assertEqual(2 * periods, vm_periods)
            self.assertEqual(periods / 300, paper['not_followed']['fraction'])

    def test_picture_is_drawn_as_png_and_svg(self):
        self.assertIsNotNone(importlib.util.find_spec('matplotlib'))
        for suffix in ('.png', '.svg'):
            path = self.dir / f'out{suffix}'
            status, _, _ = self.run_bench(
                self.trace(), '--plot', path, '--leave-rule', 'paper'
            )
            self.assertEqual(0, status)
            self.assertGreater(path.stat().st_size, 10_000)
        xml.etree.ElementTree.parse(path)

    def test_dollars_in_vm_names_are_not_drawn_as_formulas(self):
        trace = self.dir / 'dollars.csv'
        trace.write_text('$\\frac{$,$b$\n' + '10,90\n90,10\n' * 10)
        path = self.dir / 'dollars.svg'
        status, _, _ = self.run_bench(trace, '--plot', path)
        self.assertEqual(0, status)
        xml.etree.ElementTree.parse(path)

    def test_picture_shows_the_phase_and_the_pool_apart(self):
        drawn = {}
        for cpus in (2, 4):
            path = self.dir / f'{cpus}.svg'
            self.run_bench(self.trace(), '--cpus', cpus, '--plot', path)
            drawn[cpus] = path.read_text().splitlines()

        def shapes(cpus, colour):
            return sum(colour in line for line in drawn[cpus])

        # Each colour occurs once in the legend.
        self.assertEqual(1, shapes(2, plot.IN_IO_POOL))
        self.assertGreater(shapes(4, plot.IN_IO_POOL), 1)
        self.assertGreater(shapes(2, plot.IO_PHASE), 1)
        self.assertEqual(*(shapes(cpus, plot.IO_PHASE) for cpus in drawn))

    def test_picture_of_an_unknown_type_is_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            error = self.assertRaises(
                SystemExit,
                bench.main,
                ['replay', str(self.trace()), '--plot', 'out.jpg'],
            )
        self.assertEqual(2, error.code)
        self.assertIn("'out.jpg' must end in .svg or .png", err.getvalue())

    def test_missing_matplotlib_is_reported_with_the_pip_command(self):
        for name in [*sys.modules]:
            if name.split('.')[0] == 'matplotlib':
                self.addCleanup(
                    sys.modules.__setitem__, name, sys.modules.pop(name)
                )
        sys.modules['matplotlib'] = None
        self.addCleanup(sys.modules.pop, 'matplotlib', None)
        status, _, err = self.run_bench(
            self.trace(), '--plot', self.dir / 'out.png'
        )
        self.assertEqual(1, status)
        self.assertIn('pip install -e . -e lab', err)

    def test_cells_without_a_number_of_events_count_as_not_measured(self):
        path = self.trace('a,b\n5,x\n,7\nnan,inf\n-3,1e3\n1\n')
        trace = traces.read_gapped(path)
        self.assertEqual(
            (
                (5.0, None),
                (None, 7.0),
                (None, None),
                (None, 1000.0),
                (1.0, None),
            ),
            trace.rows,
        )
        result = run.replay(trace, 'ours', 'last_value')
        self.assertEqual(0, result.ignored)
        self.assertIn('6 cells are not a number', self.run_bench(path)[1])
        self.assertNotIn('cells', self.run_bench(self.trace())[1])

    def test_file_without_any_number_is_refused(self):
        for text in ('a;b\n1;2\n3;4\n', 'a,b\nx,\nnan,y\n'):
            status, out, err = self.run_bench(self.trace(text))
            self.assertEqual((1, ''), (status, out))
            self.assertIn('cg-like.csv: there is no number in it', err)
            self.assertIn('separated by commas', err)

    def test_row_with_more_values_than_vms_is_refused(self):
        # A number with a decimal comma is split into two values.
        status, out, err = self.run_bench(self.trace('a;b\n1,5;2,5\n'))
        self.assertEqual((1, ''), (status, out))
        self.assertIn('cg-like.csv, line 2: 3 values for 1 VMs', err)
        self.assertIn('separated by commas', err)

    def test_row_of_empty_cells_is_a_period(self):
        path = self.trace('a,b\n1,2\n,\n3,4\n\n')
        self.assertEqual(
            ((1.0, 2.0), (None, None), (3.0, 4.0)),
            traces.read_gapped(path).rows,
        )

    def test_byte_order_mark_is_not_part_of_a_name(self):
        path = self.trace('\ufeffa,b\n1,2\n')
        self.assertEqual(('a', 'b'), traces.read_gapped(path).vms)

    def test_unreadable_trace_is_refused(self):
        for text in ('', 'vm0,vm1\n', 'a,a\n1,2\n'):
            status, _, err = self.run_bench(self.trace(text))
            self.assertEqual(1, status)
            self.assertIn('cg-like.csv: ', err)
        status, _, err = self.run_bench(self.dir / 'nosuch.csv')
        self.assertEqual(1, status)
        self.assertIn('cannot be read', err)

    def test_unknown_pinning_policy_is_refused_with_status_2(self):
        status, _, err = self.run_bench(
            self.trace(), '--pinning-policy', 'nosuch'
        )
        self.assertEqual(2, status)
        self.assertIn('pinning_policy = nosuch', err)
