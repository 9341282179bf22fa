# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses
import json
import pathlib

import fixtures
from nova import objects
from nova.scheduler import weights as nova_weights
from nova.scheduler.weights import ram as nova_ram
from oslo_utils.fixture import uuidsentinel as uuids

from nova_vhpc.scheduler import filters, weights
from nova_vhpc.scheduler.planner import cost_table, host_weights
from nova_vhpc.scheduler.sources import cost_table_file
from nova_vhpc.tests.unit.scheduler import world
from nova_vhpc_lab.bench.scheduler import world as scheduler_world


class WeigherTest(world.WorldTestCase):
    def weigh(self, spec, states=None):
        states = list(self.filter.filter_all(states or self.states, spec))
        weighed = [world.weights_of(state) for state in states]
        raw = self.weigher.weigh_objects(weighed, spec)
        return {
            state.host: weight
            for state, weight in zip(
                reversed(states), reversed(raw), strict=True
            )
        }

    def test_request_without_extra_specs_has_zero_weights(self):
        spec = scheduler_world.request(1, 'affinity', {})
        self.assertEqual({0.0}, set(self.weigh(spec).values()))
        self.assertEqual(0.0, self.weigher.weight_multiplier(self.states[0]))

    def test_planned_host_has_weight_one_and_others_half_at_most(self):
        weights = self.weigh(self.request(members=2))
        (best,) = (host for host, weight in weights.items() if weight == 1)
        del weights[best]
        self.assertTrue(all(0 <= w <= 0.5001 for w in weights.values()))

    def test_plan_takes_hosts_with_the_same_clusters(self):
        for number, state in enumerate(self.states):
            state.vcpus_used = 24
            state.aggregates = []
            state.instances = {f'server{number}': None}
        self.group_of = {
            'server0': uuids.a,
            'server1': uuids.b,
            'server2': uuids.a,
            'server3': uuids.b,
        }
        spec = self.request(8, vhpc_max_overcommit='1.0')
        self.assertEqual(
            {'host00000', 'host00002'}, self.plan(spec).assignments.keys()
        )

    def test_request_without_group_is_weighed(self):
        flavor = self.request().flavor
        spec = objects.RequestSpec(flavor=flavor, instance_uuid=uuids.server)
        weights = self.weigh(spec)
        self.assertEqual(1.0, max(weights.values()))

    def test_plan_is_made_anew_if_another_filter_drops_the_next_host(self):
        spec = self.request(3, 'anti-affinity')
        weights = self.weigh(spec)
        outside, third, _, first = sorted(weights, key=weights.__getitem__)
        self.assertLess(weights[outside], 0.6)
        by_name = {state.host: state for state in self.states}
        _ = by_name[first].allocation_candidates[0]
        by_name[first].consume_from_request(spec)
        weights = self.weigh(spec, [by_name[third], by_name[outside]])
        self.assertGreater(min(weights.values()), 0.9)

    def test_single_host_has_weight_one(self):
        spec = self.request()
        self.assertEqual({'host00000': 1.0}, self.weigh(spec, self.states[:1]))

    def test_equal_hosts_have_equal_weights(self):
        for state in self.states:
            state.vcpus_used = 8
            state.aggregates = []
        weights = sorted(self.weigh(self.request()).values())
        self.assertEqual(1.0, weights[-1])
        self.assertAlmostEqual(weights[0], weights[-2], places=5)

    def test_host_of_unknown_topology_has_weight_of_unknown(self):
        self.flags(unknown_topology='allow', weight_of_unknown=-0.5)
        self.forget('host00001')
        weights = self.weigh(self.request(members=2))
        self.assertAlmostEqual(-0.5, weights['host00001'], places=5)
        self.assertEqual(3, sum(1 for w in weights.values() if w > 0))

    def test_members_are_placed_if_all_hosts_are_of_unknown_topology(self):
        self.flags(unknown_topology='allow')
        self.body['provider_summaries'].clear()
        placed = self.place(self.request(members=2))
        self.assertNotIn(None, placed)

    def forget(self, host):
        """Remove the uplinks of a host, as if it had no agent."""
        uuid = scheduler_world.root_uuid(host)
        summaries = self.body['provider_summaries']
        for name in list(summaries):
            if summaries[name]['root_provider_uuid'] == uuid:
                del summaries[name]

    def test_plan_costs_by_the_operators_cost_table(self):
        by_paper = self.plan(self.request(members=2))
        file = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'costs.json'
        )
        paper = cost_table.PAPER
        slow = dataclasses.replace(
            paper,
            latency_us=scaled(paper.latency_us, 10),
            remote_mb_s=scaled(paper.remote_mb_s, 0.1),
            local_mb_s=scaled(paper.local_mb_s, 0.1),
        )
        file.write_text(json.dumps(cost_table_file.document(slow)))
        self.flags(cost_table=str(file))
        by_own = self.plan(self.request(members=2))
        self.assertAlmostEqual(10 * by_paper.cost, by_own.cost)
        self.assertEqual(by_paper.assignments, by_own.assignments)

    def test_wrong_cost_table_stops_filter_and_weigher(self):
        self.flags(cost_table='/nowhere/costs.json')
        for make in (
            weights.VirtualClusterWeigher,
            filters.VirtualClusterFilter,
        ):
            error = self.assertRaises(ValueError, make)
            self.assertIn('/nowhere/costs.json', str(error))

    def plan(self, spec):
        self.weigh(spec)
        return self.states[0]._vhpc.session.plan_score.placement

    def test_hosts_of_unknown_topology_are_planned_only_if_needed(self):
        self.flags(unknown_topology='allow')
        self.forget('host00000')
        # A peer runs on host00000, so it would be the nearest host.
        spec = self.request(members=5)
        spec.instance_group.hosts = ['host00000']
        self.states[0].instances[spec.instance_group.members[4]] = None
        spec.num_instances = 4
        self.assertNotIn('host00000', self.plan(spec).assignments)
        self.states = scheduler_world.World(self.hosts).states
        plan = self.plan(self.request(members=16))
        self.assertIsNone(plan.infeasible_reason)
        self.assertEqual(4, plan.assignments['host00000'])

    def test_hosts_are_weighed_without_the_filter(self):
        # Nova skips filters for forced hosts.
        spec = self.request()
        weighed = [world.weights_of(state) for state in self.states]
        raw = self.weigher.weigh_objects(weighed, spec)
        self.assertEqual(1.0, max(raw))

    def test_members_are_spread_if_the_filter_is_not_enabled(self):
        self.filter.filter_all = lambda states, spec: states
        placed = self.place(self.request(6, 'soft-anti-affinity'))
        count = collections.Counter(host for host, _ in placed)
        self.assertEqual([2, 2, 1, 1], sorted(count.values(), reverse=True))

    def test_rebuild_has_zero_weights(self):
        spec = self.request()
        spec.scheduler_hints = {'_nova_check_type': ['rebuild']}
        self.assertEqual({0.0}, set(self.weigh(spec).values()))

    def aggregate(self, state, multiplier):
        state.aggregates = [
            objects.Aggregate(
                id=9,
                hosts=[],
                metadata={host_weights.MULTIPLIER_KEY: multiplier},
            )
        ]

    def order(self, spec, beside=()):
        """Return the hosts in the order in which Nova tries them.

        :param beside: weighers used together with the VHPC one.
        """
        states = list(self.filter.filter_all(self.states, spec))
        weighed = nova_weights.HostWeightHandler().get_weighed_objects(
            [self.weigher, *beside], states, spec
        )
        return [item.obj.host for item in weighed]

    def test_multiplier_of_an_aggregate_replaces_the_option(self):
        self.flags(weight_multiplier=3.0)
        self.aggregate(self.states[1], '0.5')
        self.weigh(self.request())
        self.assertEqual(
            [3.0, 0.5, 3.0, 3.0],
            [self.weigher.weight_multiplier(state) for state in self.states],
        )

    def test_further_entries_of_a_host_come_last_at_any_multiplier(self):
        for option, of_aggregate in (
            (20.0, None),
            (0.1, None),
            (1000.0, None),
            (0.0, None),
            (20.0, '0'),
            (20.0, '-9'),
            (0.0, '5'),
        ):
            self.flags(weight_multiplier=option)
            self.states = scheduler_world.World(self.hosts).states
            if of_aggregate:
                self.aggregate(self.states[1], of_aggregate)
            hosts = self.order(self.request(members=2))
            self.assertEqual(16, len(hosts))
            self.assertEqual(4, len(set(hosts[:4])), (option, of_aggregate))

    def test_only_planned_hosts_are_among_the_best_that_nova_chooses_of(self):
        for size in (2, 3, 9):
            self.subset_size(size)
            self.states = scheduler_world.World(self.hosts).states
            spec = self.request(members=3)
            for member in range(3):
                best = set(self.order(spec)[:size])
                self.assertEqual(1, len(best), (size, member))
                (state,) = (s for s in self.states if s.host in best)
                state.consume_from_request(spec)
                spec.instance_group.hosts.append(state.host)

    def test_alternates_of_a_member_are_different_hosts(self):
        # Nova takes the entries that follow the best one.
        self.subset_size(3)
        found = self.order(self.request())
        others = [host for host in found if host != found[0]]
        self.assertEqual(3, len(set(others[:3])), found)

    def test_each_host_has_one_entry_more_for_each_further_choice(self):
        self.flags(claim_attempts=0)
        self.subset_size(3)
        found = self.order(self.request())
        self.assertEqual(4 * 3, len(found))

    def test_hosts_that_are_not_planned_have_one_entry(self):
        self.flags(claim_attempts=0)
        self.subset_size(3)
        self.flags(weight_multiplier=0.0)
        self.assertEqual(4, len(self.order(self.request())))

    def subset_size(self, size):
        """Have Nova take one of so many best entries by chance."""
        world.CONF.set_override('host_subset_size', size, 'filter_scheduler')
        self.addCleanup(
            world.CONF.clear_override, 'host_subset_size', 'filter_scheduler'
        )

    def test_no_plan_is_made_if_the_multiplier_is_zero(self):
        self.flags(weight_multiplier=0.0)
        weights = self.weigh(self.request(members=2))
        self.assertEqual({0.0}, set(weights.values()))
        plan_score = self.states[0]._vhpc.session.plan_score
        self.assertIsNone(plan_score.placement)

    def test_multiplier_of_zero_leaves_an_aggregate_out_of_the_plan(self):
        spec = self.request(members=2)
        best = self.order(spec)[0]
        self.states = scheduler_world.World(self.hosts).states
        (state,) = (s for s in self.states if s.host == best)
        self.aggregate(state, '0')
        weights = self.weigh(self.request(members=2))
        self.assertEqual(0.0, weights[best])
        plan = self.states[0]._vhpc.session.plan_score.placement
        self.assertEqual(2, sum(plan.assignments.values()))
        self.assertNotIn(best, plan.assignments)

    def test_negative_multiplier_of_an_aggregate_keeps_members_away(self):
        spec = self.request(members=2)
        best = self.order(spec)[0]
        self.states = scheduler_world.World(self.hosts).states
        (state,) = (s for s in self.states if s.host == best)
        self.aggregate(state, '-9')
        self.assertEqual(best, self.order(self.request(members=2))[3])
        plan = self.states[0]._vhpc.session.plan_score.placement
        self.assertNotIn(best, plan.assignments)

    def test_negative_multiplier_keeps_members_away_without_a_plan_too(self):
        """Even if these hosts have the greatest weights of Nova's weighers."""
        ram = nova_ram.RAMWeigher()
        for option in (0.0, 20.0):
            self.flags(weight_multiplier=option)
            self.states = scheduler_world.World(self.hosts).states
            for state, multiplier in zip(
                self.states, ('-9', '-5', '0', '0'), strict=True
            ):
                self.aggregate(state, multiplier)
                state.free_ram_mb -= int(state.host[4:]) * 1024
            hosts = self.order(self.request(members=2), [ram])
            self.assertEqual(
                ['host00002', 'host00003', 'host00001', 'host00000'],
                hosts[:4],
                option,
            )

    def test_multiplier_that_is_not_finite_is_ignored_and_logged(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        for text in ('nan', 'inf'):
            self.states = scheduler_world.World(self.hosts).states
            self.aggregate(self.states[1], text)
            self.weigh(self.request())
            self.assertEqual(
                20.0, self.weigher.weight_multiplier(self.states[1])
            )
        self.assertIn('of host host00001: not a finite number', log.output)

    def test_option_that_is_not_finite_or_negative_is_refused(self):
        for value in (-1.0, float('nan'), float('inf')):
            self.assertRaises(ValueError, self.flags, weight_multiplier=value)
        for name in ('weight_of_unknown', 'first_read_timeout'):
            self.assertRaises(ValueError, self.flags, **{name: float('nan')})


class FollowPlanTest(world.WorldTestCase):
    """Members are placed where the plan says."""

    hosts = 40  # three switches: 16, 16 and 8 hosts

    def switch_of(self, host):
        return int(host[4:]) // scheduler_world.HOSTS_PER_SWITCH

    def test_members_fill_the_plan(self):
        spec = self.request(members=12)
        placed = self.place(spec)
        planned = self.states[0]._vhpc.session.plan_score.placement
        counts = {}
        for host, _ in placed:
            counts[host] = counts.get(host, 0) + 1
        self.assertEqual(dict(planned.assignments), counts)
        self.assertEqual(1, self.states[0]._vhpc.session.plan_score._plans)

    def test_members_that_share_cpus_with_each_other_are_logged(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        self.states = self.states[:2]
        for cpus, text in ((6, ''), (4, 'up to 1.50 of its vCPUs per CPU')):
            for state in self.states:
                state.vcpus_total = cpus
                state.vcpus_used = 0
                state.cpu_allocation_ratio = 16.0
            self.assertNotIn(None, self.place(self.request(members=6)))
            self.assertIn(text, log.output)
            self.assertEqual(bool(text), 'share CPUs' in log.output)
            self.states = scheduler_world.World(2).states

    def test_members_stay_within_the_tier_of_the_flavor(self):
        for limit, members in (('host', 4), ('switch', 16), ('rack', 40)):
            self.states = scheduler_world.World(40).states
            placed = self.place(
                self.request(members=members, vhpc_max_tier=limit)
            )
            self.assertNotIn(None, placed)
            hosts = {host for host, _ in placed}
            if limit == 'host':
                self.assertEqual(1, len(hosts))
            if limit == 'switch':
                self.assertEqual(1, len(set(map(self.switch_of, hosts))))

    def test_cluster_is_refused_if_no_switch_holds_it(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        spec = self.request(members=65, vhpc_max_tier='switch')
        self.assertEqual([None] * 65, self.place(spec))
        self.assertIn('None of 40 host(s) can take a member', log.output)
        self.assertIn(
            '65 members do not fit: vhpc:max_tier=switch wants one switch; '
            'the best, switch switch0, has 64 (CPUs give ',
            log.output,
        )

    def test_member_is_refused_that_loses_its_switch(self):
        """All claims in the planned switch fail after the first member."""
        spec = self.request(members=8, vhpc_max_tier='switch')
        host_of = {
            uplink: state.host
            for state in self.states
            for uplink in scheduler_world.uplink_uuids(state.host)
        }
        first = []

        def claim(candidate):
            (uplink,) = candidate['mappings']['_uplink']
            if not first:
                first.append(host_of[uplink])
                return True
            return self.switch_of(host_of[uplink]) != self.switch_of(first[0])

        placed = self.place(spec, claim)
        self.assertEqual([None] * 7, placed[1:])

    def test_later_member_stays_within_the_tier_without_any_plan(self):
        self.flags(weight_multiplier=0.0)
        spec = self.request(members=1, vhpc_max_tier='switch')
        spec.instance_group.hosts = [self.states[20].host]
        spec.instance_group.members = ['runs', spec.instance_uuid]
        self.states[20].instances['runs'] = None
        self.assertEqual(
            {self.switch_of(self.states[20].host)},
            set(map(self.switch_of, self.passing(spec))),
        )

    def test_switch_of_two_racks_does_not_widen_the_tier(self):
        """A rack's member, and then one under a switch of another rack.

        Other weighers choose the hosts.
        """
        self.flags(weight_multiplier=0.0)
        places = [('s1', 'r1'), ('s1', 'r2'), ('s2', 'r1')]
        self.states = self.states[:3]
        for state, (switch, rack) in zip(self.states, places, strict=True):
            metadata = {'vhpc:switch': switch, 'vhpc:rack': rack}
            state.aggregates = [
                objects.Aggregate(metadata=metadata, hosts=[state.host])
            ]
        spec = self.request(members=3, vhpc_max_tier='rack')
        names = [state.host for state in self.states]
        self.assertEqual(names, self.passing(spec))
        for number, allowed in ((0, names), (2, [names[0], names[2]])):
            self.states[number].consume_from_request(spec)
            self.assertEqual(allowed, self.passing(spec))

    def test_alternates_are_within_the_tier(self):
        spec = self.request(members=2, vhpc_max_tier='switch')
        ((host, _), _) = self.place(spec)
        self.assertEqual(
            {self.switch_of(host)},
            set(map(self.switch_of, self.passing(spec))),
        )

    def test_no_more_cpus_are_planned_than_placement_gives_out(self):
        # The 2 vCPUs of one member on each, but on the last host.
        for number, state in enumerate(self.states[:-1]):
            root = self.body['provider_summaries'][
                scheduler_world.root_uuid(state.host)
            ]
            root['resources']['VCPU']['capacity'] = 8 + number % 8 + 2
        spec = self.request(members=4, policy='affinity')
        self.passing(spec)
        self.weigher.weigh_objects(
            [world.weights_of(state) for state in self.states], spec
        )
        placement = self.states[0]._vhpc.session.plan_score.placement
        self.assertEqual({self.states[-1].host: 4}, placement.assignments)

    def test_plan_is_made_anew_if_a_planned_host_is_lost(self):
        spec = self.request(members=8)
        lost = []

        def claim(candidate):
            (uplink,) = candidate['mappings']['_uplink']
            host = self.by_uplink[uplink]
            if not lost:
                lost.append(host)
            return host not in lost

        self.by_uplink = {
            uplink: state.host
            for state in self.states
            for uplink in scheduler_world.uplink_uuids(state.host)
        }
        placed = self.place(spec, claim)
        self.assertNotIn(None, placed)
        self.assertNotIn(lost[0], [host for host, _ in placed])
        # Four members are on the other host of the first plan, one is
        # elsewhere; then the other three are planned anew.
        plan_score = self.states[0]._vhpc.session.plan_score
        self.assertEqual(2, plan_score._plans)
        self.assertEqual(3, sum(plan_score.placement.assignments.values()))
        self.assertEqual(7, sum(plan_score._existing.values()))

    def test_plan_counts_members_on_a_host_that_another_filter_drops(self):
        # As anti-affinity with max_server_per_host does. The VHPC filter does
        # not see the host again, but must count the member placed there.
        del self.states[3:]
        spec = self.request(members=6, policy='anti-affinity')
        spec.instance_group._rules = {'max_server_per_host': '2'}
        most = scheduler_world.GUESTS_PER_HOST + 2
        placed = self.place(spec, before=lambda s: s.num_instances < most)
        self.assertNotIn(None, placed)
        hosts = [host for host, _ in placed]
        self.assertEqual({2}, {hosts.count(host) for host in hosts})
        self.assertEqual(1, self.states[0]._vhpc.session.plan_score._plans)

    def test_later_member_goes_under_the_switch_of_the_running_one(self):
        spec = self.request(members=1)
        # One member runs on a host that takes no more of them.
        spec.instance_group.hosts = ['host00020']
        spec.instance_group.members.insert(0, 'running')
        self.states[20].instances['running'] = None
        self.states[20].vcpus_used = 200
        placed = self.place(spec, uuids=[spec.instance_uuid])
        self.assertEqual(1, self.switch_of(placed[0][0]))

    def test_hosts_are_weighed_if_no_plan_is_feasible(self):
        spec = self.request(members=100000)
        weighed = [
            world.weights_of(state)
            for state in self.filter.filter_all(self.states, spec)
        ]
        raw = self.weigher.weigh_objects(weighed, spec)
        plan_score = self.states[0]._vhpc.session.plan_score
        self.assertIsNotNone(plan_score.placement.infeasible_reason)
        self.assertEqual(len(weighed), len(raw))

    def test_members_are_placed_if_the_planner_fails(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.planner.plan', lambda _: 1 // 0
            )
        )
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        placed = self.place(self.request(members=4))
        self.assertNotIn(None, placed)
        self.assertEqual(1, log.output.count('ZeroDivisionError: '))


def scaled(rows, factor):
    return {
        row: tuple(factor * value for value in columns)
        for row, columns in rows.items()
    }
