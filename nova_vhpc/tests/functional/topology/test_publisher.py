# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Publishing to a real Placement, in process."""

import dataclasses
import uuid
from typing import Any

from keystoneauth1 import adapter, session
from keystoneauth1.loading._plugins import admin_token
from oslotest import base
from placement.tests.functional.fixtures import placement as fixture

from nova_vhpc.placement import client as placement_client
from nova_vhpc.placement import provider_tree, publisher, withdrawal
from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.topology import model

A = model.Uplink('eth1', 'br-a', model.BridgeKind.SHARED, 10000, slots=4)
B = model.Uplink(
    'eth2', 'br-b', model.BridgeKind.SEPARATE, 25000, physnets=('fab-1',)
)


def topology(*uplinks: model.Uplink) -> model.HostTopology:
    return model.HostTopology(
        'cn1', tuple(model.Bridge(u.bridge, u.kind, (u,)) for u in uplinks)
    )


class PlacementCase(base.BaseTestCase):
    """Has a real Placement with the provider of one compute node, ``cn1``."""

    def setUp(self) -> None:
        super().setUp()
        self.placement = self.useFixture(fixture.PlacementFixture())
        self.endpoint = self.placement.endpoint
        self.serve()
        self.client = placement_client.PlacementClient(self.adapter())
        self.root_uuid = str(uuid.uuid4())
        self.nova(
            'POST', '/resource_providers', name='cn1', uuid=self.root_uuid
        )
        self.nova(
            'PUT',
            f'/resource_providers/{self.root_uuid}/inventories',
            resource_provider_generation=0,
            inventories={'VCPU': {'total': 8}},
        )

    def serve(self) -> None:
        """Do nothing; subclasses serve Placement on a port."""

    def adapter(self) -> adapter.Adapter:
        loader = admin_token.AdminToken()
        return adapter.Adapter(
            session.Session(
                auth=loader.load_from_options(
                    endpoint=self.endpoint, token='admin'
                )
            ),
            service_type='placement',
        )

    def nova(self, method: str, url: str, **body: Any) -> dict[str, Any]:
        """Send a request to Placement as Nova does; return the answer."""
        response = self.adapter().request(
            url, method, json=body or None, microversion='1.36'
        )
        return response.json() if response.text else {}

    def claim(self, provider: str, consumer: str | None = None) -> str:
        """Claim a slot of an uplink; return the consumer.

        :param consumer: UUID of a server, whose former claim ends; None for a
            new one.
        """
        consumer = consumer or str(uuid.uuid4())
        self.nova(
            'PUT',
            f'/allocations/{consumer}',
            allocations={provider: {'resources': {model.UPLINK: 1}}},
            project_id='p',
            user_id='u',
            consumer_generation=self.generation(consumer),
        )
        return consumer

    def generation(self, consumer: str) -> int | None:
        """Return the generation of a server's claim; None for none."""
        answer = self.nova('GET', f'/allocations/{consumer}')
        generation: int | None = answer.get('consumer_generation')
        return generation

    def inventory(self, uplink: model.Uplink, name: str) -> dict[str, Any]:
        return self.client.inventories(self.uuid(uplink))[1][name]

    def uuid(self, uplink: model.Uplink) -> str:
        return model.provider_uuid('cn1', uplink.bridge, uplink.nic)

    def withdraw(self) -> withdrawal.Withdrawn:
        """Withdraw without waiting for nova-compute, which does not run."""
        away = withdrawal.Withdrawal(self.client, ['cn1'])
        withdrawn = away.move_out()
        away.delete()
        return withdrawn

    def names(self) -> list[str]:
        return sorted(self.client.children(self.root_uuid).values())


