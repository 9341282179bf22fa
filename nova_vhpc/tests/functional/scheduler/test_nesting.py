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
        member = next(s for s in servers if s['id'] not in before)
        group = self.api.api_get(f'/servers/{member["id"]}').body['server'][
            'server_groups'
        ]
        alone = self._create_server(
            name='alone', flavor_id=self.flavor_id, networks='none'
        )
        with self.subTest('the database names the groups of servers'):
            known = server_groups.ServerGroups()
            both = {member['id']: None, alone['id']: None}
            self.assertEqual([set(group)], known.of_hosts([both], 'other'))
            self.assertEqual([set()], known.of_hosts([both], group[0]))
