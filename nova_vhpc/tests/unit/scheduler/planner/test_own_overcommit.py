# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner.model import (
    HostFacts,
    PlanRequest,
    Policy,
    Tier,
)
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner import oracle

POLICIES = (None, *Policy)


def host(number, cpus=64, used=0, **facts):
    values = {
        'name': f'h{number:02}',
        'total_cpus': cpus,
        'used_vcpus': used,
        'free_cpus': 16 * cpus - used,
        'free_ram_mb': 1 << 30,
        'switch': f's{number // 8}',
        'rack': 'r',
        **facts,
    }
    return HostFacts(**values)


def request(members, vcpus, facts, **more):
    return PlanRequest(
        members, vcpus, 1, facts, **{'max_overcommit': 4.0, **more}
    )


def one_by_one(members, vcpus, facts, policy):
    """Return members by host, each placed by a request of its own."""
    facts = {fact.name: fact for fact in facts}
    running = {}
    for _ in range(members):
        (name,) = planner.plan(
            request(
                1,
                vcpus,
                list(facts.values()),
                policy=policy,
                existing=dict(running),
            )
        ).assignments
        running[name] = running.get(name, 0) + 1
        facts[name] = facts[name]._replace(
            used_vcpus=facts[name].used_vcpus + vcpus,
            free_cpus=facts[name].free_cpus - vcpus,
        )
    return running


class IdleHostsTest(base.TestCase):
    """16 idle hosts of 64 CPUs, of which each may take 256 vCPUs."""

    facts = tuple(host(number) for number in range(16))

    def test_soft_affinity_takes_as_few_hosts_as_have_the_cpus(self):
        for members, vcpus, hosts in ((120, 2, 4), (32, 8, 4), (64, 2, 2)):
            found = planner.plan(
                request(members, vcpus, self.facts, policy='soft-affinity')
            )
            self.assertEqual(hosts, len(found.assignments))
            self.assertLessEqual(found.own_overcommit, 1.0)

    def test_each_policy_keeps_siblings_apart(self):
        for policy in (None, 'soft-affinity', 'soft-anti-affinity'):
            for members, vcpus in ((120, 2), (32, 8), (128, 8), (80, 11)):
                found = planner.plan(
                    request(members, vcpus, self.facts, policy=policy)
                )
                self.assertLessEqual(found.own_overcommit, 1.0)

    def test_servers_created_one_at_a_time_keep_apart(self):
        for policy in (None, 'soft-affinity', 'soft-anti-affinity'):
            running = one_by_one(24, 16, self.facts, policy)
            self.assertLessEqual(max(running.values()), 4, running)


class ScarceHostsTest(base.TestCase):
    """A few small hosts, some with other guests."""

    def test_beside_other_guests_is_better_than_beside_siblings(self):
        facts = [host(0, 8), host(1, 8, used=8), host(2, 8, used=24)]
        found = planner.plan(request(3, 8, facts, policy='soft-affinity'))
        self.assertEqual({'h00', 'h01', 'h02'}, set(found.assignments))

    def test_siblings_share_no_more_cpus_than_needed(self):
        facts = [host(number, 8) for number in range(4)]
        found = planner.plan(request(36, 1, facts, policy='soft-affinity'))
        self.assertEqual([9] * 4, sorted(found.assignments.values()))
        self.assertEqual(1.125, found.own_overcommit)

    def test_siblings_never_exceed_the_limit_of_the_flavor(self):
        facts = [host(number, 8) for number in range(2)]
        found = planner.plan(request(24, 1, facts, max_overcommit=1.5))
        self.assertEqual([12, 12], list(found.assignments.values()))
        self.assertEqual(1.5, found.own_overcommit)
        more = planner.plan(request(25, 1, facts, max_overcommit=1.5))
        self.assertIsNotNone(more.infeasible_reason)

    def test_affinity_shares_cpus_on_its_one_host(self):
        facts = [host(0, 8), host(1, 16)]
        found = planner.plan(request(20, 1, facts, policy='affinity'))
        self.assertEqual({'h01': 20}, found.assignments)
        self.assertEqual(1.25, found.own_overcommit)

    def test_member_that_runs_takes_the_cpus_of_its_host(self):
        facts = [host(0, 8, used=8), host(1, 8, used=16)]
        found = planner.plan(request(1, 8, facts, existing={'h00': 1}))
        self.assertEqual({'h01': 1}, found.assignments)

    def test_smaller_members_that_run_take_only_what_they_have(self):
        facts = [host(0, 8, used=2), host(1, 8)]
        found = planner.plan(
            request(1, 4, facts, existing={'h00': 2}, policy='soft-affinity')
        )
        self.assertEqual({'h00': 1}, found.assignments)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from((0, 4, 8, 16)),
                st.integers(0, 24),
                st.integers(0, 40),
                st.sampled_from((0, 1, 3, planner.NO_LIMIT)),
                st.integers(0, 3),
                st.sampled_from((None, 's0', 's1')),
                st.sampled_from((None, 'r0', 'r1')),
            ),
            min_size=1,
            max_size=5,
        ),
        st.integers(1, 9),
        st.sampled_from((1, 2, 4)),
        st.sampled_from((1.0, 1.5, 4.0)),
        st.sampled_from(POLICIES),
        st.sampled_from((None, Tier.HOST, Tier.SWITCH, Tier.RACK)),
    )
    @settings(deadline=None)
    def test_no_own_overcommit_while_a_placement_without_it_exists(
        self, offered, members, vcpus, ratio, policy, max_tier
    ):
        facts = []
        existing = {}
        for number, one in enumerate(offered):
            cpus, others, free, slots, running, switch, rack = one
            here = running if cpus else 0
            facts.append(
                host(
                    number,
                    cpus,
                    others + here * vcpus,
                    free_cpus=free,
                    slots=slots,
                    switch=switch,
                    rack=rack,
                )
            )
            if here:
                existing[facts[-1].name] = here
        asked = request(
            members,
            vcpus,
            facts,
            max_overcommit=ratio,
            policy=policy,
            existing=existing,
            max_tier=max_tier,
        )
        # The same limits, and as many members as the CPUs hold of the
        # cluster alone.
        apart = dataclasses.replace(
            asked,
            hosts=[
                fact._replace(
                    slots=max(
                        0,
                        min(
                            fact.slots,
                            fact.total_cpus // vcpus
                            - existing.get(fact.name, 0),
                        ),
                    )
                )
                for fact in facts
            ],
        )
        found = planner.plan(asked)
        if oracle.exhaustive(apart) is not None:
            self.assertIsNone(found.infeasible_reason)
            self.assertLessEqual(found.own_overcommit, 1.0)
        elif found.infeasible_reason is None:
            self.assertGreater(found.own_overcommit, 1.0)
