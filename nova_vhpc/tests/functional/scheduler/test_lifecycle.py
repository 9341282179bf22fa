# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Claims of members that are migrated, resized, shelved and evacuated."""

import contextlib
import time
from unittest import mock

from nova_vhpc.scheduler.sources import nova_db
from nova_vhpc.tests.functional.scheduler import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class LifecycleTest(base.SchedulerTestCase):
    """Two hosts, each with one uplink for one guest."""

    def setUp(self):
        self.flags(allow_resize_to_same_host=False)
        super().setUp()
        self.flags(shelved_offload_time=0)
        self.uplink = base.separate('br1', 'eth1')
        self.start_hosts('one', 'two')
        for host in ('one', 'two'):
            self.publish(host, self.uplink)
        self.flavor_id = self.flavor(base.SEPARATE)
        self.boot()

    def boot(self):
        """Boot a member; the other host is then the only one with room."""
        self.server = self._create_server(
            flavor_id=self.flavor_id, networks='none'
        )
        self.source = self.server['OS-EXT-SRV-ATTR:host']
        self.target = {'one': 'two', 'two': 'one'}[self.source]

    @contextlib.contextmanager
    def next_member(self, name):
        """Run a part of a test with a member of its own."""
        with self.subTest(name):
            yield
        self._delete_server(self.server)
        self.assert_claims(0, 0)
        self.boot()

    def assert_claims(self, on_source, on_target):
        expected = (on_source, on_target)
        end = time.monotonic() + PATIENCE_S
        # Nova reports a migration as completed before the source's claim is
        # released.
        while self.in_use() != expected and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(expected, self.in_use())

    def in_use(self):
        """Return the numbers of claims on source and target."""
        return (
            self.used(self.source, self.uplink),
            self.used(self.target, self.uplink),
        )

    def _force_down(self, down):
        service = self.computes[self.source].service_ref
        self.api.put_service_force_down(service.uuid, down)

    def test_claims_follow_the_member(self):
        """The claim of a deleted member is released after each part."""
        with self.next_member('cold migration claims both until confirmed'):
            server = self._migrate_server(self.server)
            self.assertEqual(self.target, server['OS-EXT-SRV-ATTR:host'])
            # The source keeps its uplink until the move is confirmed.
            self.assert_claims(1, 1)
            self._confirm_resize(server)
            self.assert_claims(0, 1)
        with self.next_member('reverted resize releases the claim there'):
            other = self.flavor(base.SEPARATE, vcpu=2)
            server = self._resize_server(self.server, other)
            self.assertEqual(self.target, server['OS-EXT-SRV-ATTR:host'])
            self.assert_claims(1, 1)
            self._revert_resize(server)
            self.assert_claims(1, 0)
        with self.next_member('resize to a flavor without uplink'):
            server = self._resize_server(self.server, self.flavor({}))
            self._confirm_resize(server)
            self.assert_claims(0, 0)
        with self.next_member('live migration claims on the target only'):
            server = self._live_migrate(self.server, 'completed')
            self.assertEqual(self.target, server['OS-EXT-SRV-ATTR:host'])
            self.assert_claims(0, 1)
        with self.next_member('shelving releases it until unshelved'):
            server = self._shelve_server(self.server)
            self.assert_claims(0, 0)
            server = self._unshelve_server(server)
            self.assertEqual(1, len(self.claims(server)))
            self.assertEqual(1, sum(self.in_use()))

    def test_evacuated_source_releases_its_claim_when_it_is_back(self):
        self.computes[self.source].stop()
        self._force_down(True)
        server = self._evacuate_server(self.server)
        self.assertEqual(self.target, server['OS-EXT-SRV-ATTR:host'])
        # The source's claim goes when its nova-compute comes back.
        self.assert_claims(1, 1)
        self.computes[self.source].start()
        self._force_down(False)
        self._wait_for_assert(lambda: self.assert_claims(0, 1))

    def test_rebuilt_member_keeps_its_claim(self):
        # No uplink is free any more, but a rebuild needs none.
        self._create_server(flavor_id=self.flavor_id, networks='none')
        self.assert_claims(1, 1)
        server = self._rebuild_server(
            self.server, 'a2459075-d96c-40d5-893e-577ff92e721c'
        )
        self.assertEqual(self.source, server['OS-EXT-SRV-ATTR:host'])
        self.assert_claims(1, 1)


