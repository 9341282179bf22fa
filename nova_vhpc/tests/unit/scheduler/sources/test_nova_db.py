# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import datetime
import threading
from unittest import mock

import fixtures
from nova import context as nova_context
from nova import exception, objects
from nova.network import model
from oslo_utils import timeutils
from oslotest import base

from nova_vhpc.scheduler.sources import nova_db

objects.register_all()

CELL = objects.CellMapping(uuid='11111111-1111-4111-8111-111111111111')
A, B, C, D = (f'{n}1111111-1111-4111-8111-111111111111' for n in 'abcd')


def mapping(uuid, cell=CELL):
    return objects.InstanceMapping(instance_uuid=uuid, cell_mapping=cell)


class LocateTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        nova_db._without_host.clear()
        self.addCleanup(nova_db._without_host.clear)
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.answers = {
            CELL.uuid: [
                objects.Instance(uuid=A, host='one', vm_state='active'),
                objects.Instance(uuid=B, host=None, vm_state='error'),
            ]
        }
        patches = contextlib.ExitStack()
        self.addCleanup(patches.close)
        self.mappings = patches.enter_context(
            mock.patch.object(
                objects.InstanceMappingList,
                'get_by_instance_uuids',
                return_value=[
                    mapping(A),
                    mapping(B),
                    mapping(C, cell=None),
                ],
            )
        )
        patches.enter_context(
            mock.patch.object(
                objects.InstanceList,
                'get_by_filters',
                side_effect=lambda context, filters, **_: [
                    server
                    for server in self.answers[context]
                    if server.uuid in filters['uuid']
                    and (
                        server.vm_state != 'soft-delete'
                        or filters.get('soft_deleted')
                    )
                ],
            )
        )
        patches.enter_context(
            mock.patch.object(nova_context, 'scatter_gather_cells', self.ask)
        )

    def ask(self, context, cells, timeout, function, *args):
        if isinstance(self.answers, dict):
            return {c.uuid: function(c.uuid, *args) for c in cells}
        return {c.uuid: self.answers for c in cells}

    def test_locate_tells_running_failed_and_booting_members_apart(self):
        found = nova_db.locate({A, B, C})
        self.assertEqual({A: 'one'}, found.hosts)
        # C boots: its mapping has no cell yet.
        self.assertEqual({B}, found.gone)

    def test_members_without_a_host_are_looked_up_once(self):
        self.assertFalse(nova_db.may_have_host([]))
        self.assertTrue(nova_db.may_have_host({B}))
        nova_db.locate({A, B, C, D})
        # B has failed, D is deleted.
        self.assertFalse(nova_db.may_have_host({B, D}))
        self.assertTrue(nova_db.may_have_host({A, B}))
        self.assertTrue(nova_db.may_have_host({B, C}))

    def test_starting_member_is_looked_up_again(self):
        # A shelved server keeps its state until nova-compute has started it.
        for state in ('building', 'shelved_offloaded'):
            for server in self.answers[CELL.uuid]:
                server.vm_state = state
            self.assertEqual({A: 'one'}, nova_db.locate({A, B}).hosts)
            self.assertTrue(nova_db.may_have_host({B}))

    def test_soft_deleted_member_is_looked_up_again(self):
        # It may be restored without a request to the scheduler.
        self.answers[CELL.uuid][0].vm_state = 'soft-delete'
        found = nova_db.locate({A, B})
        self.assertEqual(({}, {A, B}), found)
        self.assertTrue(nova_db.may_have_host({A}))
        self.answers[CELL.uuid][0].vm_state = 'active'
        self.assertEqual({A: 'one'}, nova_db.locate({A}).hosts)

    def test_deleted_member_with_a_cell_mapping_is_gone(self):
        self.mappings.return_value.append(mapping(D))
        self.assertEqual({B, D}, nova_db.locate({A, B, C, D}).gone)

    def test_later_lookup_keeps_remembered_members(self):
        nova_db.locate({B})
        nova_db.locate({D})
        self.assertFalse(nova_db.may_have_host({B, D}))

    def test_memory_is_cleared_at_its_limit(self):
        with mock.patch.object(nova_db, 'MAX_REMEMBERED', 2):
            nova_db.locate({B, D})
            self.assertFalse(nova_db.may_have_host({B, D}))
            nova_db.locate({A + A})
        self.assertEqual([A + A], list(nova_db._without_host))

    def test_locate_is_none_if_a_cell_does_not_answer(self):
        for answer in (
            nova_context.did_not_respond_sentinel,
            ConnectionError(),
        ):
            self.answers = answer
            self.assertIsNone(nova_db.locate({A}))
        self.assertIn('did not answer where', self.log.output)

    def test_racks_are_those_of_the_given_hosts(self):
        aggregates = [
            objects.Aggregate(hosts=['a', 'b', 'c'], metadata={'k': 'r1'}),
            objects.Aggregate(hosts=['d'], metadata={'k': 'r2'}),
            objects.Aggregate(hosts=['b'], metadata={'k': 'r3'}),
        ]
        with mock.patch.object(
            objects.AggregateList,
            'get_by_metadata_key',
            side_effect=[aggregates, ConnectionError('refused')],
        ) as get:
            self.assertEqual(
                {'b': 'r1', 'd': 'r2'}, nova_db.racks({'b', 'd'}, 'k')
            )
            self.assertEqual(
                (('k',), {'hosts': {'b', 'd'}}),
                (get.call_args.args[1:], get.call_args.kwargs),
            )
            self.assertEqual({}, nova_db.racks({'b'}, 'k'))
        self.assertIn('ConnectionError: refused', self.log.output)

    def test_locate_is_none_if_the_api_database_fails(self):
        self.mappings.side_effect = ConnectionError('refused')
        self.assertIsNone(nova_db.locate({A}))
        self.assertIn('ConnectionError: refused', self.log.output)


