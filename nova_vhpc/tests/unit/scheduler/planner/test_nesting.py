# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner.model import HostFacts, PlanRequest
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner import oracle


def host(number, *clusters, used=16, **facts):
    """Return a host of 16 CPUs that allows three more members of 8 vCPUs."""
    values = {'free_ram_mb': 65536, **facts}
    return HostFacts(
        f'host{number}',
        16,
        used,
        24,
        clusters=frozenset(clusters),
        **values,
    )


def used_hosts(hosts, members, **request):
    placement = planner.plan(
        PlanRequest(members, 8, 1024, hosts, max_overcommit=4.0, **request)
    )
    assert placement.infeasible_reason is None
    return set(placement.assignments)


class NestingTest(base.TestCase):
    def test_cluster_takes_hosts_of_one_set_before_another(self):
        hosts = [host(n, 'ab'[n % 2]) for n in range(8)]
        self.assertEqual(
            {'host0', 'host2', 'host4', 'host6'},
            used_hosts(hosts, 8, policy='soft-affinity'),
        )

    def test_smallest_set_with_enough_hosts_is_taken(self):
        hosts = [host(n, 'a') for n in range(4)]
        hosts += [host(n, 'b') for n in range(4, 6)]
        hosts += [host(6, 'c')]
        self.assertEqual({'host4', 'host5'}, used_hosts(hosts, 4))

    def test_largest_set_is_taken_whole_if_none_is_enough(self):
        hosts = [host(0, 'a'), host(1, 'a'), host(2, 'b'), host(3, 'c')]
        hosts += [host(4, 'd'), host(5, 'd'), host(6, 'd')]
        self.assertEqual(
            {'host0', 'host1', 'host4', 'host5', 'host6'},
            used_hosts(hosts, 10),
        )

    def test_cluster_grows_on_hosts_like_its_own(self):
        for like, other in ((0, 1), (1, 0)):
            hosts = [host(0), host(1), host(2, 'b', slots=0)]
            hosts[like] = host(like, 'b')
            hosts[other] = host(other, 'a')
            self.assertEqual(
                {f'host{like}'},
                used_hosts(
                    hosts, 2, existing={'host2': 2}, policy='soft-affinity'
                ),
            )

    def test_first_of_single_members_takes_the_largest_set(self):
        hosts = [host(0, 'a'), host(1, 'b'), host(2, 'b')]
        self.assertEqual({'host1'}, used_hosts(hosts, 1, policy='affinity'))

    def test_emptier_host_of_another_set_comes_first(self):
        hosts = [host(0, 'a'), host(1, 'a'), host(2, 'b', used=0)]
        self.assertIn('host2', used_hosts(hosts, 3))

    def test_host_without_ram_is_not_taken_for_its_set(self):
        hosts = [host(0, 'a'), host(1, 'b'), host(2, 'b', free_ram_mb=0)]
        hosts += [host(3, 'a')]
        self.assertEqual({'host0', 'host3'}, used_hosts(hosts, 4))

    @given(st.integers(0, 1 << 32))
    @settings(deadline=None, max_examples=200)
    def test_clusters_never_change_cost_tier_or_fit(self, seed):
        choose = random.Random(seed)
        request = oracle.random_request(choose, hosts=12)
        # Pairs of hosts that differ in name only.
        facts = [
            one._replace(name=f'{one.name}-{copy}')
            for one in request.hosts
            for copy in range(2)
        ]
        existing = {f'{name}-1': n for name, n in request.existing.items()}
        request = dataclasses.replace(request, hosts=facts, existing=existing)
        with_clusters = [
            one._replace(clusters=frozenset(choose.sample('abc', k)))
            for one in facts
            for k in [choose.randint(0, 2)]
        ]
        plain = planner.plan(request)
        other = dataclasses.replace(request, hosts=with_clusters)
        nested = planner.plan(other)
        self.assertEqual(plain.infeasible_reason, nested.infeasible_reason)
        self.assertEqual(
            (plain.cost, plain.tier, plain.own_overcommit),
            (nested.cost, nested.tier, nested.own_overcommit),
        )
        self.assertEqual(
            list(plain.assignments.values()),
            list(nested.assignments.values()),
        )
        by_name = {one.name: one for one in with_clusters}
        for name, count in nested.assignments.items():
            self.assertLessEqual(count, planner.capacity(by_name[name], other))
