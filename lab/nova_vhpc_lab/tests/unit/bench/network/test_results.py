# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The JSON of the bench."""

import fixtures

from nova_vhpc.scheduler.planner import cost_table
from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import figures, layout, matrix, results

CLUSTER = layout.Cluster(2, 1)


def runs(*alltoall_ms):
    """Return runs, one per round."""
    return [
        {
            **{
                figures.Figure(f'{name}_ms'): value
                for name in figures.EXCHANGES
            },
            figures.Figure('bandwidth_mbs', 'remote', 1): 6.0,
            figures.Figure('latency_us', 'remote', 1): 40.0,
        }
        for value in alltoall_ms
    ]


class DocumentTest(base.TestCase):
    def setUp(self):
        super().setUp()
        stdout = self.useFixture(fixtures.StringStream('stdout')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', stdout))

    def document(self, measured, spare_cpu=False):
        return results.document(
            results.Settings(50.0, 0.1, 4, spare_cpu),
            {CLUSTER: {'openmpi': measured}},
            cost_table.PAPER,
        )

    def test_entries_are_by_cluster_library_and_configuration(self):
        document = self.document(
            matrix.Measured(runs={'shared': runs(90.0, 92.0, 91.0)})
        )
        entry = document['clusters']['2x1']['openmpi']['shared']
        self.assertEqual(
            (91.0, 6.0, 40.0),
            tuple(
                entry[name]
                for name in ('alltoall_ms', 'bandwidth_mbs', 'latency_us')
            ),
        )
        self.assertNotIn('with_spare_cpu', document)

    def test_order_other_than_the_planners_is_told(self):
        document = self.document(
            matrix.Measured(
                runs={
                    'shared': runs(*[20.0] * 4),
                    'separate': runs(*[90.0] * 4),
                }
            )
        )
        self.assertFalse(document['order_matches_planner'])
        document = self.document(
            matrix.Measured(
                runs={
                    'shared': runs(*[20.0] * 4),
                    'separate': runs(*[20.0] * 4),
                }
            )
        )
        self.assertTrue(document['order_matches_planner'])

    def test_spare_cpu_has_both_figures_and_their_ratio(self):
        document = self.document(
            matrix.Measured(
                runs={'shared': runs(90.0)},
                with_spare={'shared': runs(60.0, 60.0)},
                without_spare={'shared': runs(80.0, 84.0)},
            ),
            spare_cpu=True,
        )
        for key, value in (
            ('with_spare_cpu', 60.0),
            ('without_spare_cpu', 82.0),
        ):
            entry = document[key]['2x1']['openmpi']['shared']
            self.assertEqual(value, entry['alltoall_ms'])
        ratio = document['spare_cpu']['2x1']['openmpi']['shared']['alltoall']
        self.assertEqual([1.367, 1.333, 1.4], ratio)
