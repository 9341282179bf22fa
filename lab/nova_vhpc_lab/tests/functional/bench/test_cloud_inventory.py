# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""``nova-vhpc-bench cloud`` reads a real Nova and Placement."""

from nova_vhpc.tests.functional import sdk
from nova_vhpc.tests.functional.scheduler import base
from nova_vhpc_lab.bench import cloud_inventory
from nova_vhpc_lab.sim.cloud import inventory

PARALLEL = {'vhpc:workload': 'parallel'}


class InventoryTest(base.SchedulerTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = sdk.connect(
            self.api_fixture, self.placement.fixture.endpoint
        )
        self.start_hosts('h1', 'h2', 'off')
        service = self.api.api_get(
            '/os-services?binary=nova-compute&host=off'
        ).body['services'][0]
        self.api.put_service(service['id'], {'status': 'disabled'})
        aggregate = self.api.post_aggregate({'aggregate': {'name': 'fabric'}})
        self.api.add_host_to_aggregate(aggregate['id'], 'h1')
        self.api.post_aggregate_action(
            aggregate['id'],
            {'set_metadata': {'metadata': {'vhpc:switch': 'leaf7'}}},
        )

    def test_hosts_clusters_and_vms_are_those_of_the_cloud(self):
        flavor = self.flavor(PARALLEL, vcpu=2, memory_mb=128)
        self.boot_cluster(flavor, 3, self.group())
        self.boot_cluster(self.flavor({}, vcpu=1, memory_mb=64), 2)
        document = cloud_inventory.read(self.cloud)
        hosts = {host['name']: host for host in document['hosts']}
        self.assertEqual({'h1', 'h2'}, hosts.keys())
        self.assertEqual('leaf7', hosts['h1']['switch'])
        self.assertIsNone(hosts['h2']['switch'])
        for name, host in hosts.items():
            uuid = self._get_provider_uuid_by_host(name)
            resources = self._get_provider_inventory(uuid)
            self.assertEqual(resources['VCPU']['total'], host['cpus'])
        self.assertEqual(
            [
                {
                    'name': 'cluster',
                    'members': 3,
                    'vcpus': 2,
                    'ram_mb': 128,
                    'program': 'cg',
                    'group_policy': 'soft-affinity',
                }
            ],
            document['clusters'],
        )
        self.assertEqual(
            [{'count': 2, 'vcpus': 1, 'ram_mb': 64, 'program': 'compile'}],
            document['vms'],
        )
        spec = inventory.read(document, None)
        self.assertEqual([3, 1, 1], [job.members for job in spec.jobs])

    def test_servers_beyond_the_first_page_are_read(self):
        self.boot_cluster(self.flavor(PARALLEL), 5, self.group())
        # Not before: the helper above reads one page.
        self.flags(max_limit=2, group='api')
        (cluster,) = cloud_inventory.read(self.cloud)['clusters']
        self.assertEqual(5, cluster['members'])
