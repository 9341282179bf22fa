# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Multi-create: several members of a virtual cluster in one request."""

import dataclasses
import time

from nova_vhpc.scheduler.sources import uplink_cache
from nova_vhpc.tests.functional.scheduler import base


class MultiCreateTest(base.SchedulerTestCase):
    """Two hosts with two one-slot uplinks each."""

    def setUp(self):
        super().setUp()
        self.uplinks = {}
        self.start_hosts('alpha', 'beta')
        for host in ('alpha', 'beta'):
            self.uplinks[host] = [
                base.separate('br1', 'eth1'),
                base.separate('br2', 'eth2'),
            ]
            self.publish(host, *self.uplinks[host])
        self.flavor_id = self.flavor(base.SEPARATE)

    def used_uplinks(self):
        return sum(
            self.used(host, uplink)
            for host, uplinks in self.uplinks.items()
            for uplink in uplinks
        )

    def assert_own_uplinks(self, servers):
        claims = [tuple(self.claims(server)) for server in servers]
        self.assertEqual({1}, {len(claim) for claim in claims}, claims)
        self.assertEqual(len(servers), len(set(claims)), claims)

    def test_each_member_gets_an_uplink_or_all_fail(self):
        with self.part('three members get three uplinks'):
            servers = self.boot_cluster(self.flavor_id, 3)
            self.assertEqual(3, len(servers))
            self.assert_own_uplinks(servers)
        with self.part('five members fail as a whole'):
            servers = self.boot_cluster(
                self.flavor_id, 5, expected_state='ERROR'
            )
            self.assertEqual(5, len(servers))
            for server in servers:
                self.assertIn('No valid host', server['fault']['message'])
                self.assertEqual(
                    {}, self._get_allocations_by_server_uuid(server['id'])
                )
            self.assertEqual(0, self.used_uplinks())
        with self.part('members go to the requested host'):
            servers = self.boot_cluster(
                self.flavor_id, 2, self.group(), host='beta'
            )
            self.assertEqual(['beta', 'beta'], self.hosts_of(servers))
            self.assert_own_uplinks(servers)
        servers = self.boot_cluster(self.flavor_id, 4, self.group())
        self.assertEqual(4, len(servers))
        self.assert_own_uplinks(servers)
        self.assertEqual(4, self.used_uplinks())


class RedeployTest(base.SchedulerTestCase):
    """A cluster is deleted and booted again in a cloud that was full."""

    def test_uplinks_freed_after_an_old_snapshot_are_used(self):
        # The read takes longer on a machine that runs other tests, too.
        self.flags(group='vhpc_scheduler', fresh_read_timeout=60)
        self.start_hosts('alpha', 'beta')
        uplink = base.shared('br1', 'eth1', slots=2)
        for host in ('alpha', 'beta'):
            self.publish(host, uplink)
        flavor_id = self.flavor(base.SHARED)
        servers = self.boot_cluster(flavor_id, 4, self.group())
        self.assertEqual(
            ['alpha', 'alpha', 'beta', 'beta'], self.hosts_of(servers)
        )
        # No request renews the snapshot for long.
        cache = uplink_cache.for_process(self._conf())
        cache.refresh()
        cache._snapshot = dataclasses.replace(
            cache.latest(), taken_s=time.monotonic() - 300
        )
        for server in servers:
            self._delete_server(server)
        first, second = self.boot_cluster(flavor_id, 2, self.group())
        self.assertEqual(*self.hosts_of((first, second)))
