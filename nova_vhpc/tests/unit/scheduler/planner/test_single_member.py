# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A member that is asked for alone: the first of a cluster, or a later one."""

import testtools

from nova_vhpc.scheduler import planner

TOGETHER = ('affinity', 'soft-affinity')
APART = ('anti-affinity', 'soft-anti-affinity')


def host(name, used=0, slots=4, total=8, mbps=1000, switch=None):
    """A host on which Nova over-commits CPUs 16 times."""
    return planner.HostFacts(
        name, total, used, total * 16 - used, 1 << 20, slots, mbps, switch
    )


class SingleMemberTest(testtools.TestCase):
    """Members of one vCPU, in a network configuration that counts uplinks."""

    def planned(self, *hosts, policy=None, existing=None, **more):
        """Return the name of the host that the planner chooses."""
        (name,) = planner.plan(
            planner.PlanRequest(
                1,
                1,
                256,
                hosts,
                network='separate',
                policy=policy,
                max_overcommit=1e6,
                existing=existing or {},
                **more,
            )
        ).assignments
        return name

    def grown(self, members, *hosts, **more):
        """Return the hosts of a cluster whose members come one by one."""
        existing = {}
        for _ in range(members):
            name = self.planned(*hosts, existing=existing, **more)
            existing[name] = existing.get(name, 0) + 1
            hosts = [
                h._replace(
                    used_vcpus=h.used_vcpus + 1,
                    free_cpus=h.free_cpus - 1,
                    slots=h.slots - 1,
                )
                if h.name == name
                else h
                for h in hosts
            ]
        return existing

    def test_first_member_avoids_overcommitted_hosts(self):
        hosts = (host('over', used=20), host('full', used=8), host('idle'))
        for policy in (None, *TOGETHER, *APART):
            self.assertEqual('idle', self.planned(*hosts, policy=policy))

    def test_first_member_leaves_a_cpu_for_packet_work(self):
        hosts = (host('tight', used=7), host('idle'))
        for policy in (None, *TOGETHER, *APART):
            self.assertEqual('idle', self.planned(*hosts, policy=policy))

    def test_first_member_gets_a_fast_link(self):
        hosts = (host('slow', mbps=100), host('fast', mbps=10_000))
        for policy in (None, *TOGETHER, *APART):
            self.assertEqual('fast', self.planned(*hosts, policy=policy))

    def test_member_without_a_group_keeps_large_hosts_free(self):
        hosts = (host('idle'), host('half', used=4))
        self.assertEqual('half', self.planned(*hosts))

    def test_followers_find_capacity_on_the_same_host(self):
        hosts = (host('a', slots=1), host('b', slots=3), host('c', slots=2))
        for policy in TOGETHER:
            self.assertEqual({'b': 3}, self.grown(3, *hosts, policy=policy))

    def test_one_more_slot_decides_only_if_followers_must_share_the_host(self):
        hosts = (
            host('slow', slots=3, mbps=100),
            host('fast', slots=2, mbps=10_000),
        )
        self.assertEqual('fast', self.planned(*hosts, policy='soft-affinity'))
        # Where the third one would else not be placed at all, it is.
        self.assertEqual('slow', self.planned(*hosts, policy='affinity'))

    def test_next_host_has_capacity_for_followers(self):
        hosts = (
            *(host(f'small{number}', slots=1) for number in range(4)),
            host('b', slots=3),
            host('c', slots=3),
        )
        self.assertEqual(
            {'b': 3, 'c': 3}, self.grown(6, *hosts, policy='soft-affinity')
        )

    def test_followers_find_hosts_under_the_same_switch(self):
        hosts = (
            host('a1', switch='a'),
            *(host(f'b{number}', switch='b') for number in range(3)),
            host('c1', switch='c'),
        )
        for policy in APART:
            self.assertEqual(
                {'b0': 1, 'b1': 1, 'b2': 1},
                self.grown(3, *hosts, policy=policy),
            )

    def test_followers_per_host_are_limited_by_the_rule(self):
        hosts = (
            host('a', slots=1),
            host('b', slots=4, used=1),
            host('c', slots=1),
        )
        self.assertEqual(
            {'b': 2},
            self.grown(
                2, *hosts, policy='anti-affinity', max_server_per_host=2
            ),
        )

    def test_no_host_is_chosen_without_capacity(self):
        for policy in (None, *TOGETHER, *APART):
            found = planner.plan(
                planner.PlanRequest(
                    1,
                    1,
                    256,
                    (host('a', slots=0),),
                    network='separate',
                    policy=policy,
                )
            )
            self.assertEqual({}, found.assignments)
            self.assertIn('need 1 places', found.infeasible_reason)
