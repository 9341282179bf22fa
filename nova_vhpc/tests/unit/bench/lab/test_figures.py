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


"""The lab's arithmetic: what the figures are made of."""

import contextlib
import io

from nova_vhpc.bench.lab import figures, kbest, mixes, plot, report
from nova_vhpc.tests import base

SCHEME = kbest.KBest(k=2, epsilon=0.02, m=4)


def run(**progress):
    return figures.Run(1, progress)


class TestFigures(base.TestCase):
    """The definitions of DESIGN.md, section 7."""

    clusters = mixes.MIXES['clusters']
    hogs = mixes.MIXES['hogs']
    phased = mixes.MIXES['phased']

    def test_efficiency_is_the_sum_of_parts(self):
        self.assertAlmostEqual(
            0.9,
            figures.efficiency(self.clusters, run(a=0.2, b=0.3, c=0.4)),
        )

    def test_a_cluster_counts_once_whatever_its_members(self):
        self.assertAlmostEqual(
            0.8, figures.efficiency(self.phased, run(p0=0.4, p1=0.6, c=0.3))
        )

    def test_fairness_is_least_over_greatest(self):
        self.assertAlmostEqual(
            0.5, figures.fairness(self.clusters, run(a=0.2, b=0.3, c=0.4))
        )

    def test_fairness_compares_equals_only(self):
        self.assertAlmostEqual(
            1.0, figures.fairness(self.phased, run(p0=0.4, p1=0.4, c=0.1))
        )

    def test_fair_share_of_hogs(self):
        self.assertAlmostEqual(0.5, figures.others_fair(self.hogs, 2))

    def test_speedup_is_the_geometric_mean_over_stock(self):
        found = figures.summarise(
            self.clusters,
            {
                'stock': [run(a=0.1, b=0.1, c=0.1)],
                'default': [run(a=0.1, b=0.2, c=0.4)],
            },
            SCHEME,
        )
        self.assertEqual(1.0, found['stock']['speedup'])
        self.assertAlmostEqual(2.0, found['default']['speedup'], 2)
        self.assertEqual(
            {'a': 1.0, 'b': 2.0, 'c': 4.0}, found['default']['speedups']
        )

    def test_loss_is_against_stock_and_against_the_fair_share(self):
        found = figures.summarise(
            self.hogs,
            {
                'stock': [run(a=0.1, b=0.1, h=0.2, i=0.2)],
                'default': [run(a=0.2, b=0.2, h=0.15, i=0.15)],
            },
            SCHEME,
        )
        self.assertAlmostEqual(0.25, found['default']['loss'])
        self.assertAlmostEqual(0.4, found['default']['loss_fair'])
        self.assertEqual([0.3], found['default']['others'])

    def test_nothing_is_said_against_a_stock_that_was_not_measured(self):
        found = figures.summarise(
            self.hogs, {'default': [run(a=0.2, b=0.2, h=0.15, i=0.15)]}, SCHEME
        )
        self.assertIsNone(found['default']['speedup'])
        self.assertIsNone(found['default']['loss'])
        self.assertAlmostEqual(0.4, found['default']['loss_fair'])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            report.print_tables({'mixes': {'hogs': found}})
        self.assertNotIn('%', out.getvalue())

    def test_a_cluster_that_stands_still_is_no_missing_figure(self):
        found = figures.summarise(
            self.clusters,
            {
                'stock': [run(a=0.1, b=0.1, c=0.1)],
                'worse': [run(a=0.9, b=0.9, c=0.0)],
            },
            SCHEME,
        )
        self.assertEqual(0.0, found['worse']['speedup'])
        self.assertEqual(
            {'speedup': 0.0, 'worst_speedup': 0.0},
            figures.overall({'clusters': found})['worse'],
        )

    def test_a_web_server_that_never_answers_is_not_the_fastest(self):
        web = mixes.MIXES['web']
        progress = {one.name: 0.5 for one in web.guests}
        found = figures.summarise(
            web,
            {
                'stock': [figures.Run(1, progress, (4.0,))],
                'worse': [figures.Run(1, progress)],
            },
            SCHEME,
        )
        with contextlib.redirect_stdout(io.StringIO()) as out:
            report.print_tables({'mixes': {'web': found}})
        (line,) = (x for x in out.getvalue().splitlines() if 'worse' in x)
        cells = [cell.strip() for cell in line.strip('│').split('│')]
        self.assertEqual(['-', '-'], cells[5:7])

    def test_medians_not_means(self):
        found = figures.summarise(
            self.clusters,
            {'stock': [run(a=x, b=x, c=x) for x in (0.1, 0.1, 9.0)]},
            SCHEME,
        )
        self.assertAlmostEqual(0.3, found['stock']['efficiency'])
        self.assertEqual([0.3, 0.3, 27.0], found['stock']['efficiencies'])

    def test_what_a_run_tells_besides(self):
        web = mixes.MIXES['web']
        progress = {one.name: 0.5 for one in web.guests}
        cpus = {one.name: 0.25 for one in web.guests}
        found = figures.summarise(
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
        default = found['default']
        self.assertEqual(
            {'median': 4.0, 'mean': 4.0, 'p99': 9.0, 'answers_per_run': 1.3},
            default['latency_ms'],
        )
        self.assertEqual(200, default['window_late_us'])
        self.assertEqual(cpus, default['cpus'])
        self.assertEqual(3, default['runs'])
        # A web guest sleeps: it has no fair share to lose.
        self.assertNotIn('loss_fair', default)
        for key in ('latency_ms', 'window_late_us', 'cpus'):
            self.assertNotIn(key, found['stock'])

    def test_overall_leaves_out_what_is_not_overcommitted(self):
        entry = {'default': {'speedups': {'a': 2.0}}}
        slow = {'default': {'speedups': {'a': 0.1}}}
        self.assertEqual(
            {'default': {'speedup': 2.0, 'worst_speedup': 2.0}},
            figures.overall({'clusters': entry, 'alone': slow}),
        )

    def test_times_are_normalised_to_stock(self):
        document = {
            'mixes': {
                'clusters': {
                    'stock': {'speedup': 1.0},
                    'default': {'speedup': 4.0},
                    'broken': {'speedup': None},
                }
            }
        }
        self.assertEqual(
            {'clusters': {'stock': 1.0, 'default': 0.25}},
            plot.normalised_times(document),
        )
