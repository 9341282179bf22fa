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


"""The page of claims: verdicts follow the figures."""

import re

import docutils.core

from nova_vhpc.bench.lab import claim_verdicts, paper_claims
from nova_vhpc.tests import base


def entry(**values):
    return {
        'efficiency': 0.5,
        'fairness': 0.9,
        'speedup': 1.0,
        'loss': 0.0,
        'runs': 3,
        **values,
    }


def rounds(**by_setting):
    """Three rounds that agree within a hundredth."""
    return {
        key.removeprefix('at_'): [value * 0.995, value, value * 1.005]
        for key, value in by_setting.items()
    }


def document(**slices):
    waits = {'at_100': 60.0, 'at_4': 8.0, 'at_2': 9.0}
    spin = {'at_none': 1.0, 'at_100': 1.0, 'at_4': 1.0, 'at_2': 0.5, **slices}
    cg = {'at_100': 1.0, 'at_20': 1.2, 'at_4': 2.0}
    ep = {'at_100': 1.0, 'at_20': 1.0, 'at_4': 0.9}

    def figures(by_setting):
        return {key[3:]: value for key, value in by_setting.items()}

    return {
        'claims': {
            'slices': {'wait_ms': figures(waits), 'a': figures(spin)},
            'talk': {'cg': figures(cg), 'ep': figures(ep)},
            'clock': {
                'window_ms': 50,
                'stock': 0.3,
                'by_error_ms': {'0': 0.9, '5': 0.7},
            },
            'rounds': {
                'slices': {'wait_ms': rounds(**waits), 'a': rounds(**spin)},
                'talk': {'cg': rounds(**cg), 'ep': rounds(**ep)},
                'memory': {'stream': rounds(at_100=1.0, at_20=1.0, at_4=0.97)},
                'pool': {
                    'cg': rounds(none=1.0, pools=1.8),
                    'ep': rounds(none=1.0, pools=0.99),
                },
                'spare': {'cg': rounds(none=1.0, spare=1.3)},
                'scaling': {'ep': rounds(at_1=1.0, at_2=1.95, at_4=1.9)},
            },
        },
        'mixes': {
            'clusters': {
                'stock': entry(efficiencies=[0.1, 0.2]),
                'atc': entry(efficiencies=[0.1, 0.21]),
                'default': entry(efficiencies=[0.8, 0.9]),
            },
            'hogs': {
                'stock': entry(others=[0.5, 0.5]),
                'atc': entry(others=[0.49, 0.5]),
                'default': entry(others=[0.47, 0.5]),
            },
            'network': {'stock': entry(efficiencies=[0.6, 0.6])},
        },
    }


