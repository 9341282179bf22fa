# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Claims stay right over the life of a member."""

import time
from unittest import mock

from nova_vhpc.scheduler.sources import nova_db
from nova_vhpc.tests.functional.scheduler import base

PATIENCE_S = 30.0


class LifecycleTest(base.SchedulerTestCase):
    """Two hosts with one uplink for one guest each."""

    def setUp(self):
        self.flags(allow_resize_to_same_host=False)
        super().setUp()
        self.flags(shelved_offload_time=0)
        self.uplink = base.separate('br1', 'eth1')
        self.start_hosts('one', 'two')
        for host in ('one', 'two'):
            self.publish(host, self.uplink)
        self.flavor_id = self.flavor(base.SEPARATE)
        self.server = self._create_server(
            flavor_id=self.flavor_id, networks='none'
        )
        self.source = self.server['OS-EXT-SRV-ATTR:host']
        self.target = {'one': 'two', 'two': 'one'}[self.source]

    def assert_claims(self, on_source, on_target):
        expected = (on_source, on_target)
        end = time.monotonic() + PATIENCE_S
        # Nova says that a migration is completed before the host that is left
        # has given its claim back.
        while self.in_use() != expected and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(expected, self.in_use())

    def in_use(self):
        """Claims of the uplinks of source and target."""
        return (
            self.used(self.source, self.uplink),
            self.used(self.target, self.uplink),
        )

    def _force_down(self, down):
        service = self.computes[self.source].service_ref
        self.api.put_service_force_down(service.uuid, down)

    def test_delete(self):
        self.assert_claims(1, 0)
        self._delete_server(self.server)
        self.assert_claims(0, 0)

    def test_cold_migration(self):
        server = self._migrate_server(self.server)
        self.assertEqual(self.target, server['OS-EXT-SRV-ATTR:host'])
        # The source keeps its uplink until the move is confirmed.
        self.assert_claims(1, 1)
        self._confirm_resize(server)
        self.assert_claims(0, 1)

    def test_resize_and_revert(self):
        other = self.flavor(base.SEPARATE, vcpu=2)
        server = self._resize_server(self.server, other)
        self.assertEqual(self.target, server['OS-EXT-SRV-ATTR:host'])
        self.assert_claims(1, 1)
        self._revert_resize(server)
        self.assert_claims(1, 0)

    def test_resize_to_a_flavor_without_uplink(self):
        server = self._resize_server(self.server, self.flavor({}))
        self._confirm_resize(server)
        self.assert_claims(0, 0)

    def test_evacuation(self):
        self.computes[self.source].stop()
        self._force_down(True)
        server = self._evacuate_server(self.server)
        self.assertEqual(self.target, server['OS-EXT-SRV-ATTR:host'])
        # The source's claim goes when its nova-compute comes back.
        self.assert_claims(1, 1)
        self.computes[self.source].start()
        self._force_down(False)
        self._wait_for_assert(lambda: self.assert_claims(0, 1))

    def test_rebuild_needs_no_further_uplink(self):
        # No uplink is free any more, and a rebuild wants none.
        self._create_server(flavor_id=self.flavor_id, networks='none')
        self.assert_claims(1, 1)
        server = self._rebuild_server(
            self.server, 'a2459075-d96c-40d5-893e-577ff92e721c'
        )
        self.assertEqual(self.source, server['OS-EXT-SRV-ATTR:host'])
        self.assert_claims(1, 1)

    def test_shelve_and_unshelve(self):
        server = self._shelve_server(self.server)
        self.assert_claims(0, 0)
        server = self._unshelve_server(server)
        self.assertEqual(1, len(self.claims(server)))
        self.assertEqual(
            1,
            self.used('one', self.uplink) + self.used('two', self.uplink),
        )

    def test_live_migration(self):
        server = self._live_migrate(self.server, 'completed')
        self.assertEqual(self.target, server['OS-EXT-SRV-ATTR:host'])
        self.assert_claims(0, 1)


class MovedMemberTest(base.SchedulerTestCase):
    """A cluster of one multi-create on one host, whose peer is small."""

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
        # Only now may members go elsewhere. One fits beside the others,
        # and all of them on a host that is far away.
        self.publish('near', uplinks[0])
        self.publish('far', *uplinks)

    def test_live_migration(self):
        server = self._live_migrate(self.servers[0], 'completed')
        self.assertEqual('near', server['OS-EXT-SRV-ATTR:host'])

    def test_unshelve(self):
        server = self._shelve_server(self.servers[0])
        # Its uplink is taken by another one in the meantime.
        other = self._create_server(
            flavor_id=self.flavor_id, host='full', networks='none'
        )
        self.assertEqual('full', other['OS-EXT-SRV-ATTR:host'])
        server = self._unshelve_server(server)
        self.assertEqual('near', server['OS-EXT-SRV-ATTR:host'])

    def test_evacuation_of_all(self):
        """One after another, but planned together: no peer stays there."""
        self.computes['full'].stop()
        service = self.computes['full'].service_ref
        self.api.put_service_force_down(service.uuid, True)
        servers = [self._evacuate_server(server) for server in self.servers]
        self.assertEqual(['far'] * 3, self.hosts_of(servers))

    def test_evacuation_under_way(self):
        """Until it runs again, Nova has the member where it was."""
        self.computes['full'].stop()
        service = self.computes['full'].service_ref
        self.api.put_service_force_down(service.uuid, True)
        cell = self.cell_mappings['cell1']
        driver = self.computes['far'].driver
        spawn = driver.spawn
        told = []

        def look(*args, **kwargs):
            uuids = [server['id'] for server in self.servers]
            told.append(
                (
                    set(nova_db.locate(uuids).hosts.values()),
                    nova_db.evacuation_destinations(cell, 'full'),
                )
            )
            return spawn(*args, **kwargs)

        with mock.patch.object(driver, 'spawn', look):
            server = self._evacuate_server(self.servers[0])
        self.assertEqual([({'full'}, {server['id']: 'far'})], told)
        self.assertEqual({}, nova_db.evacuation_destinations(cell, 'full'))


class MovedMemberOfAFullSwitchTest(MovedMemberTest):
    """No host of the peers' switch has room; one of their rack has."""

    fabric = (
        ('s1', 'r1', ('full',)),
        ('s2', 'r2', ('far',)),
        ('s3', 'r1', ('near',)),
    )
