# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner import ties
from nova_vhpc.scheduler.planner.model import HostFacts, PlanRequest, Rail
from nova_vhpc.scheduler.planner.objective import Objective
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.scheduler.planner import oracle

FABRIC = {'switch': 's1', 'rack': 'r1'}


def host(number, *names, slots=1, mbps=1000, **facts):
    """Return an idle host of 16 CPUs with free uplinks on some rails."""
    found = tuple(Rail(name, slots, mbps) for name in names)
    return HostFacts(
        f'host{number}',
        16,
        0,
        16,
        65536,
        slots=slots * len(names),
        rails=found,
        **{**FABRIC, **facts},
    )


def plan(hosts, members, vcpus=8, network='separate', **request):
    placement = planner.plan(
        PlanRequest(members, vcpus, 1024, hosts, network=network, **request)
    )
    assert placement.infeasible_reason is None
    return placement


def frames(here):
    """Count the frames of all members to all others, by host and rail.

    :param here: rails of the members of each host.
    :returns: frames that leave by each uplink, and that arrive by it.
    """
    leaving, arriving = Counter(), Counter()
    for sender, rails_of_senders in here.items():
        for receiver, rails_of_receivers in here.items():
            if sender == receiver:
                continue
            for _ in rails_of_senders:
                for rail in rails_of_receivers:
                    leaving[sender, rail] += 1
                    arriving[receiver, rail] += 1
    return leaving, arriving


class RailsTest(base.TestCase):
    def test_members_of_different_hosts_share_a_rail(self):
        for free in (
            ('ab', 'b', 'bc', 'b'),
            ('abc', 'c', 'abc', 'ac'),
            ('ab', 'ab', 'ab', 'ab'),
        ):
            hosts = [host(n, *names) for n, names in enumerate(free)]
            placement = plan(hosts, 4, policy='anti-affinity')
            self.assertEqual(1, len(set(placement.rails.values())))
            self.assertEqual(0.0, placement.stray_share)

    def test_hosts_with_one_rail_free_are_preferred(self):
        """Six hosts cost the same, and three of them have rail b free."""
        hosts = [host(n, 'ac'[n % 2]) for n in range(3)]
        hosts += [host(n, 'b') for n in range(3, 6)]
        placement = plan(hosts, 3, policy='anti-affinity')
        self.assertEqual(
            dict.fromkeys(('host3', 'host4', 'host5'), ('b',)), placement.rails
        )

    def test_another_switch_is_taken_if_it_costs_the_same(self):
        hosts = [host(n, 'ab'[n % 2]) for n in range(4)]
        hosts += [host(n, 'b', switch='s2') for n in range(4, 8)]
        placement = plan(hosts, 4, policy='anti-affinity')
        self.assertEqual(
            {f'host{n}' for n in range(4, 8)}, set(placement.assignments)
        )

    def test_most_members_share_a_rail_if_not_all_can(self):
        hosts = [host(n, 'abc'[n % 3]) for n in range(9)]
        placement = plan(hosts, 5, policy='anti-affinity')
        found = Counter(name for (name,) in placement.rails.values())
        self.assertEqual([3, 2], sorted(found.values(), reverse=True))

    def test_cost_comes_before_rails(self):
        """The hosts with the same rails are not under one switch."""
        hosts = [host(n, 'ab'[n % 2]) for n in range(4)]
        hosts += [host(n, 'b', switch=f's{n}') for n in range(4, 8)]
        placement = plan(hosts, 4, policy='anti-affinity')
        self.assertEqual(
            {f'host{n}' for n in range(4)}, set(placement.assignments)
        )
        self.assertGreater(placement.stray_share, 0.0)
        self.assertEqual(planner.Tier.SWITCH, placement.tier)

    def test_members_of_one_host_use_the_rails_that_others_use(self):
        free = ('abcd', 'bcd', 'abcd', 'bd')
        hosts = [host(n, *names) for n, names in enumerate(free)]
        placement = plan(hosts, 8)
        self.assertEqual({2}, set(placement.assignments.values()))
        for names in placement.rails.values():
            self.assertEqual({'b', 'd'}, set(names))
        self.assertEqual(0.0, placement.stray_share)
        leaving, arriving = frames(placement.rails)
        self.assertEqual(arriving, leaving)
        self.assertEqual(1, len(set(leaving.values())))

    def test_shared_members_of_one_host_are_on_one_rail(self):
        hosts = [host(n, 'a', 'b', slots=8) for n in range(4)]
        for network, used in (('shared', 1), (None, 2)):
            placement = plan(hosts, 8, network=network)
            self.assertEqual(
                {used}, {len(set(r)) for r in placement.rails.values()}
            )
            self.assertEqual(0.0, placement.stray_share)

    def test_rail_with_most_bandwidth_is_first(self):
        hosts = [
            host(n)._replace(
                slots=2, rails=(Rail('a', 1, 1000), Rail('b', 1, 10000))
            )
            for n in range(3)
        ]
        placement = plan(hosts, 3, policy='anti-affinity')
        self.assertEqual({('b',)}, set(placement.rails.values()))

    def test_new_members_join_the_rail_of_running_ones(self):
        hosts = [host(0, slots=0)]
        hosts += [host(n, 'a', 'b') for n in range(1, 4)]
        for rail in 'ab':
            placement = plan(
                hosts,
                1,
                policy='anti-affinity',
                existing={'host0': 1},
                running_rails={'host0': {rail: 1}},
            )
            self.assertEqual([(rail,)], list(placement.rails.values()))

    def test_member_goes_where_the_rail_of_running_ones_is_free(self):
        hosts = [host(0, slots=0), host(1, 'a'), host(2, 'a'), host(3, 'b')]
        placement = plan(
            hosts,
            1,
            policy='anti-affinity',
            existing={'host0': 1},
            running_rails={'host0': {'b': 1}},
        )
        self.assertEqual({'host3': ('b',)}, placement.rails)

    def test_without_rails_nothing_is_said_of_them(self):
        hosts = [host(n, 'a')._replace(rails=()) for n in range(4)]
        placement = plan(hosts, 4, policy='anti-affinity')
        self.assertEqual(({}, 0.0), (placement.rails, placement.stray_share))


