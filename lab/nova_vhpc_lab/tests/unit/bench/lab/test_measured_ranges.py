# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ranges that the lab measured, and how they are renewed."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import (
    figures,
    kbest,
    measured_ranges,
    mix_figures,
    mixes,
    runner,
)


def runs_of(*hogs, latencies_ms=()):
    return [
        figures.Run(
            number,
            {'a': 0.2, 'b': 0.1, 'h': hog, 'i': hog, 'w': 1.0},
            latencies_ms,
            1_500.0,
            dict.fromkeys('abhiw', 0.5),
        )
        for number, hog in enumerate(hogs, 1)
    ]


def document(name, default):
    """Return the JSON of a lab that measured one mix."""
    measured = runner.MixRuns(
        {'stock': runs_of(0.2, 0.4), 'default': default}, [0.0, 0.0], 0.1
    )
    lab = {
        'when': '2026-01-01',
        'mixes': {},
        'scheme': {'settle_s': 7.0, 'measure_s': 3.0},
    }
    mix_figures.add(lab, mixes.MIXES[name], measured, kbest.KBest(), 2)
    return lab


class MeasuredRangesTest(base.TestCase):
    def test_ranges_of_the_lab_and_of_simulated_runs_are_the_same(self):
        runs = runs_of(0.2, 0.3, 0.25)
        ranges = measured_ranges.renewed({}, document('hogs', runs))
        simulated = measured_ranges.of_runs(mixes.MIXES['hogs'], runs)
        self.assertEqual(
            {'efficiency', 'fairness', 'others', 'late_ms'}, simulated.keys()
        )
        for figure, values in simulated.items():
            for one, other in zip(
                values, ranges['hogs']['default'][figure], strict=True
            ):
                self.assertAlmostEqual(one, other, places=3)

    def test_times_of_the_measurement_are_kept(self):
        ranges = measured_ranges.renewed({}, document('hogs', runs_of(0.2)))
        entry = ranges['hogs']['default']
        self.assertEqual((7.0, 3.0), (entry['settle_s'], entry['measure_s']))
        self.assertEqual((1, '2026-01-01'), (entry['runs'], entry['when']))

    def test_latency_is_the_99th_percentile_of_all_answers(self):
        runs = runs_of(0.2, latencies_ms=(1.0,) * 98 + (5.0, 5.0))
        ranges = measured_ranges.renewed({}, document('web', runs))
        self.assertEqual([5.0] * 3, ranges['web']['default']['p99_ms'])
        simulated = measured_ranges.of_runs(mixes.MIXES['web'], runs)
        self.assertEqual((5.0,) * 3, simulated['p99_ms'])

    def test_what_was_not_measured_again_is_kept(self):
        first = measured_ranges.renewed({}, document('hogs', runs_of(0.2)))
        second = measured_ranges.renewed(first, document('web', []))
        self.assertEqual(first['hogs'], second['hogs'])
        self.assertEqual({'stock'}, second['web'].keys())

    def test_shipped_file_has_known_mixes_and_figures_only(self):
        ranges = measured_ranges.load()
        self.assertLess({'clusters', 'others-share'}, ranges.keys())
        self.assertLessEqual(ranges.keys(), mixes.MIXES.keys())
        for by_policy in ranges.values():
            for entry in by_policy.values():
                for figure in measured_ranges.FIGURES:
                    if figure in entry:
                        median, least, most = entry[figure]
                        self.assertLessEqual(least, median)
                        self.assertLessEqual(median, most)
