# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Tests of the confidence ranges of the lab's figures."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import figures, intervals, mixes


class IntervalsTest(base.TestCase):
    hogs = mixes.MIXES['hogs']

    def run_of(self, number, hog, latencies_ms=()):
        guests = {'a': 0.2, 'b': 0.2, 'h': hog, 'i': hog}
        return figures.Run(number, guests, latencies_ms, cpus=guests)

    def test_runs_are_compared_within_their_round_only(self):
        stock = [self.run_of(1, 0.4), self.run_of(3, 0.8)]
        runs = [self.run_of(2, 0.1), self.run_of(3, 0.4), self.run_of(1, 0.4)]
        ranges = intervals.intervals(self.hogs, runs, stock)
        self.assertEqual([0.25, 0.0, 0.5], ranges['loss'])
        self.assertEqual([0.75, 0.5, 1.0], ranges['cpus_of_stock']['h'])
        self.assertEqual([1.0, 1.0, 1.0], ranges['speedup'])

    def test_without_stock_nothing_is_compared(self):
        ranges = intervals.intervals(self.hogs, [self.run_of(1, 0.4)], [])
        self.assertEqual({'efficiency', 'fairness'}, ranges.keys())

    def test_latency_is_compared_by_its_p99(self):
        stock = [self.run_of(1, 0.4, (1.0,) * 98 + (2.0, 2.0))]
        runs = [self.run_of(1, 0.4, (1.0,) * 98 + (3.0, 3.0))]
        ranges = intervals.intervals(self.hogs, runs, stock)
        self.assertEqual([1.5, 1.5, 1.5], ranges['p99_of_stock'])

    def test_guest_that_got_nothing_under_stock_is_not_compared(self):
        stock, runs = [self.run_of(1, 0.0)], [self.run_of(1, 0.4)]
        ranges = intervals.intervals(self.hogs, runs, stock)
        self.assertNotIn('loss', ranges)
        self.assertEqual({'a', 'b'}, ranges['cpus_of_stock'].keys())

    def test_text_of_a_range_that_was_not_measured_is_empty(self):
        self.assertEqual('', intervals.text({}, 'loss', '.1%'))
        self.assertEqual(
            '5.0% to 20.0%',
            intervals.text({'loss': [0.1, 0.05, 0.2]}, 'loss', '.1%'),
        )