class PublisherTest(PlacementCase):
    def setUp(self) -> None:
        super().setUp()
        self.publisher = publisher.Publisher(self.client, ['cn1'])

    def test_each_uplink_is_published_as_a_child_of_the_node(self) -> None:
        published = self.publisher.publish(topology(A, B), 77)
        self.assertEqual(
            ['cn1:vhpc', 'cn1:vhpc:br-a:eth1', 'cn1:vhpc:br-b:eth2'],
            self.names(),
        )
        self.assertEqual('cn1', published.node)
        slots = self.inventory(A, model.UPLINK)
        self.assertEqual((4, 0), (slots['total'], slots['reserved']))
        self.assertEqual(25000, self.inventory(B, model.MBPS)['total'])
        self.assertEqual(
            {model.TRAIT_SHARED}, self.client.traits(self.uuid(A))[1]
        )
        self.assertEqual(
            {model.TRAIT_SEPARATE, 'CUSTOM_PHYSNET_FAB_1'},
            self.client.traits(self.uuid(B))[1],
        )
        self.assertIn(model.TRAIT_HOST, self.client.traits(self.root_uuid)[1])

    def test_exported_trait_exists_before_any_host_has_it(self) -> None:
        self.publisher.publish(topology(A), 77)
        self.nova(
            'GET',
            f'/allocation_candidates?resources_uplink={model.UPLINK}:1'
            f'&required_uplink=!{model.TRAIT_EXPORTED}',
        )

    def test_traits_follow_the_uplink(self) -> None:
        for trait, fields in (
            (model.TRAIT_EXPORTED, {'exported': True}),
            (model.TRAIT_TUNNEL, {'encap_ip': '10.1.0.1'}),
            (model.TRAIT_BOND, {'bond': 'bond0'}),
            (model.rail_trait('10.1.0.0/24'), {'rail': '10.1.0.0/24'}),
            (model.rail_trait('fd00:1::/64'), {'rail': 'fd00:1::/64'}),
        ):
            for uplink, expected in (
                (dataclasses.replace(A, **fields), {trait}),
                (A, set()),
            ):
                with self.subTest(trait=trait, expected=expected):
                    self.publisher.publish(topology(uplink), 77)
                    self.assertEqual(
                        {model.TRAIT_SHARED} | expected,
                        self.client.traits(self.uuid(A))[1],
                    )

    def test_bulk_read_has_one_candidate_per_host(self) -> None:
        self.publisher.publish(topology(A, B), 77)
        body = self.nova(
            'GET',
            f'/allocation_candidates?resources={model.STAMP}:1'
            f'&root_required={model.TRAIT_HOST}',
        )
        self.assertEqual(1, len(body['allocation_requests']))
        summaries = body['provider_summaries']
        self.assertEqual(
            77,
            summaries[model.marker_uuid('cn1')]['resources'][model.STAMP][
                'capacity'
            ],
        )
        self.assertIn(self.uuid(A), summaries)
        self.assertIn(self.uuid(B), summaries)

    def test_unchanged_topology_is_not_written_again(self) -> None:
        first = self.publisher.publish(topology(A, B), 77)
        again = self.publisher.publish(topology(A, B), 77)
        self.assertGreater(first.writes, 0)
        self.assertEqual(0, again.writes)

    def test_new_stamp_needs_one_write(self) -> None:
        self.publisher.publish(topology(A, B), 77)
        self.assertEqual(1, self.publisher.publish(topology(A, B), 78).writes)

    def test_uplink_is_reserved_while_its_link_is_down(self) -> None:
        self.publisher.publish(topology(A), 77)
        dead = dataclasses.replace(A, up=False, mbps=0)
        self.publisher.publish(topology(dead), 77)
        slots = self.inventory(A, model.UPLINK)
        self.assertEqual((4, 4), (slots['total'], slots['reserved']))
        candidates = self.nova(
            'GET', f'/allocation_candidates?resources={model.UPLINK}:1'
        )
        self.assertEqual([], candidates['allocation_requests'])
        self.publisher.publish(topology(A), 77)
        self.assertEqual(0, self.inventory(A, model.UPLINK)['reserved'])

    def test_uplink_whose_link_is_down_keeps_its_claims(self) -> None:
        self.publisher.publish(topology(A), 77)
        consumer = self.claim(self.uuid(A))
        dead = dataclasses.replace(A, up=False, mbps=0)
        self.publisher.publish(topology(dead), 77)
        self.assertIn(
            self.uuid(A),
            self.nova('GET', f'/allocations/{consumer}')['allocations'],
        )

    def test_changed_speed_is_published(self) -> None:
        self.publisher.publish(topology(A), 77)
        self.publisher.publish(topology(dataclasses.replace(A, mbps=1000)), 77)
        self.assertEqual(1000, self.inventory(A, model.MBPS)['total'])

    def test_vanished_uplink_is_emptied(self) -> None:
        self.publisher.publish(topology(A, B), 77)
        published = self.publisher.publish(topology(A), 77)
        self.assertEqual((), published.reserved)
        self.assertEqual(('cn1:vhpc:br-a:eth1',), published.providers)
        self.assertEqual({}, self.client.inventories(self.uuid(B))[1])
        self.assertEqual(set(), self.client.traits(self.uuid(B))[1])
        self.assertEqual(0, self.publisher.publish(topology(A), 77).writes)
        # nova-scheduler's cache has only the remaining uplink.
        body = self.nova('GET', snapshot.BULK_READ)
        self.assertIn(self.uuid(B), body['provider_summaries'])
        names = {self.uuid(A): ('br-a', 'eth1')}
        self.assertIsNone(snapshot.names_read(body, names))
        (host,) = snapshot.parse(body, names).hosts.values()
        self.assertEqual(['eth1'], [uplink.nic for uplink in host.uplinks])
        self.withdraw()
        self.assertEqual([], self.names())

    def test_vanished_uplink_with_a_claim_stays_reserved(self) -> None:
        self.publisher.publish(topology(A, B), 77)
        consumer = self.claim(self.uuid(B))
        for _ in range(2):
            published = self.publisher.publish(topology(A), 77)
            self.assertEqual(('cn1:vhpc:br-b:eth2',), published.reserved)
            self.assertEqual(1, self.inventory(B, model.UPLINK)['reserved'])
        self.assertEqual(0, published.writes)
        self.nova('DELETE', f'/allocations/{consumer}')
        published = self.publisher.publish(topology(A), 77)
        self.assertEqual((), published.reserved)
        self.assertEqual({}, self.client.inventories(self.uuid(B))[1])

    def test_renamed_nic_of_a_claimed_separate_bridge_is_not_free(
        self,
    ) -> None:
        """A NIC is renamed or bonded while its bridge's guest runs."""
        self.publisher.publish(topology(A, B), 77)
        guest = self.claim(self.uuid(B))
        bond = dataclasses.replace(B, nic='bond0')
        for _ in range(2):
            published = self.publisher.publish(topology(A, bond), 77)
            self.assertEqual(('cn1:vhpc:br-b:eth2',), published.reserved)
            free = self.nova(
                'GET',
                f'/allocation_candidates?resources={model.UPLINK}:1'
                f'&required={model.TRAIT_SEPARATE}',
            )
            self.assertEqual([], free['allocation_requests'])
        self.assertEqual(0, published.writes)
        # The link is not down, so its bandwidth is not reserved.
        self.assertEqual(0, self.inventory(bond, model.MBPS)['reserved'])
        self.nova('DELETE', f'/allocations/{guest}')
        self.publisher.publish(topology(A, bond), 77)
        self.assertEqual(0, self.inventory(bond, model.UPLINK)['reserved'])

    def test_new_nic_of_a_shared_bridge_has_the_slots_left(self) -> None:
        """Slots that guests claimed on the earlier NICs are reserved."""
        other = dataclasses.replace(A, nic='eth9', slots=3)
        self.publisher.publish(topology(A, other), 77)
        guests = [self.claim(self.uuid(A)), self.claim(self.uuid(A))]
        guests.append(self.claim(self.uuid(other)))
        bond = dataclasses.replace(A, nic='bond0')
        for _ in range(2):
            published = self.publisher.publish(topology(bond), 77)
            self.assertEqual(
                ('cn1:vhpc:br-a:eth1', 'cn1:vhpc:br-a:eth9'),
                published.reserved,
            )
            self.assertEqual(3, self.inventory(bond, model.UPLINK)['reserved'])
        self.assertEqual(0, published.writes)
        self.nova('DELETE', f'/allocations/{guests[0]}')
        self.publisher.publish(topology(bond), 77)
        self.assertEqual(2, self.inventory(bond, model.UPLINK)['reserved'])
        # One of the two earlier NICs returns, with its own claims.
        self.publisher.publish(topology(other, bond), 77)
        self.assertEqual(1, self.inventory(bond, model.UPLINK)['reserved'])
        self.assertEqual(0, self.inventory(other, model.UPLINK)['reserved'])

    def test_fewer_slots_than_claims_can_be_published(self) -> None:
        self.publisher.publish(topology(A), 77)
        self.claim(self.uuid(A))
        self.claim(self.uuid(A))
        self.publisher.publish(topology(dataclasses.replace(A, slots=1)), 77)
        self.assertEqual(1, self.inventory(A, model.UPLINK)['total'])

    def test_claims_beyond_lowered_slots_take_those_of_the_bridge(
        self,
    ) -> None:
        other = dataclasses.replace(A, nic='eth9')
        self.publisher.publish(topology(A, other), 77)
        for _ in range(3):
            self.claim(self.uuid(A))
        fewer = [dataclasses.replace(u, slots=2) for u in (A, other)]
        for _ in range(2):
            published = self.publisher.publish(topology(*fewer), 77)
            # Three guests share four slots of the bridge.
            self.assertEqual(
                1, self.inventory(other, model.UPLINK)['reserved']
            )
        self.assertEqual(0, published.writes)

    def test_bridge_of_one_guest_is_shared_only_when_it_has_left(
        self,
    ) -> None:
        self.publisher.publish(topology(B), 77)
        guest = self.claim(self.uuid(B))
        shared = dataclasses.replace(B, kind=model.BridgeKind.SHARED, slots=8)
        for _ in range(2):
            published = self.publisher.publish(topology(shared), 77)
            self.assertIn(
                model.TRAIT_SEPARATE, self.client.traits(self.uuid(B))[1]
            )
            slots = self.inventory(B, model.UPLINK)
            self.assertEqual((1, 1), (slots['total'], slots['reserved']))
        self.assertEqual(0, published.writes)
        self.nova('DELETE', f'/allocations/{guest}')
        self.publisher.publish(topology(shared), 77)
        self.assertIn(model.TRAIT_SHARED, self.client.traits(self.uuid(B))[1])
        slots = self.inventory(B, model.UPLINK)
        self.assertEqual((8, 0), (slots['total'], slots['reserved']))

    def test_foreign_providers_and_inventories_are_kept(self) -> None:
        other = str(uuid.uuid4())
        self.nova(
            'POST',
            '/resource_providers',
            name='cn1:vhpc:made-by:somebody',
            uuid=other,
            parent_provider_uuid=self.root_uuid,
        )
        before = self.client.inventories(self.root_uuid)[1]
        self.publisher.publish(topology(A), 77)
        self.publisher.publish(topology(), 77)
        self.withdraw()
        self.assertEqual(['cn1:vhpc:made-by:somebody'], self.names())
        self.assertEqual(before, self.client.inventories(self.root_uuid)[1])

    def test_operators_trait_on_a_published_provider_is_kept(self) -> None:
        self.publisher.publish(topology(A), 77)
        self.nova('PUT', '/traits/CUSTOM_BLUE')
        generation, traits = self.client.traits(self.uuid(A))
        self.client.put_traits(
            self.uuid(A), generation, traits | {'CUSTOM_BLUE'}
        )
        published = self.publisher.publish(topology(A), 77)
        self.assertEqual(0, published.writes)
        self.assertIn('CUSTOM_BLUE', self.client.traits(self.uuid(A))[1])

    def test_inventory_changed_by_others_is_published_again(self) -> None:
        self.publisher.publish(topology(A), 77)
        generation, inventories = self.client.inventories(self.uuid(A))
        del inventories[model.MBPS]
        self.client.put_inventories(self.uuid(A), generation, inventories)
        self.publisher.publish(topology(A), 77)
        self.assertEqual(10000, self.inventory(A, model.MBPS)['total'])

    def test_missing_compute_node_raises_and_names_it(self) -> None:
        absent = publisher.Publisher(self.client, ['cn2', 'cn2.example'])
        error = self.assertRaises(
            provider_tree.NoRootError, absent.publish, topology(A), 77
        )
        self.assertIn('cn2 or cn2.example', str(error))

    def test_compute_node_found_by_uuid_gives_the_names(self) -> None:
        by_uuid = publisher.Publisher(self.client, ['other'], self.root_uuid)
        self.assertEqual('cn1', by_uuid.publish(topology(A), 77).node)
        self.assertIn('cn1:vhpc:br-a:eth1', self.names())


