# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
import unittest

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller
from nova_vhpc.control.gang import policy
from nova_vhpc.control.pinning import balance
from nova_vhpc.control.predictors import last_value
from nova_vhpc_lab.sim import programs
from nova_vhpc_lab.sim.cloud import comparison, running, scenarios
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, Job, equal_hosts
from nova_vhpc_lab.sim.hosts import Network

SHORT = running.Conditions(seconds=3.0, warm_up_s=5.0, skew_us=0.0)
FINE = programs.Spin(200.0)


def _gang_controller():
    config = control_config.ControlConfig()
    return controller.Controller(
        config,
        policy.GangPolicy(config),
        balance.BalancePolicy(config),
        last_value.LastValuePredictor,
    )


OURS = running.Policy('ours', _gang_controller)
STOCK = running.Policy(comparison.STOCK)
BOUND = running.Policy(comparison.BOUND)


def _two_clusters(hosts=2):
    """Return two clusters with a member on each host, alike everywhere."""
    return CloudSpec(
        'two clusters',
        equal_hosts(hosts, 4),
        tuple(Job(f'c{n}', 'spins', FINE, 4, hosts) for n in range(2)),
        overcommit=2.0,
        group_policy='anti-affinity',
    )


def _compare(spec, policies, seed=1, conditions=SHORT):
    return comparison.compare(spec, seed, policies, conditions)


class CompareTest(unittest.TestCase):
    def test_cluster_alone_loses_nothing(self):
        spec = CloudSpec(
            'alone', equal_hosts(2, 4), (Job('c', 'spins', FINE, 4, 2),)
        )
        (figures,) = _compare(spec, [STOCK]).policies['stock']
        self.assertAlmostEqual(1.0, figures.part, delta=0.05)
        self.assertAlmostEqual(1.0, figures.bound, delta=0.01)
        self.assertAlmostEqual(1.0, figures.of_fair, delta=0.02)

    def test_equal_hosts_play_the_same_windows_by_the_wall_clock(self):
        seeds = [_compare(_two_clusters(), [STOCK, OURS, BOUND])]
        stock, ours, best = (
            comparison.summary(seeds, policy)
            for policy in ('stock', 'ours', 'bound')
        )
        self.assertAlmostEqual(0.5, best['geomean'], delta=0.01)
        self.assertGreater(ours['geomean'], 2 * stock['geomean'])
        self.assertLess(ours['geomean'], 1.05 * best['geomean'])
        self.assertEqual(1.0, ours['windows_part'])

    def test_clocks_that_disagree_cost_progress(self):
        parts = []
        for skew_us in (0.0, 20_000.0):
            conditions = running.Conditions(3.0, 5.0, skew_us)
            seed = _compare(_two_clusters(4), [OURS], conditions=conditions)
            parts.append(comparison.summary([seed], 'ours')['geomean'])
        self.assertLess(parts[1], 0.9 * parts[0])

    def test_messages_count_in_running_alone_too(self):
        slow = running.Conditions(3.0, 1.0, 0.0, Network(latency_us=1_000.0))
        spec = CloudSpec(
            'alone', equal_hosts(2, 4), (Job('c', 'spins', FINE, 4, 2),)
        )
        (figures,) = _compare(spec, [STOCK], conditions=slow).policies['stock']
        self.assertAlmostEqual(1.0, figures.part, delta=0.05)

    def test_same_seed_gives_the_same_figures(self):
        first, second = (
            _compare(_two_clusters(), [OURS], seed=7) for _ in range(2)
        )
        self.assertEqual(first, second)

    def test_quota_is_the_fair_part(self):
        quota = running.Policy('quota', quota=True)
        for one in _compare(_two_clusters(), [quota]).policies['quota']:
            self.assertAlmostEqual(1.0, one.of_fair, delta=0.05)

    def test_loss_counts_vms_that_are_not_parallel(self):
        seed = _compare(scenarios.atc_mixed(3, hosts=4), [STOCK, OURS])
        stock = comparison.summary([seed], 'stock')
        ours = comparison.summary([seed], 'ours')
        self.assertEqual(0.0, stock['loss'])
        self.assertLess(abs(ours['loss']), 0.3)
        self.assertLessEqual(
            {'lu', 'is'} & {*ours['independents']}, {'lu', 'is'}
        )