class MoveSourceTest(base.BaseTestCase):
    def move_source(self, host='one', vcpus=6, specs=None):
        flavor = objects.Flavor(vcpus=vcpus, extra_specs=specs or {})
        spec = objects.RequestSpec(
            instance_uuid=A,
            requested_destination=objects.Destination(cell=CELL),
        )
        with (
            mock.patch.object(nova_context, 'target_cell') as cell,
            mock.patch.object(
                objects.Instance,
                'get_by_uuid',
                return_value=objects.Instance(
                    uuid=A, host=host, node='node', flavor=flavor
                ),
            ) as get,
        ):
            found = nova_db.move_source(spec)
        self.assertEqual(CELL.uuid, cell.call_args.args[1].uuid)
        self.assertEqual(A, get.call_args.args[1])
        return found

    def test_source_counts_shared_and_dedicated_vcpus(self):
        self.assertEqual(('one', 'node', 6, 0), self.move_source())
        mixed = {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '0-1'}
        self.assertEqual(('one', 'node', 4, 2), self.move_source(specs=mixed))

    def test_server_without_a_host_has_no_source(self):
        self.assertIsNone(self.move_source(host=None))

    def test_source_is_none_if_the_database_fails(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        spec = objects.RequestSpec(
            instance_uuid=A,
            requested_destination=objects.Destination(cell=CELL),
        )
        with mock.patch.object(
            nova_context, 'target_cell', side_effect=ConnectionError('refused')
        ):
            self.assertIsNone(nova_db.move_source(spec))
        self.assertIn('ConnectionError: refused', log.output)

    def test_source_is_none_if_the_cell_hangs(self):
        """A resize does not wait: the plan can do without the answer."""
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        spec = objects.RequestSpec(
            instance_uuid=A,
            requested_destination=objects.Destination(cell=CELL),
        )
        answer = threading.Event()
        self.addCleanup(answer.set)
        with (
            mock.patch.object(nova_context, 'target_cell'),
            mock.patch.object(nova_db, 'TIMEOUT_S', 0.1),
            mock.patch.object(
                objects.Instance,
                'get_by_uuid',
                side_effect=lambda *_, **__: answer.wait(60),
            ),
        ):
            self.assertIsNone(nova_db.move_source(spec))
        self.assertFalse(answer.is_set())
        self.assertIn(f'Cell {CELL.uuid} did not answer', log.output)


class NetworkMetadataTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.spec = objects.RequestSpec(
            instance_uuid=A,
            requested_destination=objects.Destination(cell=CELL),
        )
        self.useFixture(fixtures.MockPatchObject(nova_context, 'target_cell'))
        self.nics = self.useFixture(
            fixtures.MockPatchObject(
                objects.InstanceInfoCache, 'get_by_instance_uuid'
            )
        ).mock

    def found(self, *networks):
        """Look up a server with NICs on networks."""
        self.nics.return_value = objects.InstanceInfoCache(
            network_info=model.NetworkInfo(
                [
                    model.VIF(network=model.Network(**network))
                    for network in networks
                ]
            )
        )
        return nova_db.network_metadata(self.spec)

    def test_physical_networks_of_all_nics_are_found(self):
        found = self.found(
            {'physical_network': 'hpc0', 'tunneled': False},
            {'physical_network': 'hpc1', 'tunneled': False},
        )
        self.assertEqual({'hpc0', 'hpc1'}, found.physnets)
        self.assertFalse(found.tunneled)
        self.assertEqual(A, self.nics.call_args.args[1])

    def test_tunneled_network_is_found(self):
        found = self.found(
            {'physical_network': None, 'tunneled': True},
            # Of a Nova before 18.0.
            {'bridge': 'br-int'},
        )
        self.assertEqual((set(), True), (found.physnets, found.tunneled))

    def test_server_without_nics_is_on_no_network(self):
        found = self.found()
        self.assertEqual((set(), False), (found.physnets, found.tunneled))

    def test_networks_are_none_if_the_database_fails(self):
        self.nics.side_effect = ConnectionError('refused')
        self.assertIsNone(nova_db.network_metadata(self.spec))
        self.assertIn('did not answer which networks', self.log.output)
        with mock.patch.object(
            nova_context, 'scatter_gather_cells', side_effect=KeyError
        ):
            self.assertIsNone(nova_db.network_metadata(self.spec))
        self.assertIn('Cannot look up which networks', self.log.output)


class MustLeaveTest(base.BaseTestCase):
    def must_leave(self, **service):
        now = timeutils.utcnow()
        found = objects.Service(
            host='one',
            **{
                'binary': 'nova-compute',
                'forced_down': False,
                'disabled': False,
                'last_seen_up': now,
                'updated_at': now,
                'created_at': now,
                **service,
            },
        )
        with (
            mock.patch.object(nova_context, 'target_cell') as cell,
            mock.patch.object(
                objects.Service, 'get_by_compute_host', return_value=found
            ) as get,
        ):
            answer = nova_db.must_leave(CELL, 'one')
        self.assertEqual(CELL.uuid, cell.call_args.args[1].uuid)
        self.assertEqual('one', get.call_args.args[1])
        return answer

    def test_servers_must_leave_a_host_that_is_forced_down_or_silent(self):
        self.assertIs(False, self.must_leave())
        self.assertIs(True, self.must_leave(forced_down=True))
        long_ago = timeutils.utcnow() - datetime.timedelta(hours=1)
        self.assertIs(True, self.must_leave(last_seen_up=long_ago))

    def test_servers_must_leave_a_disabled_host(self):
        self.assertIs(True, self.must_leave(disabled=True))

    def test_host_counts_as_up_if_the_database_fails(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        with mock.patch.object(
            nova_context, 'target_cell', side_effect=ConnectionError('refused')
        ):
            self.assertIs(False, nova_db.must_leave(CELL, 'one'))
        self.assertIn('ConnectionError: refused', log.output)

    def test_host_without_service_counts_as_up(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        with (
            mock.patch.object(nova_context, 'target_cell'),
            mock.patch.object(
                objects.Service,
                'get_by_compute_host',
                side_effect=exception.ComputeHostNotFound(host='one'),
            ),
        ):
            self.assertIs(False, nova_db.must_leave(CELL, 'one'))
        self.assertIn('did not answer whether host one is down or', log.output)


class MoveDestinationsTest(base.BaseTestCase):
    def destinations(self, **answer):
        with (
            mock.patch.object(nova_context, 'target_cell') as cell,
            mock.patch.object(
                objects.MigrationList, 'get_by_filters', **answer
            ) as get,
        ):
            found = nova_db.move_destinations(CELL, 'one')
        self.assertEqual(CELL.uuid, cell.call_args.args[1].uuid)
        self.assertEqual(
            {
                'source_compute': 'one',
                'status': [
                    'accepted',
                    'queued',
                    'preparing',
                    'running',
                    'running (post-copy)',
                    'pre-migrating',
                    'migrating',
                    'post-migrating',
                ],
            },
            get.call_args.args[1],
        )
        return found

    def test_servers_without_a_destination_are_left_out(self):
        found = [
            objects.Migration(instance_uuid=A, dest_compute='two'),
            objects.Migration(instance_uuid=B, dest_compute=None),
        ]
        self.assertEqual({A: 'two'}, self.destinations(return_value=found))

    def test_destinations_are_empty_if_the_cell_fails(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        error = exception.MigrationNotFound(migration_id=1)
        self.assertEqual({}, self.destinations(side_effect=error))
        self.assertIn(
            'did not answer where the servers of host one', log.output
        )
