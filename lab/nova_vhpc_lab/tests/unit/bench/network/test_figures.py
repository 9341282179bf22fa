# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Figures from what the program prints."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import figures
from nova_vhpc_lab.bench.network.layout import Cluster

PAIRS = Cluster(2, 2)


def value(test, number, where='all', pairs=8, size=1):
    return {
        'test': test,
        'where': where,
        'pairs': pairs,
        'bytes': size,
        'value': number,
    }


class RunTest(base.TestCase):
    def test_bandwidth_is_the_mean_over_message_sizes(self):
        run = figures.run_of(
            [
                value('bandwidth', 10.0, 'remote', 2, 4096),
                value('bandwidth', 14.0, 'remote', 2, 65536),
                value('bandwidth', 7.0, 'remote', 1, 4096),
            ]
        )
        figure = figures.Figure('bandwidth_mbs', 'remote', 2)
        self.assertEqual(12.0, run[figure])

    def test_long_ping_pong_is_the_rate_of_all_pairs(self):
        run = figures.run_of(
            [
                value('latency', 30.0, 'remote', 3),
                # One way of 262,144 bytes in 262,144 us is 1 MB/s.
                value(
                    'latency',
                    float(figures.LONG_BYTES),
                    'remote',
                    3,
                    figures.LONG_BYTES,
                ),
            ]
        )
        self.assertEqual(
            {
                figures.Figure('latency_us', 'remote', 3): 30.0,
                figures.Figure('ping_pong_mbs', 'remote', 3): 3.0,
            },
            run,
        )

    def test_warm_up_is_no_figure(self):
        self.assertEqual({}, figures.run_of([value('warm_up', 1.0)]))


class EntryTest(base.TestCase):
    def runs(self, *alltoall_ms):
        return [
            figures.run_of(
                [
                    value('alltoall', one),
                    value('latency', 20.0, 'remote', 1),
                    value('bandwidth', 6.0, 'remote', 1, 4096),
                    value('bandwidth', 9.0, 'remote', 2, 4096),
                    value('bandwidth', 90.0, 'local', 1, 4096),
                ]
            )
            for one in alltoall_ms
        ]

    def test_main_figures_are_medians_with_ranges(self):
        entry = figures.entry(self.runs(40.0, 44.0, 41.0), PAIRS)
        self.assertEqual(41.0, entry['alltoall_ms'])
        self.assertEqual([40.0, 44.0], entry['ranges']['alltoall_ms'])
        self.assertEqual(20.0, entry['latency_us'])
        self.assertEqual(3, entry['runs'])

    def test_bandwidth_is_that_of_as_many_pairs_as_guests(self):
        self.assertEqual(
            9.0, figures.entry(self.runs(1.0), PAIRS)['bandwidth_mbs']
        )
        self.assertEqual(
            6.0, figures.entry(self.runs(1.0), Cluster(2, 1))['bandwidth_mbs']
        )

    def test_bandwidth_of_a_single_host_is_that_of_its_pairs(self):
        entry = figures.entry(self.runs(1.0), Cluster(1, 2))
        self.assertEqual(90.0, entry['bandwidth_mbs'])
        # No latency was measured on one host.
        self.assertNotIn('latency_us', entry)

    def test_figures_of_pairs_are_ordered_by_their_number(self):
        pairs = figures.entry(self.runs(1.0), PAIRS)['pairs']
        self.assertEqual(
            [[6.0] * 3, [9.0] * 3], pairs['remote']['bandwidth_mbs']
        )
        self.assertEqual([[90.0] * 3], pairs['local']['bandwidth_mbs'])

    def test_figure_that_one_run_lacks_is_left_out(self):
        entry = figures.entry([*self.runs(1.0), {}], PAIRS)
        self.assertNotIn('alltoall_ms', entry)
