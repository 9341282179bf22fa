# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.tests.functional.scheduler import base

SPECS = {
    'vhpc:workload': 'parallel',
    'vhpc:max_overcommit': '1.0',
    'vhpc:max_tier': 'switch',
}


class MaxTierTest(base.SchedulerTestCase):
    """Two hosts of ten CPUs under one switch, and one under another."""

    def setUp(self):
        super().setUp()
        self.start_hosts('alpha', 'beta', 'gamma')
        for switch, hosts in (('a', ('alpha', 'beta')), ('b', ('gamma',))):
            aggregate = self.admin_api.post_aggregate(
                {'aggregate': {'name': switch}}
            )
            metadata = {'vhpc:switch': switch}
            self.admin_api.post_aggregate_action(
                aggregate['id'], {'set_metadata': {'metadata': metadata}}
            )
            for host in hosts:
                self.admin_api.add_host_to_aggregate(aggregate['id'], host)

    def boot(self, specs, members, **more):
        flavor_id = self.flavor(specs, vcpu=4)
        return self.boot_cluster(flavor_id, members, self.group(), **more)

    def test_cluster_stays_under_the_switch_that_holds_it(self):
        with self.part('four members'):
            self.assertEqual(
                ['alpha', 'alpha', 'beta', 'beta'],
                self.hosts_of(self.boot(SPECS, 4)),
            )
        with self.part('a cluster that no switch holds is refused'):
            for server in self.boot(SPECS, 5, expected_state='ERROR'):
                self.assertIn('No valid host', server['fault']['message'])
                self.assertEqual(
                    {}, self._get_allocations_by_server_uuid(server['id'])
                )
        with self.part('it is placed without the limit'):
            anywhere = {k: v for k, v in SPECS.items() if 'tier' not in k}
            self.assertEqual(5, len(self.boot(anywhere, 5)))
        servers = self.boot(SPECS, 3)
        hosts = self.hosts_of(servers)
        # The middle one of three sorted hosts has two members.
        (server, _) = (
            server
            for server in servers
            if server['OS-EXT-SRV-ATTR:host'] == hosts[1]
        )
        self._migrate_server(server)
        moved = self.api.get_server(server['id'])['OS-EXT-SRV-ATTR:host']
        self.assertEqual({'alpha', 'beta'}, {hosts[1], moved})