class TestClaims(base.TestCase):
    """One claim after the other."""

    def verdict(self, title, figures):
        (claim,) = (
            c for c in paper_claims.PAPER_CLAIMS if c.title.startswith(title)
        )
        return claim.assess(figures).outcome

    def test_rounds_of_two_runs_are_not_compared(self):
        # As --merge leaves them; of before there was a "when" they count.
        figures = document()
        for mix, title in (
            ('clusters', 'ATC beats'),
            ('hogs', 'Programs that are not parallel'),
        ):
            by_policy = figures['mixes'][mix]
            for one in by_policy.values():
                one['when'] = 'today'
            self.verdict(title, figures)
            by_policy['stock']['when'] = 'yesterday'
            self.assertRaises(ValueError, self.verdict, title, figures)
        page = paper_claims.page({**figures, 'when': 'today'})
        self.assertIn(' Clusters under stock, hogs under stock: yester', page)
        self.assertNotIn('under atc: ', page)

    def test_latency_falls(self):
        self.assertEqual(
            claim_verdicts.HOLDS,
            self.verdict('A shorter time slice means', document()),
        )

    def test_no_gain_from_short_slices(self):
        self.assertEqual(
            claim_verdicts.FAILS,
            self.verdict('A shorter time slice makes', document()),
        )

    def test_gain_from_short_slices(self):
        self.assertEqual(
            claim_verdicts.HOLDS,
            self.verdict('A shorter time slice makes', document(at_4=3.0)),
        )

    def test_atc_does_not_help(self):
        self.assertEqual(
            claim_verdicts.FAILS, self.verdict('ATC beats', document())
        )

    def test_atc_by_what_all_clusters_got(self):
        figures = document()
        # One cluster that stalls under stock makes any speedup.
        figures['mixes']['clusters']['atc']['speedup'] = 7.0
        self.assertEqual(
            claim_verdicts.FAILS, self.verdict('ATC beats', figures)
        )
        figures['mixes']['clusters']['atc']['efficiencies'] = [0.3, 0.5]
        self.assertEqual(
            claim_verdicts.HOLDS, self.verdict('ATC beats', figures)
        )

    def test_runs_that_differ_decide_nothing(self):
        figures = document()
        figures['mixes']['clusters']['atc']['efficiencies'] = [0.3, 0.1]
        figures['mixes']['hogs']['atc']['others'] = [0.4, 0.6]
        figures['mixes']['network']['stock']['efficiencies'] = [0.2, 0.6]
        by_round = figures['claims']['rounds']
        for experiment, figure, setting, values in (
            ('slices', 'wait_ms', '4', [8.0, 70.0, 8.0]),
            ('slices', 'a', '4', [1.0, 3.0, 5.0]),
            ('talk', 'cg', '4', [2.0, 1.0, 2.0]),
            ('talk', 'ep', '4', [0.9, 1.2, 0.9]),
            ('memory', 'stream', '4', [0.97, 0.5, 0.97]),
            ('pool', 'cg', 'pools', [1.8, 1.0, 1.8]),
            ('pool', 'ep', 'pools', [1.0, 0.8, 1.0]),
            ('spare', 'cg', 'spare', [1.3, 1.0, 1.3]),
            ('scaling', 'ep', '2', [1.9, 1.2, 1.9]),
        ):
            by_round[experiment][figure][setting] = values
        figures['claims']['slices']['a']['4'] = 3.0
        for claim in paper_claims.PAPER_CLAIMS:
            if claim.assess in (
                claim_verdicts.needs_hosts,
                claim_verdicts.best_slice,
            ):
                continue
            self.assertEqual(
                claim_verdicts.UNDECIDED,
                claim.assess(figures).outcome,
                claim.title,
            )

    def test_the_shortest_slice_is_best_only_if_it_beats_each(self):
        title = '0.3 ms'
        self.assertEqual(claim_verdicts.FAILS, self.verdict(title, document()))
        shortest = document(at_2=2.0)
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, shortest))
        by_slice = shortest['claims']['rounds']['slices']['a']
        by_slice['100'] = [1.0, 1.0, 2.5]
        self.assertEqual(
            claim_verdicts.UNDECIDED, self.verdict(title, shortest)
        )

    def test_one_round_decides_of_no_slice_that_it_is_best(self):
        for figures in (document(), document(at_2=2.0)):
            by_slice = figures['claims']['rounds']['slices']['a']
            for values in by_slice.values():
                del values[1:]
            self.assertEqual(
                claim_verdicts.UNDECIDED, self.verdict('0.3 ms', figures)
            )

    def test_messages_stand_it_better(self):
        self.assertEqual(claim_verdicts.HOLDS, self.verdict('MPI', document()))

    def test_latency_and_time_go_together(self):
        # Execution times 1, 1 and 2 at waits of 60, 8 and 9 ms.
        (claim,) = (
            c for c in paper_claims.PAPER_CLAIMS if 'spinlock' in c.title
        )
        self.assertIn(
            'correlation with the execution time -0.49',
            claim.assess(document()).figure,
        )
        # Times that are all alike go together with nothing.
        alike = claim.assess(document(at_2=1.0)).figure
        self.assertNotIn('correlation', alike)

    def test_the_best_slice_by_the_distance_of_equation_1(self):
        # Times at 100 and 4 ms: 1 and 1, 1 and 0.5, 1 and 1.11.
        (claim,) = (
            c for c in paper_claims.PAPER_CLAIMS if '0.3 ms' in c.title
        )
        self.assertIn(
            '0.50 at 100 ms, 0.11 at 4 ms', claim.assess(document()).figure
        )

    def test_memory_loses_a_little(self):
        title = 'Short slices cost programs that are bound by memory'
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, document()))
        for much in (0.5, 1.2):
            figures = document()
            figures['claims']['rounds']['memory']['stream'] |= rounds(
                at_4=much
            )
            self.assertEqual(
                claim_verdicts.FAILS, self.verdict(title, figures)
            )

    def test_a_large_loss_beside_a_large_gain_decides_nothing(self):
        # Neither is a small loss, but that is between them.
        figures = document()
        by_round = figures['claims']['rounds']
        for experiment, figure, title in (
            ('memory', 'stream', 'Short slices cost programs that are'),
            ('talk', 'ep', 'Short slices cost programs that do'),
        ):
            values = by_round[experiment][figure]
            values['100'], values['4'] = [1.0] * 3, [0.6, 0.7, 1.2]
            self.assertEqual(
                claim_verdicts.UNDECIDED, self.verdict(title, figures), title
            )
            values['4'] = [0.6, 0.7, 0.75]
            self.assertEqual(
                claim_verdicts.FAILS, self.verdict(title, figures)
            )

    def test_pools_double_what_communicates(self):
        self.assertEqual(
            claim_verdicts.HOLDS,
            self.verdict('An I/O pool nearly', document()),
        )
        figures = document()
        figures['claims']['rounds']['pool']['cg'] |= rounds(pools=1.02)
        self.assertEqual(
            claim_verdicts.FAILS, self.verdict('An I/O pool nearly', figures)
        )

    def test_pools_cost_nothing_else(self):
        title = 'Programs that do not communicate lose'
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, document()))
        figures = document()
        figures['claims']['rounds']['pool']['ep'] |= rounds(pools=0.8)
        self.assertEqual(claim_verdicts.FAILS, self.verdict(title, figures))

    def test_a_spare_cpu(self):
        title = 'Programs are a third faster'
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, document()))
        figures = document()
        figures['claims']['rounds']['spare']['cg'] |= rounds(spare=1.12)
        self.assertEqual(claim_verdicts.PARTLY, self.verdict(title, figures))

    def test_every_paper_has_claims(self):
        for paper in ('ATC', 'I/O perception', "NPC'09", "HPCVirt'09"):
            self.assertTrue(
                [
                    c
                    for c in paper_claims.PAPER_CLAIMS
                    if c.source.startswith(paper)
                ],
                paper,
            )

    def test_claims_of_another_day_are_said_to_be(self):
        figures = document()
        figures['claims']['when'] = {
            'slices': '2026-11-21',
            'pool': '2026-11-23',
            'spare': '2026-11-23',
        }
        self.assertIn(
            ' Slices: 2026-11-21. Pool, spare: 2026-11-23.',
            paper_claims.page(figures),
        )

    def test_a_run_without_figures_claims_nothing(self):
        page = paper_claims.page({'mixes': {}})
        self.assertEqual(
            len(paper_claims.PAPER_CLAIMS),
            page.count(f'**{claim_verdicts.UNKNOWN.capitalize()}'),
        )

    def test_the_page_shows_both_figures(self):
        page = paper_claims.page(document())
        self.assertIn('148 to 289', page)
        self.assertIn('allreduce +100% (+100% to +100%)', page)
        self.assertIn('0.90 at 0 ms, 0.70 at 5 ms', page)

    def test_the_page_is_valid(self):
        page = re.sub(':doc:`.*?`', 'page', paper_claims.page(document()))
        docutils.core.publish_string(
            page,
            writer_name='null',
            settings_overrides={'halt_level': 2, 'report_level': 5},
        )

    def test_without_stock_nothing_is_claimed(self):
        figures = document()
        for by_policy in figures['mixes'].values():
            by_policy.pop('stock', None)
            for one in by_policy.values():
                one.update(speedup=None, loss=None)
        text = paper_claims.page(figures)
        for title in ('ATC beats the stock', 'Programs that are not parallel'):
            _, _, after = text.partition(title)
            self.assertIn('**Not measured.**', after[:400], title)
        self.assertNotIn('0.0%', text)
