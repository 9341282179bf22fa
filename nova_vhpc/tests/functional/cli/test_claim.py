# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc claim heal`` on a real Nova and Placement."""

import contextlib
import io
import json
import uuid

from nova.cmd import manage

from nova_vhpc.tests import osc_shell
from nova_vhpc.tests.functional import sdk
from nova_vhpc.tests.functional.scheduler import base
from nova_vhpc.topology import model


class HealTest(base.SchedulerTestCase):
    """Two hosts, each with two uplinks for one guest."""

    def setUp(self):
        super().setUp()
        self.admin = sdk.connect(
            self.api_fixture, self.placement.fixture.endpoint
        )
        self.start_hosts('one', 'two')
        uplinks = [base.separate(f'br{n}', f'eth{n}') for n in (1, 2)]
        for host in ('one', 'two'):
            self.publish(host, *uplinks)
        self.flavor_id = self.flavor(base.SEPARATE)
        self.server = self._create_server(
            flavor_id=self.flavor_id, networks='none', host='one'
        )

    def heal(self, *argv):
        """Return exit code, rows and what is on stderr."""
        status, out, err = osc_shell.run(
            self.admin, 'claim', 'heal', *argv, '-f', 'json'
        )
        return status, json.loads(out), err

    def allocations(self, consumer):
        return self.placement.get(
            f'/allocations/{consumer}', version='1.36'
        ).body

    def put(self, consumer, allocations, **known):
        """Replace the allocations of a consumer."""
        body = {
            'project_id': 'project',
            'user_id': 'user',
            'consumer_generation': None,
            **known,
            'allocations': allocations,
        }
        answer = self.placement.put(
            f'/allocations/{consumer}', body, version='1.36'
        )
        self.assertEqual(204, answer.status, answer.content)

    def without_mappings(self, consumer):
        return {
            provider: allocation['resources']
            for provider, allocation in self.allocations(consumer)[
                'allocations'
            ].items()
        }

    def test_lost_allocations_are_healed(self):
        server = self.server['id']
        before = self.without_mappings(server)
        self.assertEqual((0, [], ''), self.heal())
        self.placement.delete(f'/allocations/{server}')
        with contextlib.redirect_stdout(io.StringIO()):
            # Nova cannot: it puts the uplink on the compute node.
            self.assertEqual(3, manage.PlacementCommands().heal_allocations())
        status, (row,), err = self.heal()
        self.assertEqual((3, server, 'one'), (status, *list(row.values())[:2]))
        self.assertIn('no allocations', row['Problem'])
        self.assertIn('Nothing was written', err)
        self.assertEqual({}, self.without_mappings(server))
        status, (row,), _ = self.heal('--apply')
        self.assertEqual(0, status, row)
        self.assertIn('Done: Claim NIC eth', row['What To Do'])
        after = self.without_mappings(server)
        self.assertEqual(
            sorted(map(sorted, map(dict.items, before.values()))),
            sorted(map(sorted, map(dict.items, after.values()))),
        )
        self.assertEqual((0, [], ''), self.heal('--apply'))
        owner = self.allocations(server)
        self.assertEqual(self.server['tenant_id'], owner['project_id'])
        # The server can be moved and deleted as before.
        moved = self._live_migrate(self.api.get_server(server), 'completed')
        self.assertEqual('two', moved['OS-EXT-SRV-ATTR:host'])
        self._delete_server(moved)
        self.assertEqual({}, self.without_mappings(server))

    def test_lost_claim_is_added_to_what_is_left(self):
        server = self.server['id']
        whole = self.allocations(server)
        (lost,) = (
            provider
            for provider, allocation in whole['allocations'].items()
            if model.UPLINK in allocation['resources']
        )
        rest = {
            provider: {'resources': allocation['resources']}
            for provider, allocation in whole['allocations'].items()
            if provider != lost
        }
        self.put(
            server, rest, consumer_generation=whole['consumer_generation']
        )
        # Others take one of the uplinks meanwhile.
        other = self._create_server(
            flavor_id=self.flavor_id, networks='none', host='one'
        )
        self.assertEqual(3, self.heal()[0])
        status, (row,), _ = self.heal('--apply')
        self.assertEqual(0, status, row)
        self.assertEqual(1, len(self.claims(self.server)))
        self.assertNotEqual(self.claims(self.server), self.claims(other))
        for provider, allocation in rest.items():
            self.assertEqual(
                allocation['resources'],
                self.without_mappings(server)[provider],
            )

    def test_server_whose_uplinks_others_took_is_named_only(self):
        server = self.server['id']
        self.placement.delete(f'/allocations/{server}')
        for _ in range(2):
            self._create_server(
                flavor_id=self.flavor_id, networks='none', host='one'
            )
        status, (row,), _ = self.heal('--apply')
        self.assertEqual(3, status)
        self.assertIn('cold migration', row['What To Do'])
        self.assertEqual({}, self.without_mappings(server))

    def test_orphaned_claims_are_released_and_no_others(self):
        uplink = model.provider_uuid('two', 'br1', 'eth1')
        root = self._get_provider_uuid_by_host('two')
        claim = {'resources': {model.UPLINK: 1}}
        orphan = str(uuid.uuid4())
        self.put(
            orphan, {uplink: claim, root: {'resources': {'MEMORY_MB': 64}}}
        )
        held = self.without_mappings(self.server['id'])
        status, (row,), _ = self.heal()
        self.assertEqual((3, orphan), (status, row['Consumer']))
        self.assertIn('NIC eth1 on bridge br1', row['Problem'])
        self.assertIn('placement audit', row['What To Do'])
        self.computes['two'].stop()
        with self.subTest('nothing is taken on a host that is down'):
            service = self.computes['two'].service_ref
            self.api.put_service_force_down(service.uuid, True)
            status, (row,), _ = self.heal('--apply')
            self.assertIn('not up', row['Problem'])
            self.assertIn(uplink, self.without_mappings(orphan))
            self.api.put_service_force_down(service.uuid, False)
        self.computes['two'].start()
        status, (row,), _ = self.heal('--apply')
        self.assertEqual(0, status, row)
        # What is not ours is left to Nova's own audit.
        self.assertEqual(
            {root: {'MEMORY_MB': 64}}, self.without_mappings(orphan)
        )
        self.assertEqual(held, self.without_mappings(self.server['id']))

    def test_claims_of_a_migration_are_kept(self):
        server = self._migrate_server(self.server)
        self.assertEqual('two', server['OS-EXT-SRV-ATTR:host'])
        self.assertEqual((0, [], ''), self.heal('--apply'))
        with self.subTest('a server that is being changed is not judged'):
            whole = self.allocations(server['id'])
            self.placement.delete(f'/allocations/{server["id"]}')
            status, (row,), _ = self.heal('--apply')
            self.assertEqual(0, status)
            self.assertIn('its migration is finished', row['Problem'])
            self.put(
                server['id'],
                {
                    provider: {'resources': allocation['resources']}
                    for provider, allocation in whole['allocations'].items()
                },
            )
        server = self._confirm_resize(server)
        self.assertEqual((0, [], ''), self.heal('--apply'))
        self.assertEqual(1, len(self.claims(server)))

    def test_claim_on_a_host_that_the_server_has_left_is_released(self):
        server = self.server['id']
        whole = self.allocations(server)
        uplink = model.provider_uuid('two', 'br2', 'eth2')
        allocations = {
            provider: {'resources': allocation['resources']}
            for provider, allocation in whole['allocations'].items()
        }
        self.put(
            server,
            {**allocations, uplink: {'resources': {model.UPLINK: 1}}},
            consumer_generation=whole['consumer_generation'],
        )
        status, (row,), _ = self.heal('--apply')
        self.assertEqual((0, 'two'), (status, row['Host']))
        self.assertEqual(
            {key: value['resources'] for key, value in allocations.items()},
            self.without_mappings(server),
        )
