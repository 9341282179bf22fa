# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of ``nova-vhpc-bench predictors``, on traces of known figures."""

import contextlib
import io
import json
import pathlib
import tempfile

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench.common import traces
from nova_vhpc_lab.bench.predictors.score import run_trace, score

KEYS = {
    'overall',
    'transition',
    'change_precision',
    'transitions',
    'us_per_prediction',
    'state_bytes',
}


class ScriptedPredictor:
    """Makes the predictions that it is given."""

    state_bytes = 0

    def __init__(self, predictions):
        self.predictions = iter(predictions)

    def observe(self, state, events):
        self.now = next(self.predictions)

    def predict(self):
        return self.now


class ScoreTest(base.TestCase):
    def score_one_vm(self, states, predictions):
        events = tuple(50.0 * (state - 1) for state in states)
        return score(
            lambda: ScriptedPredictor(predictions),
            traces.Trace('t', ('vm',), (events,)),
        )

    def test_precisions_are_defined_as_in_the_paper(self):
        # Each prediction is for the next period; the last one is not used.
        result = self.score_one_vm(
            states=(1, 1, 2, 2, 3, 1),
            predictions=(1, 2, 3, 2, 1, 9),
        )
        # 1 right, 2 right (transition), 3 wrong, 2 wrong, 1 right.
        self.assertEqual(3 / 5, result.overall)
        self.assertEqual(2 / 3, result.transition)
        self.assertEqual(2 / 3, result.change_precision)
        self.assertEqual(3, result.transitions)

    def test_predicted_change_to_the_wrong_state_does_not_count(self):
        result = self.score_one_vm(states=(1, 3), predictions=(2, 1))
        self.assertEqual(
            (0, 0, 0),
            (result.overall, result.transition, result.change_precision),
        )

    def test_precision_is_none_without_transition_or_predicted_change(self):
        result = self.score_one_vm(states=(1, 1, 1), predictions=(1, 1, 1))
        self.assertIsNone(result.transition)
        self.assertIsNone(result.change_precision)
        self.assertEqual(0.0, result.as_json()['transition'])

    def test_precisions_are_means_over_the_vms_they_are_defined_for(self):
        trace = traces.Trace(
            't', ('a', 'b'), ((0.0, 0.0, 0.0), (0.0, 60.0, 0.0))
        )
        result = score(lambda: ScriptedPredictor((2, 1, 1)), trace)
        # a: 1 of 2 right, no transition; b: all right, 2 transitions.
        self.assertEqual(0.75, result.overall)
        self.assertEqual(1.0, result.transition)
        self.assertEqual(1.0, result.transitions)
        self.assertEqual(0.5, result.change_precision)


class LoggingPredictor:
    """Logs its calls, and has a method ``for_peer``."""

    state_bytes = 0

    def __init__(self, log, name='first'):
        self.log = log
        self.name = name

    def for_peer(self):
        return LoggingPredictor(self.log, 'peer of ' + self.name)

    def observe(self, state, events):
        self.log.append((self.name, state))

    def predict(self):
        self.log.append((self.name, 'predict'))
        return 1


class MembersTest(base.TestCase):
    def test_all_vms_observe_a_period_before_any_predicts_the_next(self):
        log = []
        run_trace(
            lambda: LoggingPredictor(log),
            traces.Trace('t', ('a', 'b'), ((0.0, 60.0), (110.0, 160.0))),
        )
        first, peer = 'first', 'peer of first'
        predictions = [(first, 'predict'), (peer, 'predict')]
        self.assertEqual(
            [
                *((first, 1), (peer, 3), *predictions),
                *((first, 2), (peer, 4), *predictions),
            ],
            log,
        )

    def test_each_vm_is_scored_by_its_own_states(self):
        counts = run_trace(
            lambda: LoggingPredictor([]),
            traces.Trace(
                't', ('a', 'b'), ((0.0, 0.0, 0.0), (110.0, 0.0, 110.0))
            ),
        )
        self.assertEqual([2, 1], [vm.hits for vm in counts])
        self.assertEqual([0, 2], [vm.transitions for vm in counts])


class BenchTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.json = self.directory / 'out.json'

    def run_bench(self, *more):
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            status = bench.main(
                [
                    'predictors',
                    '--traces',
                    str(self.directory),
                    '--json',
                    str(self.json),
                    *more,
                ]
            )
        return status, out.getvalue(), err.getvalue()

    def test_tables_are_printed_and_json_is_written(self):
        cycle = '0,60\n60,0\n' * 30
        (self.directory / 'bt-x.csv').write_text(f'vm0,vm1\n{cycle}')
        (self.directory / 'ep-x.csv').write_text('vm0\n' + '0\n' * 30)
        status, out, err = self.run_bench('--rounds', '1')
        self.assertEqual((0, ''), (status, err))
        figures = json.loads(self.json.read_text())['traces']
        self.assertEqual({'bt-x', 'ep-x'}, figures.keys())
        for by_name in figures.values():
            self.assertLessEqual(
                {
                    'last_value',
                    'ewma',
                    'markov',
                    'rle',
                    'gpht',
                    'adaptive',
                },
                by_name.keys(),
            )
            for values in by_name.values():
                self.assertEqual(KEYS, values.keys())
                for key in ('overall', 'transition', 'change_precision'):
                    self.assertGreaterEqual(values[key], 0)
                    self.assertLessEqual(values[key], 1)
                self.assertGreater(values['us_per_prediction'], 0)
                self.assertGreater(values['state_bytes'], 0)
        self.assertEqual(0.0, figures['bt-x']['last_value']['overall'])
        self.assertEqual(59, figures['bt-x']['rle']['transitions'])
        self.assertGreater(figures['bt-x']['rle']['transition'], 0.9)
        self.assertGreater(figures['bt-x']['adaptive']['transition'], 0.9)
        self.assertEqual(1.0, figures['ep-x']['adaptive']['overall'])
        for words in ('table II)', 'table III)', 'N/A', 'Bytes of state'):
            self.assertIn(words, out)

    def test_unreadable_trace_is_reported_and_the_others_are_scored(self):
        (self.directory / 'good.csv').write_text('vm0\n1\n2\n')
        (self.directory / 'worse.csv').write_text('vm0\n1\nx\n')
        status, out, err = self.run_bench()
        self.assertEqual(1, status)
        self.assertIn('ignored: ', err)
        self.assertIn('worse.csv, line 3', err)
        self.assertIn('good', out)
        self.assertEqual(
            {'good'}, json.loads(self.json.read_text())['traces'].keys()
        )

    def test_no_json_is_written_if_all_traces_are_unreadable(self):
        (self.directory / 'worse.csv').write_text('vm0\n1\nx\n')
        status, out, err = self.run_bench()
        self.assertEqual((1, ''), (status, out))
        self.assertIn('worse.csv, line 3', err)
        self.assertFalse(self.json.exists())

    def test_directory_without_traces_fails(self):
        status, _out, err = self.run_bench()
        self.assertEqual(1, status)
        self.assertTrue(err.startswith('nova-vhpc-bench predictors: '), err)
        self.assertIn('no *.csv', err)

    def test_json_file_in_a_missing_directory_is_refused(self):
        (self.directory / 'good.csv').write_text('vm0\n1\n2\n')
        self.json = self.directory / 'none' / 'out.json'
        status, _out, err = self.run_bench()
        self.assertEqual(1, status)
        self.assertIn('none', err)
