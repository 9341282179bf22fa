# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import random
import statistics

from nova_vhpc.scheduler.planner import host_groups, objective, seed_variants
from nova_vhpc.scheduler.planner.model import PlanRequest
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner.test_planner import host, plan


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


class RelievingTest(base.TestCase):
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
        request = PlanRequest(3, 1, 1024, facts, existing=existing)
        capacity = [fact.slots for fact in facts]
        pool = host_groups.make_host_pool(
            objective.Objective(request), capacity
        )
        found = list(seed_variants.relieving(pool, []))
        self.assertIn({0: 1, 8: 1, 17: 1}, found)
        for counts in found:
            self.assertEqual(3, sum(counts.values()))
            self.assertEqual({1}, {capacity[index] for index in counts})

    def relieving(self, members, facts, existing, near=()):
        """Return the relieving seeds; ``near`` has names of switches."""
        request = PlanRequest(members, 1, 1024, facts, existing=existing)
        pool = host_groups.make_host_pool(
            objective.Objective(request),
            [fact.slots for fact in facts],
        )
        return list(
            seed_variants.relieving(
                pool, [pool.switches[name] for name in near]
            )
        )

    def test_remaining_members_go_where_most_run_or_near_by(self):
        facts = [
            host(n, slots=slots, link_mbps=mbps, switch=f's{n // 2}')
            for n, (slots, mbps) in enumerate(
                ((8, 100), (4, 10_000), (2, 10_000), (3, 10_000), (9, 1000))
            )
        ]
        # The one on host0 is slowest; fewer run on host2 than on host3.
        existing = {'host0': 1, 'host2': 2, 'host3': 3}
        found = self.relieving(5, facts, existing, near=['s1'])
        self.assertIn({0: 1, 3: 3, 2: 1}, found)
        found = self.relieving(8, facts, existing, near=['s0', 's1'])
        # Near by first, then anywhere.
        self.assertIn({0: 1, 1: 4, 3: 3}, found)
        found = self.relieving(12, facts, existing, near=['s1'])
        self.assertIn({0: 1, 3: 3, 2: 2, 4: 6}, found)

    def test_switch_without_a_rack_relieves_too(self):
        facts = [
            host(0, slots=0, link_mbps=100, switch='s0'),
            host(1, slots=1, switch='s1'),
            host(2, slots=1, switch='s0'),
            host(3, slots=1),
        ]
        found = self.relieving(1, facts, {'host0': 1, 'host3': 1})
        self.assertIn({2: 1}, found)

    def test_absurd_number_of_members_takes_few_steps(self):
        members = 10**9
        facts = [
            host(n, slots=members, link_mbps=1000 * (n + 1)) for n in range(2)
        ]
        found = self.relieving(members, facts, {'host0': 1, 'host1': 1})
        self.assertLess(len(found), 20)
        for counts in found:
            self.assertEqual(members, sum(counts.values()))

    def test_no_seed_if_no_member_can_be_relieved(self):
        facts = [
            host(0, slots=0, switch='s0'),
            host(1, slots=4, switch='s1'),
        ]
        self.assertEqual([], self.relieving(2, facts, {'host0': 1}))

    def test_no_seed_if_no_member_runs(self):
        request = PlanRequest(3, 1, 1024, [host(n) for n in range(3)])
        pool = host_groups.make_host_pool(
            objective.Objective(request), [16] * 3
        )
        self.assertEqual([], list(seed_variants.relieving(pool, [])))
