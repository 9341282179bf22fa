# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The agent publishes while a real nova-compute writes to Placement, too."""

import time

from keystoneauth1 import adapter, session
from keystoneauth1.loading._plugins import admin_token
from nova.tests.functional import fixtures as nova_fixtures

from nova_vhpc.placement import client as placement_client
from nova_vhpc.placement import publisher, withdrawal
from nova_vhpc.tests.functional.clusters import cloud
from nova_vhpc.topology import model

UPLINK = model.Uplink('eth1', 'br-a', model.BridgeKind.SHARED, 10000, slots=4)
TOPOLOGY = model.HostTopology(
    'host1', (model.Bridge('br-a', UPLINK.kind, (UPLINK,)),)
)


class NovaComputeTest(cloud.CloudCase):
    def setUp(self) -> None:
        endpoints = []
        real = nova_fixtures.PlacementFixture.setUp

        def set_up(fixture: nova_fixtures.PlacementFixture) -> None:
            real(fixture)
            endpoints.append(fixture.endpoint)

        self.stub_out(
            'nova.tests.functional.fixtures.PlacementFixture.setUp', set_up
        )
        super().setUp()
        auth = admin_token.AdminToken().load_from_options(
            endpoint=endpoints[0], token='admin'
        )
        self.client = placement_client.PlacementClient(
            adapter.Adapter(
                session.Session(auth=auth), service_type='placement'
            )
        )
        self.publisher = publisher.Publisher(self.client, ['host1'])
        self.away = withdrawal.Withdrawal(self.client, ['host1'])
        self.root_uuid, _ = self.client.find_root(name='host1')

    def test_agent_and_nova_compute_keep_each_others_providers(self) -> None:
        before = self.client.inventories(self.root_uuid)[1]
        self.publisher.publish(TOPOLOGY, 7)
        for _ in range(2):
            # nova-compute and the agent write in turn.
            self.flags(cpu_allocation_ratio=3.0)
            self._run_periodics()
            self.assertEqual(0, self.publisher.publish(TOPOLOGY, 7).writes)
        self.assertEqual(
            before.keys(), self.client.inventories(self.root_uuid)[1].keys()
        )
        self.assertIn(model.TRAIT_HOST, self.client.traits(self.root_uuid)[1])
        self.away.move_out()
        self.assertEqual({}, self.client.children(self.root_uuid))
        self._run_periodics()

    def test_flavor_claims_an_uplink_until_the_server_is_deleted(self) -> None:
        self.publisher.publish(TOPOLOGY, 7)
        flavor = self._create_flavor(
            vcpu=1,
            memory_mb=64,
            disk=1,
            extra_spec={
                'resources_uplink:CUSTOM_VHPC_UPLINK': '1',
                'trait_uplink:CUSTOM_VHPC_BRIDGE_SHARED': 'required',
            },
        )
        server = self.boot(flavor, 'host1')
        provider = model.provider_uuid('host1', 'br-a', 'eth1')
        self.assertEqual({provider}, self.client.claimed_uplinks(server))
        # A claimed uplink that vanishes is reserved until its server goes.
        gone = model.HostTopology('host1')
        self.assertEqual(
            ('host1:vhpc:br-a:eth1',),
            self.publisher.publish(gone, 7).reserved,
        )
        self._delete_server({'id': server})
        self.assertEqual((), self.publisher.publish(gone, 7).reserved)

    def test_nova_compute_boots_servers_after_an_uplink_vanished(self) -> None:
        self.publisher.publish(TOPOLOGY, 7)
        self._have_nova_read_the_tree()
        self.publisher.publish(model.HostTopology('host1'), 8)
        self._boot_and_delete()
        provider = model.provider_uuid('host1', 'br-a', 'eth1')
        self.assertEqual({}, self.client.inventories(provider)[1])
        # The uplink returns and vanishes again; the withdrawal removes the
        # emptied provider, too.
        self.publisher.publish(TOPOLOGY, 9)
        self.assertEqual(
            4, self.client.inventories(provider)[1][model.UPLINK]['total']
        )
        self.publisher.publish(model.HostTopology('host1'), 10)
        self.away.move_out()
        self.assertEqual({}, self.client.children(self.root_uuid))

    def test_nova_compute_boots_servers_during_the_withdrawal(self) -> None:
        self.publisher.publish(TOPOLOGY, 7)
        self._have_nova_read_the_tree()
        self.away.move_out()
        self._boot_and_delete()
        # When nova-compute reads its providers again, it does not ask for
        # those that were withdrawn.
        self.flags(resource_provider_association_refresh=1, group='compute')
        time.sleep(1.1)
        self._run_periodics()
        self.flags(resource_provider_association_refresh=300, group='compute')
        self.away.delete()
        self._boot_and_delete()
        self.assertEqual(
            {}, self.client.tree_of_root(model.marker_uuid('host1'))
        )

    def test_restarted_nova_compute_boots_servers_after_withdrawal(
        self,
    ) -> None:
        self.publisher.publish(TOPOLOGY, 7)
        self._have_nova_read_the_tree()
        self.away.move_out()
        self.away.delete()
        # A process that has just started has no providers in its cache.
        self.computes['host1'].manager.reportclient.clear_provider_cache()
        self._boot_and_delete()

    def _have_nova_read_the_tree(self) -> None:
        """Make nova-compute read its providers from Placement.

        It does so every ``resource_provider_association_refresh`` seconds.
        """
        self.computes['host1'].manager.reportclient.clear_provider_cache()
        self._run_periodics()

    def _boot_and_delete(self) -> None:
        flavor = self._create_flavor(vcpu=1, memory_mb=64, disk=1)
        self._delete_server({'id': self.boot(flavor, 'host1')})
