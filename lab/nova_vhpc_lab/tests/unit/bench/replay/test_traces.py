# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of both leave rules on recorded NAS benchmarks."""

import itertools
import pathlib

from nova_vhpc import tests
from nova_vhpc.tests import base
from nova_vhpc_lab.bench.common import traces
from nova_vhpc_lab.bench.replay import run

TRACES = pathlib.Path(tests.__file__).parent / 'traces'


def replay(name, rule, predictor, repeat=1):
    """Replay a program that is run several times in a row."""
    trace = traces.read_gapped(TRACES / f'{name}.csv')
    trace = traces.GappedTrace(trace.name, trace.vms, trace.rows * repeat)
    return run.replay(trace, rule, predictor)


# Moves by the paper's rule and by ours, as documented on the page about the
# control core. A replay is deterministic.
RLE = {
    'bt-a': (57, 9),
    'lu-a': (66, 28),
    'mg-b': (19, 5),
    'sp-a': (3, 3),
    'cg-a': (1, 1),
}
ADAPTIVE = {
    'bt-a': (63, 7),
    'lu-a': (2, 2),
    'mg-b': (8, 1),
    'sp-a': (1, 1),
    'cg-a': (1, 1),
}


def stays(phases):
    """Return the lengths of complete stays in the I/O phase, in periods."""
    lengths = [
        len(list(stay))
        for phase, stay in itertools.groupby(phases)
        if phase == 'io'
    ]
    return lengths[:-1] if phases[-1] == 'io' else lengths


class LeaveRuleTest(base.TestCase):
    def moves(self, name, predictor, repeat=1):
        return tuple(
            len(replay(name, rule, predictor, repeat).moves)
            for rule in ('paper', 'ours')
        )

    def test_moves_are_as_documented(self):
        for predictor, moves in (('rle', RLE), ('adaptive', ADAPTIVE)):
            self.assertEqual(
                moves, {name: self.moves(name, predictor) for name in moves}
            )

    def test_shortest_stay_is_1_by_the_paper_and_3_or_more_by_ours(self):
        shortest = {
            rule: min(
                min(stays(replay(name, rule, 'rle').phases), default=99)
                for name in RLE
            )
            for rule in ('paper', 'ours')
        }
        self.assertEqual(1, shortest['paper'])
        self.assertGreaterEqual(shortest['ours'], 3)

    def test_regular_pauses_cause_many_moves_by_the_paper_only(self):
        # Multi-grid and block-tridiagonal: pauses of four periods and
        # more between exchanges, figure 5 of the paper.
        for name, repeat in (('bt-a', 1), ('mg-b', 6)):
            for predictor in ('last_value', 'rle', 'markov'):
                paper, ours = self.moves(name, predictor, repeat)
                self.assertGreaterEqual(paper, 50, (name, predictor))
                self.assertLessEqual(ours, paper // 4, (name, predictor))

    def test_irregular_pauses_of_lu_cause_fewer_moves_by_ours(self):
        # After half of the moves out of the pool, LU computes for longer,
        # and those moves are right.
        for predictor in ('last_value', 'rle', 'gpht'):
            paper, ours = self.moves('lu-a', predictor)
            self.assertGreaterEqual(paper, 40, predictor)
            self.assertLessEqual(ours, paper * 3 // 5, predictor)

    def test_ours_stays_longer_in_the_pool(self):
        # The price of fewer moves: low periods are spent in the I/O pool.
        for name in ('bt-a', 'lu-a'):
            paper, ours = (
                replay(name, rule, 'rle').io_fraction
                for rule in ('paper', 'ours')
            )
            self.assertGreater(ours, paper, name)

    def test_cg_without_pauses_stays_in_the_pool(self):
        # The recorded run has no pause of three periods. Only the end of the
        # program causes moves, if the program is repeated.
        self.assertEqual((1, 1), self.moves('cg-a', 'rle'))
        paper, ours = self.moves('cg-a', 'last_value', repeat=6)
        self.assertGreater(paper, 2 * ours)

    def test_ours_never_moves_more(self):
        for path in sorted(TRACES.glob('*.csv')):
            paper, ours = self.moves(path.stem, 'rle')
            self.assertLessEqual(ours, paper, path.stem)

    def test_program_without_io_is_never_moved(self):
        self.assertEqual((0, 0), self.moves('ep-b', 'rle'))
