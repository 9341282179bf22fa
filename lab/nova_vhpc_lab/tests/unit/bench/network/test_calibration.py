# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Cost tables from measured figures."""

from nova_vhpc.scheduler.planner import cost
from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import calibration, figures, layout, order

LINK_MBPS = 50.0
LINK_MBS = LINK_MBPS / 8


def run_of(remote, local, latency=40.0):
    """Return a run.

    :param remote: bandwidth of one pair, two pairs and so on.
    """
    run = {
        figures.Figure('bandwidth_mbs', 'remote', pairs): value
        for pairs, value in enumerate(remote, 1)
    }
    run |= {
        figures.Figure('latency_us', 'remote', pairs): latency
        for pairs in range(1, len(remote) + 1)
    }
    run |= {
        figures.Figure('bandwidth_mbs', 'local', pairs): value
        for pairs, value in enumerate(local, 1)
    }
    return run


def ideal_runs():
    """Return runs in which nothing but links is limited."""
    own = [LINK_MBS * pairs for pairs in range(1, 5)]
    one = [LINK_MBS] * 4
    two = [LINK_MBS, *[2 * LINK_MBS] * 3]
    return {
        'shared': [run_of(one, [800.0, 900.0])],
        'multiple-shared': [run_of(two, [800.0, 900.0])],
        'separate': [run_of(own, own[:2])],
        'shared-separate': [run_of(own, [800.0, 900.0])],
        'exported': [run_of(own, own[:2])],
    }


class TableTest(base.TestCase):
    def test_rows_are_the_medians_of_all_rounds(self):
        runs = ideal_runs()
        runs['shared'] = [
            run_of([rate] * 4, [800.0, 900.0]) for rate in (5.0, 6.0, 9.0)
        ]
        table = calibration.table(runs, LINK_MBPS)
        self.assertEqual((6.0,) * 4, table.remote_mb_s['shared'])
        self.assertEqual((800.0, 900.0), table.local_mb_s['shared'])
        self.assertEqual((40.0,) * 4, table.latency_us['shared'])

    def test_latency_is_that_of_a_single_pair(self):
        runs = ideal_runs()
        late = figures.Figure('latency_us', 'remote', 4)
        runs['exported'] = [runs['exported'][0] | {late: 3000.0}]
        table = calibration.table(runs, LINK_MBPS)
        self.assertEqual((40.0,) * 4, table.latency_us['exported'])

    def test_native_is_as_exported_unless_it_was_measured(self):
        runs = ideal_runs()
        table = calibration.table(runs, LINK_MBPS)
        self.assertEqual(
            table.local_mb_s['exported'], table.local_mb_s['native']
        )
        own = [LINK_MBS * pairs for pairs in range(1, 5)]
        runs['native'] = [run_of(own, [3000.0, 5000.0])]
        table = calibration.table(runs, LINK_MBPS)
        self.assertEqual((3000.0, 5000.0), table.local_mb_s['native'])

    def test_native_is_as_exported_where_it_waited_for_cpus(self):
        runs = ideal_runs()
        runs['native'] = [
            run_of([LINK_MBS / 2] * 4, [3000.0, 5000.0], latency=900.0)
        ]
        table = calibration.table(runs, LINK_MBPS)
        self.assertEqual(
            table.remote_mb_s['exported'], table.remote_mb_s['native']
        )
        self.assertEqual(
            table.latency_us['exported'], table.latency_us['native']
        )
        self.assertEqual((3000.0, 5000.0), table.local_mb_s['native'])

    def test_single_host_is_not_enough(self):
        runs = {
            name: [run_of([], [800.0, 900.0])]
            for name in layout.CONFIGURATIONS
        }
        self.assertRaises(ValueError, calibration.table, runs, LINK_MBPS)

    def test_uplinks_that_programs_fill_are_counted(self):
        table = calibration.table(ideal_runs(), LINK_MBPS)
        self.assertEqual(2.0, table.shared_uplinks['multiple-shared'])

    def test_second_uplink_that_a_library_does_not_use_counts_nothing(self):
        runs = ideal_runs()
        runs['multiple-shared'] = runs['shared']
        table = calibration.table(runs, LINK_MBPS)
        self.assertEqual(1.0, table.shared_uplinks['multiple-shared'])

    def test_predictions_equal_what_was_measured(self):
        table = calibration.table(ideal_runs(), LINK_MBPS)
        for network, pairs, rate in (
            ('shared', 4, LINK_MBS / 4),
            ('multiple-shared', 4, LINK_MBS / 2),
            ('separate', 4, LINK_MBS),
            ('shared-separate', 4, LINK_MBS),
            ('exported', 4, LINK_MBS),
        ):
            predicted = cost.remote_mb_s(
                network, pairs, order.SPARE_CPU, LINK_MBPS, table
            )
            self.assertAlmostEqual(rate, predicted, 2, network)

    def test_faster_links_scale_the_table(self):
        table = calibration.table(ideal_runs(), LINK_MBPS)
        self.assertAlmostEqual(
            10 * LINK_MBS,
            cost.remote_mb_s('separate', 1, 1.0, 10 * LINK_MBPS, table),
            2,
        )
        self.assertAlmostEqual(
            LINK_MBS, cost.remote_mb_s('separate', 1, 1.0, 0, table), 2
        )

    def test_order_of_ideal_links_is_predicted(self):
        table = calibration.table(ideal_runs(), LINK_MBPS)
        times = {
            name: order.predicted(
                layout.Cluster(2, 4), name, LINK_MBPS, table
            )['alltoall_ms']
            for name in layout.CONFIGURATIONS
        }
        self.assertEqual('shared', max(times, key=times.get))
        self.assertEqual('shared-separate', min(times, key=times.get))

    def test_configuration_that_was_not_measured_is_named(self):
        runs = ideal_runs()
        runs['exported'] = []
        error = self.assertRaises(
            ValueError, calibration.table, runs, LINK_MBPS
        )
        self.assertIn('exported', str(error))

    def test_single_guests_are_not_enough(self):
        runs = {
            name: [run_of([LINK_MBS], [])] for name in layout.CONFIGURATIONS
        }
        self.assertRaises(ValueError, calibration.table, runs, LINK_MBPS)
