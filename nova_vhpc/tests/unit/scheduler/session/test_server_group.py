# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Members are counted wherever they run, also outside of offered hosts."""

import fixtures
from nova import objects
from oslo_utils.fixture import uuidsentinel

from nova_vhpc.scheduler.sources import nova_db
from nova_vhpc.tests.unit.scheduler import world


class MembersTest(world.WorldTestCase):
    """Hosts 0 to 3 are offered; ``peer``, near host 1, is full."""

    def setUp(self):
        super().setUp()
        place = {'vhpc:switch': 's1', 'vhpc:rack': 'r1'}
        near = self.states[1]
        for state in self.states:
            state.aggregates = []
        near.aggregates = [
            objects.Aggregate(
                id=1, name='a', hosts=['peer', near.host], metadata=place
            )
        ]
        # One uplink is free there, so it can take one member.
        near.allocation_candidates = near.allocation_candidates[:1]

    def ask(self, spec, gone=(), **hosts):
        """Return the first member's host, members planned, peers by host.

        :param gone: members that the databases report as being on no host.
        :param hosts: members by name of their host; with none, and none gone,
            the databases do not answer.
        """
        if hosts or gone:
            self.instance_locations = nova_db.InstanceLocations(
                {
                    uuid: host
                    for host, uuids in hosts.items()
                    for uuid in uuids
                },
                frozenset(gone),
            )
        states = list(self.filter.filter_all(self.states, spec))
        weighed = [world.weights_of(state) for state in states]
        raw = self.weigher.weigh_objects(weighed, spec)
        best = states[raw.index(max(raw))].host
        plan_score = states[0]._vhpc.session.plan_score
        return (
            best,
            sum(plan_score.placement.assignments.values()),
            plan_score._existing,
        )

    def group(self, members=4, hosts=('peer',), num_instances=None):
        """Return a request for the first member of a group, and all UUIDs."""
        spec = self.request(members=members)
        spec.num_instances = num_instances or members
        spec.instance_group.hosts = list(hosts)
        return spec, list(spec.instance_group.members)

    def moved(self, *args, **kwargs):
        """Return a request that moves the first member."""
        spec, uuids = self.group(*args, **kwargs)
        # Nova sets a cell for each kind of move.
        spec.requested_destination = objects.Destination(
            cell=objects.CellMapping(uuid=uuidsentinel.cell)
        )
        return spec, uuids

    def test_moved_member_goes_near_its_peers(self):
        for num_instances in (1, 2, 4):
            spec, uuids = self.moved(num_instances=num_instances)
            self.assertEqual(
                ('host00001', 1, {'peer': 3}), self.ask(spec, peer=uuids)
            )

    def test_member_resized_on_its_host_frees_its_own_cpus(self):
        spec, uuids = self.moved()
        spec.flavor.extra_specs['vhpc:max_overcommit'] = '1.0'
        for state in self.states:
            state.vcpus_used = state.vcpus_total - 1
        own = self.states[2]
        self.move_source = nova_db.MoveSource(own.host, own.nodename, 4)
        self.assertEqual([own.host], self.passing(spec))
        # The plan counts the host without the CPUs of the moving member.
        self.ask(spec, peer=uuids)
        (fact,) = own._vhpc.session.plan_score._facts([own._vhpc])
        self.assertEqual(own.vcpus_total - 5, fact.used_vcpus)

    def test_member_resized_on_another_node_frees_no_cpus(self):
        spec, _ = self.moved()
        spec.flavor.extra_specs['vhpc:max_overcommit'] = '1.0'
        for state in self.states:
            state.vcpus_used = state.vcpus_total - 1
        for host, node in (('host00002', 'other'), ('other', 'host00002')):
            self.move_source = nova_db.MoveSource(host, node, 4)
            self.assertEqual([], self.passing(spec))

    def test_member_excluded_from_a_host_frees_no_cpus(self):
        # The source is not looked up because the request excludes a host.
        spec, _ = self.moved()
        spec.ignore_hosts = ['host00009']
        spec.flavor.extra_specs['vhpc:max_overcommit'] = '1.0'
        own = self.states[2]
        own.vcpus_used = own.vcpus_total - 1
        self.move_source = nova_db.MoveSource(own.host, own.nodename, 4)
        self.assertNotIn(own.host, self.passing(spec))

    def test_moved_member_of_a_grown_group_counts_all_peers(self):
        spec, uuids = self.moved(members=8, num_instances=4)
        self.assertEqual(
            ('host00001', 1, {'peer': 7}), self.ask(spec, peer=uuids)
        )

    def test_unshelved_member_does_not_count_a_shelved_peer(self):
        spec, uuids = self.moved()
        self.assertEqual(
            ('host00001', 1, {'peer': 2}), self.ask(spec, peer=uuids[2:])
        )

    def test_moved_member_of_a_deleted_group_is_planned_alone(self):
        # Its request still has the num_instances of the first boot.
        spec, _ = self.moved()
        spec.instance_group = None
        self.assertEqual((1, {}), self.ask(spec)[1:])

    def test_first_member_unshelved_is_planned_with_the_other_shelved(self):
        spec, uuids = self.moved(hosts=[], num_instances=1)
        self.assertEqual((3, {}), self.ask(spec, uuids[3:])[1:])

    def evacuated(self, **kwargs):
        """Return a request that evacuates the first member from ``dead``."""
        spec, uuids = self.moved(**kwargs)
        spec.ignore_hosts = ['dead']
        self.down = {'dead'}
        return spec, uuids

    def test_evacuated_members_are_planned_together(self):
        # Near ``peer`` is capacity for one member, not for all three.
        spec, uuids = self.evacuated(hosts=['dead', 'peer'])
        host, planned, running = self.ask(spec, dead=uuids[:3], peer=uuids[3:])
        self.assertEqual((3, {'peer': 1}), (planned, running))
        self.assertNotEqual('host00001', host)

    def test_evacuated_cluster_of_one_host_is_planned_as_a_whole(self):
        spec, uuids = self.evacuated(hosts=['dead'])
        self.assertEqual((4, {}), self.ask(spec, dead=uuids)[1:])

    def test_evacuated_member_is_planned_without_a_peer_that_is_gone(self):
        spec, uuids = self.evacuated(hosts=['dead', 'peer'])
        self.assertEqual(
            (2, {'peer': 1}),
            self.ask(spec, uuids[2:3], dead=uuids[:2], peer=uuids[3:])[1:],
        )

    def test_evacuated_member_joins_peers_at_their_destination(self):
        # In the database they are on the dead host until they run again.
        spec, uuids = self.evacuated(hosts=['dead'])
        self.move_destinations = {
            uuids[1]: 'host00003',
            uuids[2]: 'host00003',
        }
        host, planned, running = self.ask(spec, dead=uuids)
        self.assertEqual((2, {'host00003': 2}), (planned, running))
        self.assertEqual('host00003', host)

    def test_evacuated_member_is_planned_alone_without_capacity_for_all(self):
        # Three may be evacuated, but now only this one is planned.
        for state in self.states[2:]:
            state.allocation_candidates = []
        self.states[0].allocation_candidates = []
        spec, uuids = self.evacuated(hosts=['dead', 'peer'])
        self.assertEqual(
            ('host00001', 1, {'peer': 1}),
            self.ask(spec, dead=uuids[:3], peer=uuids[3:]),
        )

    def test_member_moved_from_a_running_host_is_planned_alone(self):
        spec, uuids = self.evacuated(hosts=['peer'])
        spec.ignore_hosts = ['peer']
        self.assertEqual(
            ('host00001', 1, {'peer': 3}), self.ask(spec, peer=uuids)
        )

    def test_member_moved_without_excluded_hosts_is_planned_alone(self):
        spec, uuids = self.moved(hosts=['dead'])
        self.down = {'dead'}
        self.assertEqual((1, {'dead': 3}), self.ask(spec, dead=uuids)[1:])

    def test_moved_member_counts_peers_that_stay_on_a_dead_host(self):
        # This member is not evacuated: its own host is up.
        spec, uuids = self.evacuated(hosts=['dead', 'peer'])
        spec.ignore_hosts = ['peer']
        self.assertEqual(
            (1, {'dead': 3}),
            self.ask(spec, peer=uuids[:1], dead=uuids[1:])[1:],
        )

    def test_unshelved_member_counts_peers_that_the_group_lacks(self):
        spec, uuids = self.moved(hosts=[])
        self.assertEqual(
            ('host00001', 1, {'peer': 2}),
            self.ask(spec, uuids[3:], peer=uuids[1:3]),
        )

    def test_stale_host_state_of_a_moved_member_does_not_count(self):
        spec, uuids = self.moved(hosts=['host00002', 'host00003'])
        self.states[2].instances = dict.fromkeys(uuids[1:3])
        self.states[3].instances = dict.fromkeys(uuids[2:])
        _, _, running = self.ask(
            spec, host00002=uuids[1:2], host00003=uuids[2:]
        )
        self.assertEqual({'host00002': 1, 'host00003': 2}, running)

    def test_stale_host_state_of_a_failed_member_does_not_count(self):
        spec, uuids = self.group(hosts=['host00002'])
        self.states[2].instances = dict.fromkeys(uuids[2:])
        _, _, running = self.ask(spec, uuids[3:], host00002=uuids[2:3])
        self.assertEqual({'host00002': 1}, running)

    def test_multi_create_plans_new_members_beside_running_ones(self):
        spec, uuids = self.group(members=6, num_instances=4)
        _, planned, running = self.ask(spec, peer=uuids[4:])
        self.assertEqual((4, {'peer': 2}), (planned, running))

    def test_boot_with_requested_destination_is_no_move(self):
        # Nova's request filters and --host set a destination without a cell.
        for destination in (
            objects.Destination(),
            objects.Destination(cell=None),
        ):
            spec, uuids = self.group(members=6, num_instances=4)
            spec.requested_destination = destination
            _, planned, running = self.ask(spec, peer=uuids[4:])
            self.assertEqual((4, {'peer': 2}), (planned, running))

    def test_peers_on_offered_hosts_count_by_their_host_state(self):
        spec, uuids = self.moved(hosts=['peer', 'host00002'])
        self.states[2].instances[uuids[1]] = None
        _, planned, running = self.ask(
            spec, peer=uuids[2:], host00002=[uuids[1]]
        )
        self.assertEqual((1, {'peer': 2, 'host00002': 1}), (planned, running))

    def test_moved_member_counts_starting_peers_on_offered_hosts(self):
        # nova-compute reports them only after they have started.
        spec, uuids = self.moved(hosts=['peer', 'host00002'])
        _, planned, running = self.ask(
            spec, peer=uuids[3:], host00002=uuids[1:3]
        )
        self.assertEqual((1, {'peer': 1, 'host00002': 2}), (planned, running))

    def test_booted_member_goes_to_the_host_of_its_starting_peer(self):
        spec, uuids = self.group(members=2, hosts=['host00002'])
        spec.num_instances = 1
        best, planned, running = self.ask(spec, host00002=uuids[1:])
        self.assertEqual(
            ('host00002', 1, {'host00002': 1}), (best, planned, running)
        )

    def test_member_does_not_count_itself_on_its_old_host(self):
        spec, uuids = self.group(hosts=['peer', 'source'])
        _, _, running = self.ask(spec, source=uuids[:1], peer=uuids[1:])
        self.assertEqual({'peer': 3}, running)

    def test_starting_peer_counts_beside_a_running_one(self):
        spec, uuids = self.group(hosts=('peer', 'host00002'))
        self.states[2].instances = {uuids[1]: None}
        _, _, running = self.ask(spec, peer=uuids[3:], host00002=uuids[1:3])
        self.assertEqual({'peer': 1, 'host00002': 2}, running)

    def test_single_boot_counts_running_and_starting_peers(self):
        spec, uuids = self.group(members=3, hosts=('host00002',))
        spec.num_instances = 1
        self.states[2].instances = {uuids[1]: None}
        _, _, running = self.ask(spec, host00002=uuids[1:])
        self.assertEqual({'host00002': 2}, running)

    def test_single_boot_makes_no_query_if_all_peers_run(self):
        self.instance_locations = 'not queried'
        spec, uuids = self.group(members=3, hosts=('host00002',))
        spec.num_instances = 1
        self.states[2].instances = dict.fromkeys(uuids[1:])
        self.assertEqual((1, {'host00002': 2}), self.ask(spec)[1:])

    def test_deleted_members_are_not_looked_up_again(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.sources.nova_db.may_have_host',
                lambda uuids: False,
            )
        )
        self.instance_locations = 'not queried'
        spec, uuids = self.group(members=3, hosts=('host00002',))
        spec.num_instances = 1
        self.states[2].instances = {uuids[1]: None}
        self.assertEqual((1, {'host00002': 1}), self.ask(spec)[1:])

    def test_peers_are_estimated_if_databases_do_not_answer(self):
        spec, _ = self.moved()
        self.assertEqual(('host00001', 1, {'peer': 1}), self.ask(spec))

    def test_multi_create_estimates_peers_if_databases_do_not_answer(self):
        # Of 5, 6 or 100 members 1, 2 or 96 run already.
        for members in (5, 6, 100):
            spec, _ = self.group(members=members, num_instances=4)
            _, planned, running = self.ask(spec)
            self.assertEqual((4, {'peer': 1}), (planned, running))
            for state in self.states:
                del state._vhpc

    def test_member_goes_to_the_rack_of_a_peer_of_another_switch(self):
        for number, state in enumerate(self.states):
            state.aggregates = [
                objects.Aggregate(
                    id=number,
                    name=state.host,
                    hosts=[state.host],
                    metadata={
                        'vhpc:switch': f's{number}',
                        'vhpc:rack': f'r{number}',
                    },
                )
            ]
        spec, uuids = self.group()
        queries = []

        def racks(hosts, key):
            queries.append((hosts, key))
            return {'peer': 'r2'}

        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.sources.nova_db.racks', racks
            )
        )
        best, _, _ = self.ask(spec, peer=uuids)
        self.assertEqual('host00002', best)
        self.assertEqual([({'peer'}, 'vhpc:rack')], queries)

    def test_members_of_one_boot_are_counted_once(self):
        # They are on no host yet, and none of them is shelved.
        self.instance_locations = nova_db.InstanceLocations({}, frozenset())
        spec, _ = self.group()
        self.assertEqual((4, {}), self.ask(spec)[1:])

    def test_new_group_causes_no_query(self):
        self.instance_locations = 'not queried'
        spec, _ = self.group(hosts=[])
        self.assertEqual((4, {}), self.ask(spec)[1:])
