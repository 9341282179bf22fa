# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of the papers' claims: verdicts and page."""

import re

import docutils.core

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import claim_verdicts, paper_claims


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
    """Return three rounds that agree within 1 percent, by setting."""
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
            'sets': {
                'window_ms': 50,
                'progress': {
                    'equal': 0.23,
                    'different': 0.22,
                    'rotation': 0.11,
                    'stock': 0.05,
                },
                'ranges': {
                    'equal': [0.23, 0.24],
                    'different': [0.21, 0.23],
                    'rotation': [0.1, 0.12],
                    'stock': [0.04, 0.06],
                },
                'of_equal': 0.96,
                'of_equal_range': [0.91, 0.99],
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


class PaperClaimsTest(base.TestCase):
    def verdict(self, title, figures):
        (claim,) = (
            c for c in paper_claims.PAPER_CLAIMS if c.title.startswith(title)
        )
        return claim.assess(figures).outcome

    def test_rounds_measured_at_different_times_are_not_compared(self):
        # --merge leaves figures of several times. Without a "when", which
        # older files lack, figures are compared.
        figures = document()
        for mix, title in (
            ('clusters', 'ATC beats'),
            ('hogs', 'Programs that are not parallel'),
        ):
            by_policy = figures['mixes'][mix]
            for figures_of_policy in by_policy.values():
                figures_of_policy['when'] = 'today'
            self.verdict(title, figures)
            by_policy['stock']['when'] = 'yesterday'
            self.assertRaises(ValueError, self.verdict, title, figures)
        page = paper_claims.page({**figures, 'when': 'today'})
        self.assertIn(' Clusters under stock, hogs under stock: yester', page)
        self.assertNotIn('under atc: ', page)

    def test_shorter_slice_with_shorter_waits_holds(self):
        self.assertEqual(
            claim_verdicts.HOLDS,
            self.verdict('A shorter time slice means', document()),
        )

    def test_shorter_slice_without_speedup_fails(self):
        self.assertEqual(
            claim_verdicts.FAILS,
            self.verdict('A shorter time slice makes', document()),
        )

    def test_shorter_slice_with_speedup_holds(self):
        self.assertEqual(
            claim_verdicts.HOLDS,
            self.verdict('A shorter time slice makes', document(at_4=3.0)),
        )

    def test_atc_without_gain_over_stock_fails(self):
        self.assertEqual(
            claim_verdicts.FAILS, self.verdict('ATC beats', document())
        )

    def test_atc_is_judged_by_efficiency_and_not_by_speedup(self):
        figures = document()
        # A cluster that stalls under stock makes the speedup arbitrary.
        figures['mixes']['clusters']['atc']['speedup'] = 7.0
        self.assertEqual(
            claim_verdicts.FAILS, self.verdict('ATC beats', figures)
        )
        figures['mixes']['clusters']['atc']['efficiencies'] = [0.3, 0.5]
        self.assertEqual(
            claim_verdicts.HOLDS, self.verdict('ATC beats', figures)
        )

    def test_rounds_that_disagree_leave_every_claim_undecided(self):
        figures = document()
        figures['mixes']['clusters']['atc']['efficiencies'] = [0.3, 0.1]
        figures['mixes']['quota'] = figures['mixes']['clusters']
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

    def test_shortest_slice_is_best_only_if_it_beats_each_other(self):
        title = '0.3 ms'
        self.assertEqual(claim_verdicts.FAILS, self.verdict(title, document()))
        shortest = document(at_2=2.0)
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, shortest))
        by_slice = shortest['claims']['rounds']['slices']['a']
        by_slice['100'] = [1.0, 1.0, 2.5]
        self.assertEqual(
            claim_verdicts.UNDECIDED, self.verdict(title, shortest)
        )

    def test_best_slice_is_undecided_after_one_round(self):
        for figures in (document(), document(at_2=2.0)):
            by_slice = figures['claims']['rounds']['slices']['a']
            for values in by_slice.values():
                del values[1:]
            self.assertEqual(
                claim_verdicts.UNDECIDED, self.verdict('0.3 ms', figures)
            )

    def test_smaller_loss_of_mpi_holds(self):
        self.assertEqual(claim_verdicts.HOLDS, self.verdict('MPI', document()))

    def test_correlation_of_latency_and_time_is_shown_if_times_differ(self):
        # Execution times 1, 1 and 2 at waits of 60, 8 and 9 ms.
        (claim,) = (
            c for c in paper_claims.PAPER_CLAIMS if 'spinlock' in c.title
        )
        self.assertIn(
            'correlation with the execution time -0.49',
            claim.assess(document()).figure,
        )
        # Equal times have no correlation.
        figure = claim.assess(document(at_2=1.0)).figure
        self.assertNotIn('correlation', figure)

    def test_distance_of_equation_1_is_shown_per_slice(self):
        # Times at 100 and 4 ms: 1 and 1, 1 and 0.5, 1 and 1.11.
        (claim,) = (
            c for c in paper_claims.PAPER_CLAIMS if '0.3 ms' in c.title
        )
        self.assertIn(
            '0.50 at 100 ms, 0.11 at 4 ms', claim.assess(document()).figure
        )

    def test_memory_bound_loss_holds_only_if_it_is_small(self):
        title = 'Short slices cost programs that are bound by memory'
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, document()))
        for speed in (0.5, 1.2):
            figures = document()
            figures['claims']['rounds']['memory']['stream'] |= rounds(
                at_4=speed
            )
            self.assertEqual(
                claim_verdicts.FAILS, self.verdict(title, figures)
            )

    def test_loss_and_gain_in_different_rounds_are_undecided(self):
        # The range from the loss to the gain includes a small loss.
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

    def test_atc_is_also_judged_where_flavors_have_a_quota(self):
        title = 'With flavor quotas ATC'
        figures = document()
        self.assertRaises(KeyError, self.verdict, title, figures)
        figures['mixes']['quota'] = {
            'stock': {'efficiencies': [0.2, 0.2]},
            'atc': {'efficiencies': [0.4, 0.5]},
            'default': {'efficiencies': [0.8, 0.9]},
        }
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, figures))
        figures['mixes']['quota']['atc']['efficiencies'] = [0.2, 0.5]
        self.assertEqual(
            claim_verdicts.UNDECIDED, self.verdict(title, figures)
        )

    def test_io_pool_holds_only_with_a_large_gain(self):
        self.assertEqual(
            claim_verdicts.HOLDS,
            self.verdict('An I/O pool nearly', document()),
        )
        figures = document()
        figures['claims']['rounds']['pool']['cg'] |= rounds(pools=1.02)
        self.assertEqual(
            claim_verdicts.FAILS, self.verdict('An I/O pool nearly', figures)
        )

    def test_loss_of_others_by_an_io_pool_holds_only_if_small(self):
        title = 'Programs that do not communicate lose'
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, document()))
        figures = document()
        figures['claims']['rounds']['pool']['ep'] |= rounds(pools=0.8)
        self.assertEqual(claim_verdicts.FAILS, self.verdict(title, figures))

    def test_spare_cpu_with_a_smaller_gain_holds_partly(self):
        title = 'Programs are a third faster'
        self.assertEqual(claim_verdicts.HOLDS, self.verdict(title, document()))
        figures = document()
        figures['claims']['rounds']['spare']['cg'] |= rounds(spare=1.12)
        self.assertEqual(claim_verdicts.PARTLY, self.verdict(title, figures))

    def test_every_paper_has_a_claim(self):
        for paper in ('ATC', 'I/O perception', "NPC'09", "HPCVirt'09"):
            self.assertTrue(
                [
                    c
                    for c in paper_claims.PAPER_CLAIMS
                    if c.source.startswith(paper)
                ],
                paper,
            )

    def test_page_has_the_dates_of_figures_measured_earlier(self):
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

    def test_every_claim_is_unknown_without_figures(self):
        page = paper_claims.page({'mixes': {}})
        self.assertEqual(
            len(paper_claims.PAPER_CLAIMS),
            page.count(f'**{claim_verdicts.UNKNOWN.capitalize()}'),
        )

    def test_page_has_the_papers_and_our_figures(self):
        page = paper_claims.page(document())
        self.assertIn('148 to 289', page)
        self.assertIn('allreduce +100% (+100% to +100%)', page)
        self.assertIn('0.90 at 0 ms, 0.70 at 5 ms', page)
        self.assertIn('sets reach 0.96 (0.91 to 0.99) of that', page)

    def test_page_is_valid_restructuredtext(self):
        page = re.sub(':doc:`.*?`', 'page', paper_claims.page(document()))
        docutils.core.publish_string(
            page,
            writer_name='null',
            settings_overrides={'halt_level': 2, 'report_level': 5},
        )

    def test_claims_against_stock_are_not_measured_without_stock(self):
        figures = document()
        for by_policy in figures['mixes'].values():
            by_policy.pop('stock', None)
            for figure in by_policy.values():
                figure.update(speedup=None, loss=None)
        text = paper_claims.page(figures)
        for title in ('ATC beats the stock', 'Programs that are not parallel'):
            _, _, after = text.partition(title)
            self.assertIn('**Not measured.**', after[:400], title)
        self.assertNotIn('0.0%', text)
