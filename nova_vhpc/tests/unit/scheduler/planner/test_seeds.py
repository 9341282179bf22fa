# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import bisect
from unittest import mock

from nova_vhpc.scheduler.planner import host_groups, seeds
from nova_vhpc.scheduler.planner.model import PlanRequest
from nova_vhpc.scheduler.planner.objective import Objective
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner.test_planner import host


def pool_of(facts, members):
    objective = Objective(PlanRequest(members, 1, 1024, facts))
    capacity = host_groups.capacities(objective.request, objective)
    return host_groups.make_host_pool(objective, capacity)


def hosts_within(group):
    """Return the hosts of a group and of all its children."""
    found = set(group.order)
    for child in group.children:
        found |= hosts_within(child)
    return found


class FastTest(base.TestCase):
    def test_slow_hosts_of_a_switch_in_several_racks_are_left_out(self):
        facts = [
            host(0, link_mbps=25_000, switch='s0', rack='r0'),
            host(1, link_mbps=1000, switch='s0'),
            host(2, link_mbps=1000, switch='s0', rack='r1'),
            host(3, link_mbps=25_000, switch='s1', rack='r0'),
            host(4, link_mbps=25_000, switch='s2', rack='r1'),
        ]
        pool = pool_of(facts, 20)
        fast = seeds._Fast(pool, [0, 3, 4])
        (whole,) = fast.groups([pool.everything])
        self.assertEqual({0, 3, 4}, hosts_within(whole))
        self.assertEqual({0, 3, 4}, set(whole.order))

    def test_only_reduced_groups_that_hold_the_job_are_returned(self):
        facts = [
            host(n, link_mbps=1000 if n in slow else 25_000, rack=f'r{n // 4}')
            for slow in [{0, 4, 5, 6}]
            for n in range(12)
        ]
        pool = pool_of(facts, 33)
        kept = [index for index in range(12) if index not in {0, 4, 5, 6}]
        found = seeds._Fast(pool, kept).groups(pool.racks.values())
        # Of r1 one host is fast, of r2 all are.
        self.assertEqual([{1, 2, 3}], [set(group.order) for group in found])


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