class StrayShareTest(base.TestCase):
    @given(
        st.lists(
            st.lists(st.sampled_from('abc'), min_size=1, max_size=4),
            min_size=1,
            max_size=5,
        )
    )
    def test_frames_beyond_those_that_arrive_are_stray(self, of_hosts):
        here = {f'host{n}': names for n, names in enumerate(of_hosts)}
        hosts = [host(n) for n in range(len(of_hosts))]
        objective = Objective(PlanRequest(1, 8, 1024, hosts))
        leaving, arriving = frames(here)
        found = ties.stray_share(
            objective, {n: tuple(names) for n, names in enumerate(of_hosts)}
        )
        self.assertAlmostEqual(
            (leaving - arriving).total() / max(1, leaving.total()), found
        )

    def test_running_members_count(self):
        request = PlanRequest(
            1,
            8,
            1024,
            [host(0), host(1)],
            existing={'host0': 1},
            running_rails={'host0': {'a': 1}},
        )
        objective = Objective(request)
        self.assertEqual(0.0, ties.stray_share(objective, {1: ('a',)}))
        self.assertEqual(1.0, ties.stray_share(objective, {1: ('b',)}))


class PropertyTest(base.TestCase):
    @given(st.integers(0, 1 << 32))
    @settings(deadline=None, max_examples=300)
    def test_rails_never_make_a_plan_worse(self, seed):
        choose = random.Random(seed)
        request = oracle.random_request(choose, hosts=12)
        # Hosts in threes that differ in name and rails only.
        copies = [
            one._replace(name=f'{one.name}-{copy}')
            for one in request.hosts[:5]
            for copy in range(3)
        ]
        existing = {f'{n}-1': count for n, count in request.existing.items()}
        request = dataclasses.replace(request, existing=existing)
        with_rails = []
        for one in copies:
            found = tuple(
                Rail(name, choose.randint(1, 2), choose.choice([1000, 10000]))
                for name in choose.sample('abcd', choose.randint(0, 4))
            )
            slots = sum(rail.slots for rail in found)
            with_rails.append(
                one._replace(slots=min(one.slots, slots), rails=found)
            )
        running = {
            name: {choose.choice('abcd'): count}
            for name, count in request.existing.items()
            if count
        }
        request = dataclasses.replace(
            request, hosts=with_rails, running_rails=running
        )
        plain = planner.plan(
            dataclasses.replace(
                request,
                hosts=[one._replace(rails=()) for one in with_rails],
            )
        )
        found = planner.plan(request)
        self.assertEqual(plain.infeasible_reason, found.infeasible_reason)
        if found.infeasible_reason is not None:
            return
        objective = Objective(request)
        position = {one.name: n for n, one in enumerate(objective.hosts)}

        def counts(placement):
            return {position[n]: c for n, c in placement.assignments.items()}

        before = objective.value(counts(plain))
        after = objective.value(counts(found))
        self.assertLessEqual(after[0], before[0])
        self.assertLessEqual(after[1], before[1] * (1 + 1e-9))
        self.assertLessEqual(found.own_overcommit, plain.own_overcommit)
        self.assertLessEqual(
            found.stray_share,
            ties.stray_share(
                objective, ties.rails_of_members(objective, counts(plain))
            ),
        )
        for name, count in found.assignments.items():
            one = objective.hosts[position[name]]
            self.assertLessEqual(count, planner.capacity(one, request))
            slots = {rail.name: rail.slots for rail in one.rails}
            used = Counter(found.rails.get(name, ()))
            self.assertEqual(min(count, sum(slots.values())), used.total())
            for rail, members in used.items():
                self.assertLessEqual(members, slots[rail])
