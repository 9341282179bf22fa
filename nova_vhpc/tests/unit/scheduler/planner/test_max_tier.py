# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner import group_policies
from nova_vhpc.scheduler.planner.model import (
    HostFacts,
    PlanRequest,
    Policy,
    Tier,
)
from nova_vhpc.tests import base

LIMITS = (Tier.HOST, Tier.SWITCH, Tier.RACK)


def host(name, slots, switch=None, rack=None):
    return HostFacts(name, 32, 0, 32, 65536, slots, 1000, switch, rack)


def plan(members, facts, limit, **more):
    return planner.plan(
        PlanRequest(members, 2, 1024, facts, max_tier=limit, **more)
    )


FABRIC = (
    host('a1', 2, 'sa', 'r1'),
    host('a2', 3, 'sa', 'r1'),
    host('b1', 4, 'sb', 'r1'),
    host('c1', 4, 'sc', 'r2'),
    host('c2', 3, 'sc', 'r2'),
)


class TierLimitTest(base.TestCase):
    def test_cluster_stays_within_the_limit(self):
        for members, limit, hosts in (
            (4, Tier.HOST, ({'b1'}, {'c1'})),
            (7, Tier.SWITCH, ({'c1', 'c2'},)),
            (9, Tier.RACK, ({'a1', 'a2', 'b1'},)),
        ):
            for policy in (None, 'soft-affinity', 'soft-anti-affinity'):
                found = plan(members, FABRIC, limit, policy=policy)
                self.assertIsNone(found.infeasible_reason)
                self.assertIn(set(found.assignments), hosts)

    def test_cluster_that_fits_only_wider_is_refused_with_what_is_short(self):
        for members, limit, text in (
            (5, Tier.HOST, 'wants one host; the best, host b1, has 4 (CPUs'),
            (8, Tier.SWITCH, 'one switch; the best, switch sc, has 7 (CPUs'),
            (10, Tier.RACK, 'wants one rack; the best, rack r1, has 9 (CPUs'),
        ):
            self.assertIsNone(plan(members, FABRIC, None).infeasible_reason)
            reason = plan(members, FABRIC, limit).infeasible_reason
            self.assertIn(f'vhpc:max_tier={limit.name.lower()} ', reason)
            self.assertIn(text, reason)
            self.assertIn('uplinks, devices and disk ', reason)

    def test_running_members_bind_those_that_follow(self):
        found = plan(3, FABRIC, Tier.SWITCH, existing={'a1': 1})
        self.assertLessEqual(set(found.assignments), {'a1', 'a2'})
        reason = plan(
            6, FABRIC, Tier.SWITCH, existing={'a1': 1}
        ).infeasible_reason
        self.assertIn('members run in switch sa, which has 5 (', reason)

    def test_members_that_run_wider_already_are_named(self):
        reason = plan(
            1, FABRIC, Tier.SWITCH, existing={'a1': 1, 'c1': 1}
        ).infeasible_reason
        self.assertIn('run already in: switch sa, switch sc', reason)
        reason = plan(
            1, FABRIC, Tier.SWITCH, existing={'a1': 1, 'gone': 1}
        ).infeasible_reason
        self.assertIn('run already in: host gone, switch sa', reason)

    def test_host_of_unknown_switch_holds_what_fits_on_it_alone(self):
        facts = [host('x', 4), host('y', 4)]
        self.assertEqual(1, len(plan(4, facts, Tier.SWITCH).assignments))
        reason = plan(5, facts, Tier.SWITCH).infeasible_reason
        self.assertIn('host x (no aggregate names its switch)', reason)

    def test_first_member_goes_where_most_can_follow(self):
        facts = [host('x', 1, 'sx', 'r1'), *FABRIC]
        for limit, hosts in (
            (Tier.SWITCH, {'c1', 'c2'}),
            (Tier.RACK, {'x', 'a1', 'a2', 'b1'}),
        ):
            for policy in (None, 'soft-affinity', 'soft-anti-affinity'):
                found = plan(1, facts, limit, policy=policy)
                self.assertLessEqual(set(found.assignments), hosts)
        facts = [
            host('small', 9)._replace(total_cpus=4, free_cpus=4),
            host('large', 9),
        ]
        for policy in (None, 'soft-affinity', 'soft-anti-affinity'):
            found = plan(1, facts, Tier.HOST, policy=policy)
            self.assertEqual({'large': 1}, found.assignments)

    def test_switch_of_several_racks_is_one_part(self):
        facts = [host('x', 2, 's', 'r1'), host('y', 2, 's', 'r2')]
        for limit in (Tier.SWITCH, Tier.RACK):
            self.assertIsNone(plan(4, facts, limit).infeasible_reason)

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 4),
                st.sampled_from((None, 's0', 's1', 's2')),
                st.sampled_from((None, 'r0', 'r1')),
                st.integers(0, 1),
            ),
            min_size=1,
            max_size=6,
        ),
        st.integers(1, 8),
        st.sampled_from(LIMITS),
        st.sampled_from((None, *(p for p in Policy if p != Policy.AFFINITY))),
    )
    @settings(deadline=None)
    def test_cluster_is_placed_exactly_if_a_part_holds_it(
        self, offered, members, limit, policy
    ):
        facts = [
            host(f'h{n}', slots, switch, rack)
            for n, (slots, switch, rack, _) in enumerate(offered)
        ]
        existing = {
            fact.name: here
            for fact, (*_, here) in zip(facts, offered, strict=True)
            if here
        }
        free = {}
        for fact in facts:
            free[fact.name] = fact.slots
            if policy == Policy.ANTI_AFFINITY:
                free[fact.name] = min(
                    fact.slots, 1 - existing.get(fact.name, 0)
                )
        parts = [[fact] for fact in facts]
        for part in ('switch', 'rack')[:limit]:
            for name in {getattr(fact, part) for fact in facts} - {None}:
                parts.append([f for f in facts if getattr(f, part) == name])
        held = any(
            sum(free[fact.name] for fact in part) >= members
            and existing.keys() <= {fact.name for fact in part}
            for part in parts
        )
        found = plan(members, facts, limit, policy=policy, existing=existing)
        self.assertEqual(held, found.infeasible_reason is None)
        if held:
            self.assertEqual(members, sum(found.assignments.values()))
            self.assertLessEqual(found.tier, limit)
            for name, new in found.assignments.items():
                self.assertLessEqual(new, free[name])
        else:
            self.assertIn('vhpc:max_tier', found.infeasible_reason)

    def test_hosts_outside_of_parts_get_no_capacity(self):
        self.assertEqual(
            [0, 3, 0], group_policies.cap_to_hosts([2, 3, 4], iter([1]))
        )
