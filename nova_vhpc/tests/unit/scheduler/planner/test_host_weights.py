# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner import host_weights
from nova_vhpc.scheduler.planner.model import HostFacts, PlanRequest
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner import oracle


def facts(number, **more):
    return HostFacts(
        f'h{number}', 16, 0, 16, 65536, **{'link_mbps': 1000, **more}
    )


def weigh(hosts, members=4, unknown=frozenset(), **request):
    question = PlanRequest(members, 4, 1024, hosts, 'shared', **request)
    placement = planner.plan(question)
    others = host_weights.other_weights(question, placement, hosts, unknown)
    return (
        host_weights.planned_weights(placement),
        dict(zip((host.name for host in hosts), others, strict=True)),
    )


class HostWeightsTest(base.TestCase):
    def test_planned_hosts_outweigh_all_others_by_far(self):
        planned, others = weigh([facts(n) for n in range(6)], members=12)
        self.assertGreater(len(planned), 1)
        self.assertEqual(1.0, max(planned.values()))
        self.assertGreater(min(planned.values()) - max(others.values()), 0.35)

    def test_near_hosts_outweigh_far_ones(self):
        hosts = [
            facts(0, switch='s0', rack='r0', slots=0),
            facts(1, switch='s0', rack='r0'),
            facts(2, switch='s1', rack='r0'),
            facts(3, switch='s2', rack='r1'),
        ]
        _, others = weigh(hosts, members=1, existing={'h0': 3})
        self.assertGreater(others['h1'], others['h2'])
        self.assertGreater(others['h2'], others['h3'])

    def test_hosts_of_running_members_outweigh_hosts_near_them(self):
        hosts = [facts(0, switch='s0'), facts(1, switch='s0')]
        _, others = weigh(hosts, members=1, existing={'h0': 2})
        self.assertGreater(others['h0'], others['h1'])

    def test_hosts_whose_cpus_siblings_fill_come_last(self):
        hosts = [
            facts(0, switch='s0')._replace(used_vcpus=16, free_cpus=48),
            # Much further away, slow, and full of other guests.
            facts(1, switch='s1', link_mbps=10)._replace(
                used_vcpus=32, free_cpus=32
            ),
        ]
        for others_on_first in 4, 3:
            existing = {'h0': others_on_first}
            _, others = weigh(
                hosts, members=1, existing=existing, max_overcommit=4.0
            )
            if others_on_first == 4:
                self.assertLess(0.0, others['h0'])
                self.assertLess(others['h0'], others['h1'])
            else:
                self.assertGreater(others['h0'], others['h1'])

    def test_fast_links_outweigh_slow_ones(self):
        _, others = weigh([facts(0), facts(1, link_mbps=10000)])
        self.assertGreater(others['h1'], others['h0'])

    def test_hosts_with_cpus_left_outweigh_full_ones(self):
        hosts = [
            facts(n)._replace(used_vcpus=used, free_cpus=64 - used)
            for n, used in enumerate((0, 8, 11, 12, 16, 32))
        ]
        # With a member's four: much left, one CPU for the host, none, and
        # more vCPUs than CPUs.
        _, others = weigh(hosts, max_overcommit=4.0)
        self.assertEqual(others['h0'], others['h1'])
        for one, other in ('h2', 'h3'), ('h3', 'h4'), ('h4', 'h5'):
            self.assertGreater(others[one], others[other])

    def test_equal_hosts_weigh_the_same(self):
        _, others = weigh([facts(n) for n in range(3)])
        self.assertEqual(1, len(set(others.values())))

    def test_hosts_of_unknown_topology_get_the_weight_of_the_option(self):
        _, others = weigh([facts(0), facts(1)], unknown={'h1'})
        self.assertEqual({'h0': host_weights.OTHERS_MOST, 'h1': -1.0}, others)

    def test_the_cheapest_host_weighs_most_and_others_in_proportion(self):
        hosts = [facts(n, link_mbps=1000 * 10**n) for n in range(3)]
        question = PlanRequest(4, 4, 1024, hosts, 'shared')
        placement = planner.plan(question)
        costs = host_weights.single_member_costs_us(question, placement, hosts)
        self.assertEqual(min(costs), costs[2])
        found = host_weights.other_weights(question, placement, hosts)
        for weight, cost_us in zip(found, costs, strict=True):
            self.assertAlmostEqual(
                host_weights.OTHERS_MOST, weight * cost_us / min(costs)
            )

    def test_single_member_costs_as_on_its_host_or_in_its_switch(self):
        hosts = [
            facts(0, switch='s0'),
            facts(1, switch='s0', link_mbps=0),
        ]
        question = PlanRequest(1, 4, 1024, hosts, 'shared', existing={'h0': 2})
        costs = host_weights.single_member_costs_us(
            question, planner.plan(question), hosts
        )
        self.assertEqual(
            [
                # Three on the host with no other anywhere; one of three.
                oracle.member_us('shared', here, 3, 1.0, tier_factor=1.0)
                for here in (3, 1)
            ],
            costs,
        )

    def test_no_hosts_or_no_plan_gives_no_planned_weights(self):
        self.assertEqual(({}, {}), weigh([]))
        planned, others = weigh([facts(0)], members=40)
        self.assertEqual({}, planned)
        self.assertEqual(1, len(others))

    def test_all_hosts_weigh_the_same_for_a_cluster_of_one(self):
        _, others = weigh([facts(0), facts(1)], members=1)
        self.assertEqual({host_weights.OTHERS_MOST}, set(others.values()))