class ConflictingClient(placement_client.PlacementClient):
    """A client between whose reads and writes another client writes."""

    conflicts = 0

    def _conflict(self, uuid: str, generation: int) -> None:
        if self.conflicts:
            self.conflicts -= 1
            super().put_inventories(
                uuid, generation, super().inventories(uuid)[1]
            )

    def inventories(self, uuid: str) -> tuple[int, dict[str, Any]]:
        answer = super().inventories(uuid)
        self._conflict(uuid, answer[0])
        return answer

    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        answer = super().traits(uuid)
        self._conflict(uuid, answer[0])
        return answer


class ConcurrencyTest(PlacementCase):
    def test_conflicting_write_is_read_and_written_again(self) -> None:
        client = ConflictingClient(self.adapter())
        client.conflicts = 5
        publisher.Publisher(client, ['cn1']).publish(topology(A), 77)
        self.assertEqual(0, client.conflicts)
        self.assertEqual(4, self.inventory(A, model.UPLINK)['total'])
        self.assertIn(model.TRAIT_HOST, self.client.traits(self.root_uuid)[1])

    def test_claim_between_read_and_write_is_counted(self) -> None:
        """A separate bridge gets a guest while it is to become shared."""
        publisher.Publisher(self.client, ['cn1']).publish(topology(B), 77)
        outer = self

        class ServerClaims(placement_client.PlacementClient):
            done = False

            def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
                found = super().traits(uuid)
                if uuid == outer.uuid(B) and not self.done:
                    self.done = True
                    outer.claim(uuid)
                return found

        shared = dataclasses.replace(B, kind=model.BridgeKind.SHARED, slots=8)
        publisher.Publisher(ServerClaims(self.adapter()), ['cn1']).publish(
            topology(shared), 77
        )
        self.assertIn(
            model.TRAIT_SEPARATE, self.client.traits(self.uuid(B))[1]
        )
        self.assertEqual(1, self.inventory(B, model.UPLINK)['total'])

    def test_endless_conflicts_raise_an_error(self) -> None:
        client = ConflictingClient(self.adapter())
        client.conflicts = 1000
        conflicted = publisher.Publisher(client, ['cn1'])
        self.assertRaises(
            placement_client.ConflictError, conflicted.publish, topology(A), 77
        )

    def test_trait_set_between_read_and_write_is_kept(self) -> None:
        first = publisher.Publisher(self.client, ['cn1'])
        first.publish(topology(), 77)
        outer = self

        class NovaSetsATrait(placement_client.PlacementClient):
            done = False

            def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
                generation, traits = super().traits(uuid)
                if uuid == outer.root_uuid and not self.done:
                    self.done = True
                    outer.client.put_traits(
                        uuid, generation, traits | {'HW_CPU_X86_AVX'}
                    )
                return generation, traits

        conflicted = NovaSetsATrait(self.adapter())
        withdrawal.Withdrawal(conflicted, ['cn1']).move_out()
        self.assertEqual(
            {'HW_CPU_X86_AVX'}, self.client.traits(self.root_uuid)[1]
        )
