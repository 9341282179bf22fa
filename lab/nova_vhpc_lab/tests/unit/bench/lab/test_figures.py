# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of the lab's figures."""

import contextlib
import io

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import figures, kbest, mixes, report

SCHEME = kbest.KBest(k=2, epsilon=0.02, m=4)


def run(**progress):
    return figures.Run(1, progress)


class FiguresTest(base.TestCase):
    clusters = mixes.MIXES['clusters']
    hogs = mixes.MIXES['hogs']
    phased = mixes.MIXES['phased']

    def test_efficiency_is_the_sum_of_progress(self):
        self.assertAlmostEqual(
            0.9,
            figures.efficiency(self.clusters, run(a=0.2, b=0.3, c=0.4)),
        )

    def test_members_of_a_cluster_count_once_in_efficiency(self):
        self.assertAlmostEqual(
            0.8, figures.efficiency(self.phased, run(p0=0.4, p1=0.6, c=0.3))
        )

    def test_fairness_is_the_least_over_the_greatest_progress(self):
        self.assertAlmostEqual(
            0.5, figures.fairness(self.clusters, run(a=0.2, b=0.3, c=0.4))
        )

    def test_fairness_compares_equal_guests_only(self):
        self.assertAlmostEqual(
            1.0, figures.fairness(self.phased, run(p0=0.4, p1=0.4, c=0.1))
        )

    def test_fair_share_of_hogs_on_two_cpus_is_half(self):
        self.assertAlmostEqual(0.5, figures.others_fair(self.hogs, 2))

    def test_speedup_is_the_geometric_mean_over_stock(self):
        summary = figures.summarise(
            self.clusters,
            {
                'stock': [run(a=0.1, b=0.1, c=0.1)],
                'default': [run(a=0.1, b=0.2, c=0.4)],
            },
            SCHEME,
        )
        self.assertEqual(1.0, summary['stock']['speedup'])
        self.assertAlmostEqual(2.0, summary['default']['speedup'], 2)
        self.assertEqual(
            {'a': 1.0, 'b': 2.0, 'c': 4.0}, summary['default']['speedups']
        )

    def test_loss_is_relative_to_stock_and_to_the_fair_share(self):
        summary = figures.summarise(
            self.hogs,
            {
                'stock': [run(a=0.1, b=0.1, h=0.2, i=0.2)],
                'default': [run(a=0.2, b=0.2, h=0.15, i=0.15)],
            },
            SCHEME,
        )
        self.assertAlmostEqual(0.25, summary['default']['loss'])
        self.assertAlmostEqual(0.4, summary['default']['loss_fair'])
        self.assertEqual([0.3], summary['default']['others'])

    def test_speedup_and_loss_are_none_without_stock(self):
        summary = figures.summarise(
            self.hogs, {'default': [run(a=0.2, b=0.2, h=0.15, i=0.15)]}, SCHEME
        )
        self.assertIsNone(summary['default']['speedup'])
        self.assertIsNone(summary['default']['loss'])
        self.assertAlmostEqual(0.4, summary['default']['loss_fair'])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            report.print_tables({'mixes': {'hogs': summary}})
        self.assertNotIn('%', out.getvalue())

    def test_cluster_without_progress_has_speedup_0(self):
        summary = figures.summarise(
            self.clusters,
            {
                'stock': [run(a=0.1, b=0.1, c=0.1)],
                'worse': [run(a=0.9, b=0.9, c=0.0)],
            },
            SCHEME,
        )
        self.assertEqual(0.0, summary['worse']['speedup'])
        self.assertEqual(
            {'speedup': 0.0, 'worst_speedup': 0.0},
            figures.overall({'clusters': summary})['worse'],
        )

    def test_latency_of_a_web_server_that_never_answers_is_not_shown(self):
        web = mixes.MIXES['web']
        progress = {guest.name: 0.5 for guest in web.guests}
        summary = figures.summarise(
            web,
            {
                'stock': [figures.Run(1, progress, (4.0,))],
                'worse': [figures.Run(1, progress)],
            },
            SCHEME,
        )
        with contextlib.redirect_stdout(io.StringIO()) as out:
            report.print_tables({'mixes': {'web': summary}})
        (line,) = (
            line for line in out.getvalue().splitlines() if 'worse' in line
        )
        cells = [cell.strip() for cell in line.strip('│').split('│')]
        self.assertEqual(['-', '-'], cells[5:7])

    def test_figures_are_medians_over_the_runs(self):
        summary = figures.summarise(
            self.clusters,
            {'stock': [run(a=x, b=x, c=x) for x in (0.1, 0.1, 9.0)]},
            SCHEME,
        )
        self.assertAlmostEqual(0.3, summary['stock']['efficiency'])
        self.assertEqual([0.3, 0.3, 27.0], summary['stock']['efficiencies'])

    def test_latency_lateness_and_cpus_are_summarised(self):
        web = mixes.MIXES['web']
        progress = {guest.name: 0.5 for guest in web.guests}
        cpus = {guest.name: 0.25 for guest in web.guests}
        summary = figures.summarise(
            web,
            {
                'default': [
                    figures.Run(1, progress, (4.0, 1.0), 100.4, cpus),
                    figures.Run(2, progress, (2.0,), None, cpus),
                    figures.Run(3, progress, (9.0,), 300.0, cpus),
                ],
                'stock': [figures.Run(1, progress)],
            },
            SCHEME,
        )
        default = summary['default']
        self.assertEqual(
            {'median': 4.0, 'mean': 4.0, 'p99': 9.0, 'answers_per_run': 1.3},
            default['latency_ms'],
        )
        self.assertEqual(200, default['window_late_us'])
        self.assertEqual(cpus, default['cpus'])
        self.assertEqual(3, default['runs'])
        # A web guest sleeps most of the time and has no fair share to lose.
        self.assertNotIn('loss_fair', default)
        for key in ('latency_ms', 'window_late_us', 'cpus'):
            self.assertNotIn(key, summary['stock'])

    def test_overall_leaves_out_mixes_without_overcommit(self):
        entry = {'default': {'speedups': {'a': 2.0}}}
        slow = {'default': {'speedups': {'a': 0.1}}}
        self.assertEqual(
            {'default': {'speedup': 2.0, 'worst_speedup': 2.0}},
            figures.overall({'clusters': entry, 'alone': slow}),
        )
