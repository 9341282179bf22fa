# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The planner's order of configurations against the measured one."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import figures, layout, order

CLUSTER = layout.Cluster(2, 4)
ALLTOALL = figures.Figure('alltoall_ms')
BANDWIDTH = figures.Figure('bandwidth_mbs', 'remote', 4)


def compared(figure, one, other):
    """Return the only comparison of two configurations by one figure.

    :param one: values of ``separate``, one per round.
    :param other: values of ``shared``.
    """
    runs = {
        'separate': [{figure: value} for value in one],
        'shared': [{figure: value} for value in other],
    }
    (comparison,) = order.compare(CLUSTER, runs, 50.0)
    return comparison


class CompareTest(base.TestCase):
    def test_difference_in_all_rounds_is_beyond_noise(self):
        comparison = compared(ALLTOALL, [41, 42, 45, 41], [122, 88, 90, 89])
        self.assertTrue(comparison.is_beyond_noise)
        self.assertTrue(comparison.matches)

    def test_other_order_than_the_planners_does_not_match(self):
        comparison = compared(ALLTOALL, [122, 88, 90, 89], [41, 42, 45, 41])
        self.assertTrue(comparison.is_beyond_noise)
        self.assertFalse(comparison.matches)

    def test_order_that_changes_between_rounds_is_noise(self):
        comparison = compared(ALLTOALL, [41, 42, 45, 41], [122, 44, 90, 80])
        self.assertFalse(comparison.is_beyond_noise)
        self.assertTrue(comparison.matches)

    def test_small_difference_is_noise(self):
        comparison = compared(ALLTOALL, [100] * 4, [101, 102, 101, 101])
        self.assertFalse(comparison.is_beyond_noise)

    def test_three_rounds_decide_nothing(self):
        comparison = compared(ALLTOALL, [41] * 3, [122] * 3)
        self.assertFalse(comparison.is_beyond_noise)

    def test_more_bandwidth_is_faster(self):
        comparison = compared(BANDWIDTH, [24.0, 23.9] * 2, [6.0, 6.1] * 2)
        self.assertLess(comparison.measured.high, 1)
        self.assertTrue(comparison.matches)

    def test_hosts_without_guests_are_no_configuration(self):
        runs = {name: [{ALLTOALL: 1.0}] for name in ('native', 'shared')}
        self.assertEqual([], list(order.compare(CLUSTER, runs, 50.0)))

    def test_figures_that_were_not_measured_are_not_compared(self):
        runs = {'shared': [{ALLTOALL: 1.0}], 'separate': [{}]}
        self.assertEqual([], list(order.compare(CLUSTER, runs, 50.0)))


class DocumentTest(base.TestCase):
    def test_differing_orders_are_listed_fastest_first(self):
        document = order.document(
            [
                compared(ALLTOALL, [122] * 4, [61] * 4),
                compared(BANDWIDTH, [24.0] * 4, [6.0] * 4),
                compared(ALLTOALL, [50, 90] * 2, [60] * 4),
            ]
        )
        self.assertEqual(
            (3, 2, 1),
            tuple(
                document[key]
                for key in ('compared', 'beyond_noise', 'matching')
            ),
        )
        (differing,) = document['differing']
        self.assertEqual('shared', differing['faster'])
        self.assertEqual('separate', differing['slower'])
        self.assertEqual(2.0, differing['measured'])
        self.assertLess(differing['predicted'], 1)


class PredictedTest(base.TestCase):
    def test_on_one_host_own_uplinks_are_slower_than_a_bridge(self):
        times = {
            name: order.predicted(layout.Cluster(1, 4), name, 50.0)
            for name in layout.CONFIGURATIONS
        }
        for figure in ('alltoall_ms', 'bandwidth_mbs', 'latency_us'):
            for own in ('separate', 'exported'):
                for bridge in ('shared', 'multiple-shared', 'shared-separate'):
                    self.assertGreater(
                        times[own][figure], times[bridge][figure], figure
                    )

    def test_configurations_with_own_uplinks_have_more_bandwidth(self):
        times = {
            name: order.predicted(CLUSTER, name, 50.0)['bandwidth_mbs']
            for name in layout.CONFIGURATIONS
        }
        self.assertEqual('shared', max(times, key=times.get))
        for name in ('separate', 'shared-separate', 'exported'):
            self.assertLess(times[name], times['multiple-shared'])
