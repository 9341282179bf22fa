# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Members that are created one at a time are placed like all at once."""

import collections
import random

import fixtures
from nova import objects
from oslo_utils.fixture import uuidsentinel

from nova_vhpc.scheduler.hosts.fabric import Fabric
from nova_vhpc.scheduler.planner.objective import Objective
from nova_vhpc.scheduler.session import assembly
from nova_vhpc.tests.unit.scheduler import world
from nova_vhpc_lab.bench.scheduler import world as scheduler_world


class OneAtATimeTest(world.WorldTestCase):
    """A cloud of racks with two switches of four hosts each."""

    hosts = 16

    def build(self, seed):
        """Fill the hosts and take uplinks at random."""
        choose = random.Random(seed)
        self.states = scheduler_world.World(self.hosts).states
        self.free = {}
        for number, state in enumerate(self.states):
            state.vcpus_total = choose.choice([8, 16])
            state.vcpus_used = choose.choice([0, 0, 2, 6])
            state.aggregates = [
                objects.Aggregate(
                    id=number,
                    hosts=[state.host],
                    metadata={
                        'vhpc:switch': f's{number // 4}',
                        'vhpc:rack': f'r{number // 8}',
                    },
                )
            ]
            uplinks = scheduler_world.uplink_uuids(state.nodename)
            self.free[state.host] = set(
                choose.sample(uplinks, choose.choice([0, 1, 2, 3, 4]))
            )
        self.offer()

    def offer(self):
        """Offer each host's free uplinks, as Placement does."""
        for state in self.states:
            state.allocation_candidates = [
                {
                    'allocations': {
                        state.uuid: {
                            'resources': {'VCPU': 2, 'MEMORY_MB': 1024}
                        },
                        uplink: {'resources': {'CUSTOM_VHPC_UPLINK': 1}},
                    },
                    'mappings': {'': [state.uuid], '_uplink': [uplink]},
                }
                for uplink in sorted(self.free[state.host])
            ]

    def at_once(self, seed, members, policy):
        """Return the number of members by host after one multi-create."""
        self.build(seed)
        placed = self.place(self.request(members, policy))
        return collections.Counter(host for host, _ in placed)

    def one_by_one(
        self, seed, members, policy, hint=None, between=None, **specs
    ):
        """Return the hosts of members that are requested one at a time.

        :param between: called after each member, with its number.
        """
        self.build(seed)
        hosts = []
        group = self.request(1, policy).instance_group
        group.members = []
        for number in range(members):
            self.offer()
            spec = self.request(1, policy, **specs)
            spec.instance_group = group
            group.members.append(spec.instance_uuid)
            if hint is not None:
                spec.scheduler_hints = {'vhpc_members': [hint]}
            ((host, uplink),) = self.place(spec, uuids=[spec.instance_uuid])
            self.free[host].remove(uplink)
            hosts.append(host)
            if between is not None:
                between(number)
        return hosts

    def value(self, seed, counts, policy):
        """Return the planner's value of a cluster on its cloud."""
        self.build(seed)
        spec = self.request(sum(counts.values()), policy)
        list(self.filter.filter_all(self.states, spec))
        session = self.states[0]._vhpc.session
        infos = [session.host_info(state) for state in self.states]
        fabric = Fabric('vhpc:switch', 'vhpc:rack')
        facts = []
        for info in infos:
            info.name = info.state.host
            facts.append(session.host_fit.facts(info, fabric))
        objective = Objective(
            assembly.plan_request(
                assembly.Cluster(
                    session.requirements,
                    spec.memory_mb,
                    spec.num_instances,
                    policy=policy,
                ),
                facts,
            )
        )
        position = {fact.name: at for at, fact in enumerate(facts)}
        return objective.value(
            {position[host]: count for host, count in counts.items()}
        )

    def compare(self, policy, hinted):
        """Return values of placements at once and one by one, by seed.

        Clouds on which the members do not fit are left out.
        """
        values = {}
        for seed in range(12):
            members = random.Random(seed).randint(2, 12)
            at_once = self.at_once(seed, members, policy)
            plan_score = self.states[0]._vhpc.session.plan_score
            if plan_score.placement.infeasible_reason is not None:
                continue
            hosts = self.one_by_one(
                seed, members, policy, str(members) if hinted else None
            )
            values[seed] = (
                self.value(seed, at_once, policy),
                self.value(seed, collections.Counter(hosts), policy),
            )
        self.assertGreaterEqual(len(values), 6)
        return values

    def test_members_with_hint_cost_no_more_than_all_at_once(self):
        for policy in (
            'soft-affinity',
            'soft-anti-affinity',
            'anti-affinity',
        ):
            for seed, (at_once, later) in self.compare(policy, True).items():
                detail = f'{policy}, seed {seed}'
                self.assertLessEqual(later[0], at_once[0], detail)
                if later[0] == at_once[0]:
                    self.assertLessEqual(
                        later[1], at_once[1] * (1 + 1e-9), detail
                    )

    def test_members_without_hint_cost_more_on_some_clouds(self):
        # Else the test above would show nothing.
        values = self.compare('soft-affinity', False).values()
        self.assertTrue(any(later > at_once for at_once, later in values))

    def test_flavor_says_the_size_too(self):
        for seed in range(3):
            self.assertEqual(
                self.one_by_one(seed, 4, 'soft-affinity', hint='6'),
                self.one_by_one(seed, 4, 'soft-affinity', vhpc_members='6'),
            )

    def test_hint_comes_before_the_flavor(self):
        self.build(0)
        spec = self.request(1, vhpc_members='3')
        spec.scheduler_hints = {'vhpc_members': ['9']}
        self.place(spec)
        self.assertEqual(9, self.planned())

    def planned(self):
        """Return for how many members the last request was planned."""
        placement = self.states[0]._vhpc.session.plan_score.placement
        return sum(placement.assignments.values())

    def test_members_that_run_are_not_planned_again(self):
        seen = []
        self.one_by_one(
            0,
            4,
            'soft-affinity',
            hint='4',
            between=lambda _: seen.append(self.planned()),
        )
        self.assertEqual([4, 3, 2, 1], seen)

    def test_member_beyond_the_size_is_placed_alone(self):
        seen = []
        self.one_by_one(
            0,
            3,
            'soft-affinity',
            hint='2',
            between=lambda _: seen.append(self.planned()),
        )
        self.assertEqual([2, 1, 1], seen)

    def test_next_best_place_is_planned_if_another_server_took_one(self):
        first = []

        def take(number):
            plan = self.states[0]._vhpc.session.plan_score.placement
            if number == 0:
                first.extend(plan.assignments)
                for host in first:
                    self.free[host].clear()

        hosts = self.one_by_one(3, 8, 'soft-affinity', hint='8', between=take)
        self.assertIn(hosts[0], first)
        self.assertFalse(set(hosts[1:]) & set(first))
        # The other seven are planned together.
        free = sorted(
            (len(uplinks) for uplinks in self.uplinks(3, first).values()),
            reverse=True,
        )
        fewest = next(n for n in range(len(free)) if sum(free[:n]) >= 7)
        self.assertEqual(fewest, len(set(hosts[1:])))

    def uplinks(self, seed, without):
        """Return the free uplinks by host before any member came."""
        self.build(seed)
        return {h: u for h, u in self.free.items() if h not in without}

    def test_cluster_that_does_not_fit_is_planned_as_far_as_it_goes(self):
        self.build(0)
        room = sum(map(len, self.free.values()))
        spec = self.request(1)
        spec.scheduler_hints = {'vhpc_members': [str(room + 1)]}
        self.assertNotIn(None, self.place(spec))
        self.assertEqual(1 + room // 2, self.planned())

    def test_wrong_hint_is_logged_and_ignored(self):
        for hint in (['0'], ['-1'], ['eight'], ['8', '9'], [], ['9' * 999]):
            log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
            self.build(0)
            spec = self.request(1, vhpc_members='3')
            spec.scheduler_hints = {'vhpc_members': hint}
            self.place(spec)
            self.assertEqual(3, self.planned())
            self.assertIn('Ignoring scheduler hint vhpc_members', log.output)
            self.assertIn('an integer >= 1 and <= 4096', log.output)
            self.assertNotIn('9' * 99, log.output)

    def test_hint_without_server_group_is_logged_and_ignored(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        self.build(0)
        spec = self.request(1)
        spec.scheduler_hints = {'vhpc_members': ['8']}
        uuids = spec.instance_group.members
        spec.instance_group = None
        self.passing(spec)
        self.weigher.weigh_objects(
            [world.weights_of(state) for state in self.states], spec
        )
        self.assertEqual(1, self.planned(), uuids)
        self.assertIn('in no server group', log.output)

    def test_move_expects_no_further_members(self):
        self.build(0)
        spec = self.request(1)
        spec.scheduler_hints = {'vhpc_members': ['8']}
        spec.requested_destination = objects.Destination(
            cell=objects.CellMapping(uuid=uuidsentinel.cell)
        )
        self.place(spec)
        self.assertEqual(1, self.planned())
