# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import random

from nova_vhpc.explain import moves
from nova_vhpc.scheduler.planner.model import HostFacts, PlanRequest, Tier
from nova_vhpc.tests import base


def host(name, switch, slots=4, used=0):
    return HostFacts(
        name, 16, used, 16 - used, 65536, slots, 10000, switch, 'r'
    )


def cluster(hosts, existing, **more):
    return PlanRequest(
        members=0,
        vcpus=2,
        ram_mb=1024,
        hosts=hosts,
        existing=existing,
        network='shared',
        **more,
    )


class AdviseTest(base.TestCase):
    def test_straggler_joins_the_others(self):
        request = cluster(
            [
                host('a1', 'a', slots=2, used=4),
                host('a2', 'a', used=4),
                host('b1', 'b', used=2),
            ],
            {'a1': 2, 'a2': 2, 'b1': 1},
        )
        now, *others = moves.advise(request)
        self.assertEqual((0, Tier.RACK), (now.moves, now.placement.tier))
        best = others[0]
        self.assertEqual(1, best.moves)
        self.assertEqual({'b1': 1}, best.leave)
        self.assertEqual(1, sum(best.join.values()))
        self.assertEqual(Tier.SWITCH, best.placement.tier)
        self.assertLess(best.placement.cost, now.placement.cost)

    def test_cluster_at_its_best_gets_no_advice(self):
        hosts = [host('a1', 'a', used=8), host('b1', 'b')]
        (now,) = moves.advise(cluster(hosts, {'a1': 4}))
        self.assertEqual({'a1': 4}, now.members)

    def test_full_host_takes_back_only_what_left(self):
        # No slot is free but on b1, which is alone under its switch.
        hosts = [
            host('a1', 'a', slots=0, used=16),
            host('b1', 'b', slots=1, used=14),
        ]
        steps = moves.advise(cluster(hosts, {'a1': 1, 'b1': 1}))
        for step in steps:
            self.assertLessEqual(step.members.get('a1', 0), 1)
            self.assertLessEqual(step.members.get('b1', 0), 2)

    def test_steps_keep_all_members_and_cost_ever_less(self):
        choose = random.Random(7)
        improved = 0
        for _ in range(20):
            hosts = []
            existing = {}
            for number in range(6):
                here = choose.choice([0, 0, 1, 2])
                name = f'h{number}'
                if here:
                    existing[name] = here
                hosts.append(
                    host(
                        name,
                        choose.choice(['a', 'b']),
                        choose.choice([0, 1, 3]),
                        2 * here,
                    )
                )
            if not existing:
                continue
            capacity = {
                h.name: h.slots + existing.get(h.name, 0) for h in hosts
            }
            steps = moves.advise(cluster(hosts, existing))
            improved += len(steps) > 1
            costs = [step.placement.cost for step in steps]
            self.assertEqual(sorted(set(costs), reverse=True), costs)
            for step in steps:
                self.assertEqual(
                    sum(existing.values()), sum(step.members.values())
                )
                self.assertEqual(step.moves, sum(step.leave.values()))
                self.assertEqual(step.moves, sum(step.join.values()))
                for name, here in step.members.items():
                    self.assertLessEqual(here, capacity[name])
                    self.assertEqual(
                        here,
                        existing.get(name, 0)
                        - step.leave.get(name, 0)
                        + step.join.get(name, 0),
                    )
        self.assertGreater(improved, 5)

    def test_affinity_is_kept(self):
        hosts = [host('a1', 'a', used=4), host('b1', 'a')]
        request = cluster(hosts, {'a1': 2}, policy='affinity')
        for step in moves.advise(request):
            self.assertEqual(1, len(step.members))

    def test_large_cluster_is_advised_in_bounded_work(self):
        hosts = [host(f'h{n}', f's{n % 4}', 2, 4) for n in range(16)]
        existing = {f'h{n}': 2 for n in range(16)}
        numbers = [s.moves for s in moves.advise(cluster(hosts, existing))]
        self.assertEqual(sorted(set(numbers)), numbers)
