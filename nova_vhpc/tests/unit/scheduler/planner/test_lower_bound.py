# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import random
from unittest import mock

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner import seeds
from nova_vhpc.scheduler.planner.host_groups import make_host_pool
from nova_vhpc.scheduler.planner.lower_bound import MOST_LEVEL, Bound
from nova_vhpc.scheduler.planner.model import HostFacts, PlanRequest, Policy
from nova_vhpc.scheduler.planner.objective import Objective
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner import oracle
from nova_vhpc.tests.unit.scheduler.planner.test_planner import host


def request(members, facts, **values):
    """Return a request for members of one vCPU."""
    values = {'vcpus': 1, 'ram_mb': 1024, 'hosts': facts, **values}
    return PlanRequest(members=members, **values)


def bound_of(question):
    """Return the bound of a request's hosts, and their pool."""
    objective = Objective(question)
    pool = make_host_pool(objective, oracle.capacity_of(objective))
    order = pool.everything.order
    fastest = max(order, key=lambda i: objective.hosts[i].link_mbps)
    return Bound(pool, fastest), pool


class BoundTest(base.TestCase):
    def test_no_placement_is_below_the_bound(self):
        looked_at = 0
        closest = {None: 1e9, Policy.SOFT_AFFINITY: 1e9}
        for seed in range(400):
            choose = random.Random(seed)
            question = oracle.random_request(choose)
            objective = Objective(question)
            if question.existing or not any(oracle.capacity_of(objective)):
                continue
            bound, pool = bound_of(question)
            for _ in range(8):
                counts = {}
                for _ in range(question.members):
                    free = [
                        index
                        for index in pool.everything.order
                        if counts.get(index, 0) < pool.capacity[index]
                    ]
                    if not free:
                        break
                    index = choose.choice(free)
                    counts[index] = counts.get(index, 0) + 1
                if sum(counts.values()) < question.members:
                    continue
                looked_at += 1
                least = bound.least(max(counts.values()))
                value = objective.value(counts)
                self.assertLessEqual(least, value)
                if question.policy in closest and least[1]:
                    closest[question.policy] = min(
                        closest[question.policy], value[1] / least[1]
                    )
        self.assertGreater(looked_at, 200)
        # It is of use: some placements are hardly above it.
        self.assertLess(closest[None], 1.01)

    def test_bound_does_not_fall_with_the_level(self):
        facts = [
            host(n, cpus=64, switch=f's{n // 4}', rack=f'r{n // 8}')
            for n in range(32)
        ]
        for network in (None, 'exported', 'separate', 'multiple-shared'):
            bound, _ = bound_of(request(24, facts, network=network))
            found = [bound.least(level) for level in range(1, 25)]
            self.assertEqual(sorted(found, reverse=True), found)
            self.assertLess(found[-1][1], found[0][1] / 2)

    def test_ideal_placement_has_the_value_of_the_bound(self):
        """On idle hosts, in one switch or under several of one rack."""
        for hosts, per_switch, per_rack in ((8, 8, 8), (12, 2, 6)):
            facts = [
                host(
                    n,
                    cpus=64,
                    switch=f's{n // per_switch}',
                    rack=f'r{n // per_rack}',
                )
                for n in range(hosts)
            ]
            bound, pool = bound_of(request(8, facts))
            value = pool.objective.value(dict.fromkeys(range(4), 2))
            first, least_us = bound.least(2)
            self.assertEqual(value[0], first)
            self.assertAlmostEqual(1.0, value[1] / least_us)

    def test_bound_of_soft_affinity_counts_hosts_first(self):
        facts = [host(n, cpus=64) for n in range(8)]
        bound, _ = bound_of(request(12, facts, policy=Policy.SOFT_AFFINITY))
        self.assertEqual(
            [12, 3, 3, 2, 1],
            [bound.least(level)[0] for level in (1, 4, 5, 11, 12)],
        )

    def test_bound_is_zero_if_members_run_already(self):
        facts = [host(n, cpus=64) for n in range(8)]
        bound, _ = bound_of(request(4, facts, existing={'host1': 1}))
        self.assertEqual((0, 0.0), bound.least(1))

    def test_bound_is_zero_for_absurd_levels(self):
        facts = [HostFacts('host0', 1 << 30, 0, 1 << 30, 1 << 40)]
        bound, _ = bound_of(PlanRequest(10**9, 1, 1, facts))
        self.assertEqual((0, 0.0), bound.least(MOST_LEVEL + 1))
        self.assertGreater(bound.least(MOST_LEVEL), (0, 0.0))

    def test_plans_do_not_change_with_the_bound(self):
        hopeless = []
        least = Bound.least

        def none(bound, level):
            hopeless.append(least(bound, level))
            return 0, 0.0

        shorter = 0
        for seed in range(25):
            choose = random.Random(seed)
            facts = [
                host(
                    n,
                    cpus=32,
                    used=choose.choice((0, 0, 8, 16, 30)),
                    link_mbps=choose.choice((1000, 10_000, 25_000)),
                    switch=f's{n // 4}',
                    rack=f'r{n // 16}',
                )
                for n in range(64)
            ]
            question = request(
                choose.randint(6, 60),
                facts,
                vcpus=choose.choice((1, 4)),
                network=choose.choice((None, 'exported', 'separate')),
                max_overcommit=choose.choice((1.0, 4.0)),
                policy=choose.choice((None, None, *Policy)),
            )
            with mock.patch.object(seeds, 'fill', wraps=seeds.fill) as tried:
                found = planner.plan(question)
                fewer = tried.call_count
                with mock.patch.object(Bound, 'least', none):
                    self.assertEqual(planner.plan(question), found)
                shorter += tried.call_count - fewer > fewer
        self.assertGreater(shorter, 10)