class MovedMemberCase(base.SchedulerTestCase):
    """A whole cluster is on one host; the host near it has one uplink only."""

    # Switch, rack and hosts.
    fabric: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ('s1', 'r1', ('full', 'near')),
        ('s2', 'r2', ('far',)),
    )

    def setUp(self):
        super().setUp()
        self.flags(shelved_offload_time=0)
        self.start_hosts('full', 'near', 'far')
        for switch, rack, hosts in self.fabric:
            made = self.api.post_aggregate({'aggregate': {'name': switch}})
            metadata = {'vhpc:switch': switch, 'vhpc:rack': rack}
            self.api.post_aggregate_action(
                made['id'], {'set_metadata': {'metadata': metadata}}
            )
            for host in hosts:
                self.api.add_host_to_aggregate(made['id'], host)
        uplinks = [base.separate(f'br{n}', f'eth{n}') for n in range(3)]
        self.publish('full', *uplinks)
        self.flavor_id = self.flavor(base.SEPARATE)
        self.servers = self.boot_cluster(self.flavor_id, 3, self.group())
        self.assertEqual(['full'] * 3, self.hosts_of(self.servers))
        # Published after the boot, so that members can go there only when they
        # move: one member fits nearby, all of them fit on the far host.
        self.publish('near', uplinks[0])
        self.publish('far', *uplinks)


class MovedMemberTest(MovedMemberCase):
    def test_live_migrated_member_goes_near_its_peers(self):
        server = self._live_migrate(self.servers[0], 'completed')
        self.assertEqual('near', server['OS-EXT-SRV-ATTR:host'])

    def test_unshelved_member_goes_near_its_peers(self):
        server = self._shelve_server(self.servers[0])
        # Another server claims the member's uplink in the meantime.
        other = self._create_server(
            flavor_id=self.flavor_id, host='full', networks='none'
        )
        self.assertEqual('full', other['OS-EXT-SRV-ATTR:host'])
        server = self._unshelve_server(server)
        self.assertEqual('near', server['OS-EXT-SRV-ATTR:host'])

    def test_members_evacuated_one_by_one_end_on_one_host(self):
        """Each is planned with its peers, none of which can stay."""
        self.computes['full'].stop()
        service = self.computes['full'].service_ref
        self.api.put_service_force_down(service.uuid, True)
        servers = [self._evacuate_server(server) for server in self.servers]
        self.assertEqual(['far'] * 3, self.hosts_of(servers))


class MovedMemberOfAFullSwitchTest(MovedMemberTest):
    """No host at the peers' switch has capacity; one in their rack has."""

    fabric = (
        ('s1', 'r1', ('full',)),
        ('s2', 'r2', ('far',)),
        ('s3', 'r1', ('near',)),
    )


class LeftHostTest(MovedMemberCase):
    """Members that leave a host which takes none of them."""

    def test_members_migrated_off_a_disabled_host_end_on_one_host(self):
        """Each is planned with its peers, which leave the host, too."""
        service = self.computes['full'].service_ref
        self.api.put_service(service.uuid, {'status': 'disabled'})
        servers = [
            self._live_migrate(server, 'completed') for server in self.servers
        ]
        self.assertEqual(['far'] * 3, self.hosts_of(servers))

    def test_evacuating_member_is_located_on_its_source(self):
        """Nova's database has the source until the member runs again."""
        self.computes['full'].stop()
        service = self.computes['full'].service_ref
        self.api.put_service_force_down(service.uuid, True)
        cell = self.cell_mappings['cell1']
        driver = self.computes['far'].driver
        spawn = driver.spawn
        locations = []

        def locate_and_spawn(*args, **kwargs):
            uuids = [server['id'] for server in self.servers]
            locations.append(
                (
                    set(nova_db.locate(uuids).hosts.values()),
                    nova_db.move_destinations(cell, 'full'),
                )
            )
            return spawn(*args, **kwargs)

        with mock.patch.object(driver, 'spawn', locate_and_spawn):
            server = self._evacuate_server(self.servers[0])
        self.assertEqual([({'full'}, {server['id']: 'far'})], locations)
        self.assertEqual({}, nova_db.move_destinations(cell, 'full'))
