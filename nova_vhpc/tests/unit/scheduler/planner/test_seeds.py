# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import bisect
import random
import statistics
from unittest import mock

from nova_vhpc.scheduler.planner import host_groups, seeds
from nova_vhpc.scheduler.planner.model import PlanRequest
from nova_vhpc.scheduler.planner.objective import Objective
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner.oracle import host, plan


def pool_of(facts, members):
    objective = Objective(PlanRequest(members, 1, 1024, facts))
    capacity = host_groups.capacities(objective.request, objective)
    return host_groups.make_host_pool(objective, capacity)


class FastTest(base.TestCase):
    def test_members_are_also_tried_on_fast_hosts_alone(self):
        slow = {'cpus': 32, 'link_mbps': 1000}
        facts = [
            host(0, link_mbps=25_000, switch='s0', rack='r0'),
            host(1, **slow, switch='s0'),
            host(2, **slow, switch='s0', rack='r1'),
            host(3, link_mbps=25_000, switch='s1', rack='r0'),
            host(4, link_mbps=25_000, switch='s2', rack='r1'),
        ]
        for members, is_tried in ((20, True), (48, True), (49, False)):
            found = seeds.seeds(pool_of(facts, members))
            self.assertEqual(
                is_tried, any(counts.keys() <= {0, 3, 4} for counts in found)
            )


class FillTest(base.TestCase):
    def test_parts_with_too_small_hosts_are_skipped_at_once(self):
        """Otherwise the time would grow with the square of the parts."""
        facts = [
            host(n, cpus=2, switch=f's{n // 2}', rack=f'r{n // 2}')
            for n in range(80)
        ]
        pool = pool_of([*facts, host(80, cpus=4, rack='r80')], 4)
        counts = {}
        with mock.patch.object(
            host_groups, 'bisect_right', wraps=bisect.bisect_right
        ) as looked:
            left = host_groups.fill(
                pool.everything, 4, 4, pool.capacity, counts, least=3
            )
        self.assertEqual((0, {80: 4}), (left, counts))
        self.assertLess(looked.call_count, 5)


class WithoutSmallHostsTest(base.TestCase):
    def test_small_hosts_of_a_rack_stay_empty_if_they_cost_more(self):
        """Plans cost about as little as without the small hosts."""
        over = []
        for seed in range(8):
            choose = random.Random(seed)
            facts = [
                host(
                    n,
                    used=choose.randrange(16),
                    switch=f's{n // 16}',
                    rack=f'r{n // 32}',
                )
                for n in range(96)
            ]
            places = [
                sum(fact.free_cpus for fact in facts if fact.rack == rack)
                for rack in ('r0', 'r1', 'r2')
            ]
            whole, *parts = (
                plan(
                    int(0.6 * max(places)),
                    [fact for fact in facts if fact.free_cpus >= least],
                    network='multiple-shared',
                    paradigm='hybrid',
                ).cost
                for least in (0, 2, 4, 6, 8)
            )
            over.append(whole / min(parts))
        self.assertLess(statistics.mean(over), 1.06)
        self.assertLess(max(over), 1.15)


class NearSlowMembersTest(base.TestCase):
    def test_all_of_several_equally_slow_members_are_relieved(self):
        """Relieving only one of them would not make the cluster faster."""
        existing = {}
        facts = []
        for n in range(24):
            slow = n in (0, 4, 8)
            facts.append(
                host(
                    n,
                    cpus=64,
                    slots=3,
                    link_mbps=1000 if slow else 25_000,
                    switch=f's{n // 2}',
                    rack=f'r{n // 4}',
                )
            )
            if slow:
                existing[f'host{n}'] = 1
            elif n % 4 == 2:
                existing[f'host{n}'] = 4
        for members, each in ((3, 1), (6, 2)):
            found = plan(
                members, facts, network='shared-separate', existing=existing
            )
            self.assertEqual(
                {'host0': each, 'host4': each, 'host8': each},
                dict(found.assignments),
            )

    def test_members_of_full_hosts_are_relieved_by_hosts_near_by(self):
        existing = {f'host{n}': 1 for n in (1, 10, 17)}
        facts = [
            host(
                n,
                slots=1,
                link_mbps=1000 if n in (1, 10, 17) else 25_000,
                switch=f's{n // 2}',
                rack=f'r{n // 8}',
            )
            for n in range(48)
        ]
        # The switch of host10 is full, too; host17 has room itself.
        for n in (1, 10, 11):
            facts[n] = facts[n]._replace(slots=0)
        capacity = [fact.slots for fact in facts]
        found = self.seeds(3, facts, existing)
        self.assertIn({0: 1, 8: 1, 17: 1}, found)
        for counts in found:
            self.assertEqual(3, sum(counts.values()))
            self.assertEqual({1}, {capacity[index] for index in counts})

    def seeds(self, members, facts, existing):
        """Return the seeds."""
        request = PlanRequest(members, 1, 1024, facts, existing=existing)
        pool = host_groups.make_host_pool(
            Objective(request), [fact.slots for fact in facts]
        )
        return list(seeds.seeds_near_slow_members(pool))

    def test_remaining_members_go_where_most_run_or_near_by(self):
        facts = [
            host(n, slots=slots, link_mbps=mbps, switch=f's{n // 2}')
            for n, (slots, mbps) in enumerate(
                ((8, 100), (4, 10_000), (2, 10_000), (3, 10_000), (9, 1000))
            )
        ]
        # The one on host0 is slowest; fewer run on host2 than on host3.
        existing = {'host0': 1, 'host2': 2, 'host3': 3}
        for members, wanted in (
            (5, {0: 1, 3: 3, 2: 1}),
            # In the switches of running members, then anywhere.
            (8, {0: 1, 3: 3, 2: 2, 1: 2}),
            (12, {0: 1, 3: 3, 2: 2, 1: 4, 4: 2}),
        ):
            self.assertIn(wanted, self.seeds(members, facts, existing))

    def test_switch_without_a_rack_relieves_too(self):
        facts = [
            host(0, slots=0, link_mbps=100, switch='s0'),
            host(1, slots=1, switch='s1'),
            host(2, slots=1, switch='s0'),
            host(3, slots=1),
        ]
        found = self.seeds(1, facts, {'host0': 1, 'host3': 1})
        self.assertIn({2: 1}, found)

    def test_absurd_number_of_members_takes_few_steps(self):
        members = 10**9
        facts = [
            host(n, slots=members, link_mbps=1000 * (n + 1)) for n in range(2)
        ]
        found = self.seeds(members, facts, {'host0': 1, 'host1': 1})
        self.assertLess(len(found), 20)
        for counts in found:
            self.assertEqual(members, sum(counts.values()))

    def test_no_seed_if_no_member_runs(self):
        request = PlanRequest(3, 1, 1024, [host(n) for n in range(3)])
        pool = host_groups.make_host_pool(Objective(request), [16] * 3)
        self.assertEqual([], list(seeds.seeds_near_slow_members(pool)))
