# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.scheduler.sources import server_groups
from nova_vhpc.tests.functional.scheduler import base

SPECS = {'vhpc:workload': 'parallel', 'vhpc:max_overcommit': '1.0'}


class NestingTest(base.SchedulerTestCase):
    """Four hosts of ten CPUs; clusters have members of four vCPUs."""

    def setUp(self):
        super().setUp()
        self.flags(cores=-1, group='quota')
        self.start_hosts('alpha', 'beta', 'gamma', 'delta')
        self.flavor_id = self.flavor(SPECS, vcpu=4)

    def test_new_cluster_takes_the_hosts_of_one_other_cluster(self):
        for pair in (('alpha', 'gamma'), ('beta', 'delta')):
            group = self.group('soft-anti-affinity')
            for host in pair:
                self.boot_cluster(self.flavor_id, 1, group, host=host)
        before = {server['id'] for server in self.api.get_servers()}
        servers = self.boot_cluster(self.flavor_id, 2, self.group())
        self.assertIn(
            self.hosts_of(s for s in servers if s['id'] not in before),
            (['alpha', 'gamma'], ['beta', 'delta']),
        )

    def test_database_names_the_groups_of_servers(self):
        group = self.group()
        (member,) = self.boot_cluster(self.flavor_id, 1, group)
        alone = self._create_server(
            name='alone', flavor_id=self.flavor_id, networks='none'
        )
        servers = {member['id']: None, alone['id']: None}
        groups = server_groups.ServerGroups()
        self.assertEqual([{group}], groups.of_hosts([servers], 'other'))
        self.assertEqual([set()], groups.of_hosts([servers], group))
