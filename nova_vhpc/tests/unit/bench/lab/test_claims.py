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

import docutils.core

from nova_vhpc.bench.lab import claims
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


def document(**slices):
    return {
        'claims': {
            'slices': {
                'wait_ms': {'100': 60.0, '4': 8.0, '2': 9.0},
                'a': {'none': 1.0, '100': 1.0, '4': 1.0, '2': 0.5, **slices},
            },
            'talk': {
                'cg': {'100': 1.0, '20': 1.2, '4': 2.0},
                'ep': {'100': 1.0, '20': 1.0, '4': 0.9},
            },
            'scaling': {'1': 1.0, '2': 1.95, '4': 1.9},
            'clock': {
                'window_ms': 50,
                'stock': 0.3,
                'by_error_ms': {'0': 0.9, '5': 0.7},
            },
        },
        'mixes': {
            'clusters': {
                'stock': entry(efficiency=0.1),
                'atc': entry(speedup=1.05),
                'default': entry(speedup=5.0),
            },
            'hogs': {'atc': entry(loss=0.02), 'default': entry(loss=0.05)},
            'network': {'stock': entry(efficiency=0.6)},
        },
    }


class TestClaims(base.TestCase):
    """One claim after the other."""

    def verdict(self, title, figures):
        (claim,) = (c for c in claims.CLAIMS if c.title.startswith(title))
        return claim.judge(figures).verdict

    def test_latency_falls(self):
        self.assertEqual(
            claims.HOLDS,
            self.verdict('A shorter time slice means', document()),
        )

    def test_no_gain_from_short_slices(self):
        self.assertEqual(
            claims.FAILS,
            self.verdict('A shorter time slice makes', document()),
        )

    def test_gain_from_short_slices(self):
        self.assertEqual(
            claims.HOLDS,
            self.verdict('A shorter time slice makes', document(**{'4': 3.0})),
        )

    def test_atc_does_not_help(self):
        self.assertEqual(claims.FAILS, self.verdict('ATC beats', document()))

    def test_messages_stand_it_better(self):
        self.assertEqual(claims.HOLDS, self.verdict('MPI', document()))

    def test_a_run_without_figures_claims_nothing(self):
        page = claims.page({'mixes': {}})
        self.assertEqual(
            len(claims.CLAIMS), page.count(f'**{claims.UNKNOWN.capitalize()}')
        )

    def test_the_page_shows_both_figures(self):
        page = claims.page(document())
        self.assertIn('148 to 289', page)
        self.assertIn('allreduce +100%', page)
        self.assertIn('0.90 at 0 ms, 0.70 at 5 ms', page)

    def test_the_page_is_valid(self):
        page = claims.page(document()).replace(':doc:`/admin/lab`', 'lab')
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
        text = claims.page(figures)
        for title in ('ATC beats the stock', 'Programs that are not parallel'):
            _, _, after = text.partition(title)
            self.assertIn('**Not measured.**', after[:400], title)
        self.assertNotIn('0.0%', text)
