# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Holds simulated hosts to what the lab measured on real guests.

Where a test fails because the agent's policy changed, measure the lab
again, then: ``nova-vhpc-bench calibration --renew lab.json``.
"""

import statistics

from nova_vhpc.tests import base, long
from nova_vhpc_lab.bench import calibration
from nova_vhpc_lab.bench.common import plugins
from nova_vhpc_lab.bench.lab import measured_ranges, mixes, simulated
from nova_vhpc_lab.sim import programs

SEEDS = long.long(1, 4)

MARGIN = 0.1
"""What is added to both ends of a measured range, which is of few runs."""

P99_FACTOR = 2.0


class CalibrationTest(base.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.measured = measured_ranges.load()
        cls.simulated = {
            name: calibration.simulate(
                mixes.MIXES[name],
                cls.measured[name],
                SEEDS,
                plugins.default(),
            )
            for name in simulated.MIXES
            if name in cls.measured
        }

    def assert_within(self, figure, policies=measured_ranges.POLICIES):
        compared = 0
        for name, by_policy in self.simulated.items():
            for policy in policies:
                if figure not in self.measured[name].get(policy, {}):
                    continue
                compared += 1
                _, least, most = self.measured[name][policy][figure]
                median = by_policy[policy][figure][0]
                about = f'{figure} of {policy} in {name}'
                self.assertGreaterEqual(median, least - MARGIN, about)
                self.assertLessEqual(median, most + MARGIN, about)
        self.assertGreater(compared, 3)

    def test_efficiency_is_as_measured(self):
        self.assert_within('efficiency')

    def test_work_of_other_guests_is_as_measured(self):
        self.assert_within('others')

    def test_equal_guests_progress_alike_as_measured(self):
        self.assert_within('fairness')

    def test_windows_gain_as_measured(self):
        for name in ('clusters', 'others-share'):
            gains = [
                ranges[name]['default']['efficiency'][0]
                / ranges[name]['stock']['efficiency'][0]
                for ranges in (self.measured, self.simulated)
            ]
            self.assertGreater(gains[1], 0.75 * gains[0], name)
            self.assertLess(gains[1], 1.4 * gains[0], name)

    def test_latency_of_requests_is_as_measured(self):
        for policy, ranges in self.simulated['web'].items():
            measured = self.measured['web'][policy]['p99_ms'][0]
            ratio = ranges['p99_ms'][0] / measured
            self.assertGreater(ratio, 1 / P99_FACTOR, policy)
            self.assertLess(ratio, P99_FACTOR, policy)

    def test_windows_are_as_late_as_measured(self):
        late_ms = [
            ranges['clusters']['default']['late_ms'][0]
            for ranges in (self.measured, self.simulated)
        ]
        self.assertGreater(late_ms[1], 0.5 * late_ms[0])
        self.assertLess(late_ms[1], 2.0 * late_ms[0])


class SimulatedRunTest(base.TestCase):
    timing = simulated.Timing(1.0, 1.0)

    def run_mix(self, name, seed=1):
        return simulated.run(mixes.MIXES[name], seed, None, self.timing)

    def test_cluster_alone_does_what_it_does_alone(self):
        run = self.run_mix('alone')
        self.assertAlmostEqual(1.0, run.progress['a'], delta=0.03)

    def test_client_gets_an_answer_each_20_ms(self):
        run = self.run_mix('web')
        self.assertAlmostEqual(50, len(run.latencies_ms), delta=3)
        self.assertGreater(statistics.median(run.latencies_ms), 0.5)

    def test_same_seed_gives_same_run(self):
        self.assertEqual(self.run_mix('web'), self.run_mix('web'))
        self.assertNotEqual(self.run_mix('web'), self.run_mix('web', 2))

    def test_mixes_with_network_programs_or_host_load_are_left_out(self):
        self.assertIn('others-share', simulated.MIXES)
        for name in ('network', 'phased', 'pingpong', 'hogs-loaded'):
            self.assertNotIn(name, simulated.MIXES)

    def test_spinning_guests_never_sleep_and_block_guests_do(self):
        self.assertIsInstance(simulated.PROGRAMS['barrier'], programs.Spin)
        run = self.run_mix('block')
        self.assertGreater(sum(run.cpus.values()), 1.0)
