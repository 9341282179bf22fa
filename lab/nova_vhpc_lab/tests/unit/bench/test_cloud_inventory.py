# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
import json
import types
import urllib.parse

from nova_vhpc.clients import openstack
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.explain.cloud import test_server_groups
from nova_vhpc_lab.bench import cloud_inventory
from nova_vhpc_lab.sim.cloud import inventory

PAGE = 2
PARALLEL = {'vhpc:workload': 'parallel'}


class Cloud(test_server_groups.Compute):
    """Nova and Placement with two hosts and no server.

    :ivar inventories: of the resource providers, by ID.
    """

    def __init__(self, groups=0):
        super().__init__(groups)
        self.placement = self
        self.servers = []
        self.aggregates = []
        self.hypervisors = [hypervisor('h1'), hypervisor('h2')]
        self.inventories = {
            'id-h1': resources(16, 4096),
            'id-h2': resources(8, 4096),
        }

    def add(self, uuid, vcpus=2, ram=512, group=None, specs=(), host='h1'):
        """Add a server, to the server group of a number."""
        self.servers.append(
            {
                'id': uuid,
                'OS-EXT-SRV-ATTR:host': host,
                'flavor': {
                    'vcpus': vcpus,
                    'ram': ram,
                    'extra_specs': dict(specs),
                },
            }
        )
        if group is not None:
            self.groups[group]['members'].append(uuid)

    def get(self, path, microversion):
        path, _, query = path.partition('?')
        query = dict(urllib.parse.parse_qsl(query))
        if path == '/os-hypervisors/detail':
            return answer({'hypervisors': self.hypervisors})
        if path == '/os-aggregates':
            return answer({'aggregates': self.aggregates})
        if path.startswith('/resource_providers/'):
            uuid = path.split('/')[2]
            if uuid not in self.inventories:
                return answer({}, 404)
            return answer({'inventories': self.inventories[uuid]})
        if path == '/servers/detail':
            ids = [server['id'] for server in self.servers]
            first = ids.index(query['marker']) + 1 if 'marker' in query else 0
            page = self.servers[first : first + PAGE]
            body = {'servers': page}
            if len(self.servers) > first + PAGE:
                href = f'http://nova{path}?marker={page[-1]["id"]}'
                body['servers_links'] = [{'rel': 'next', 'href': href}]
            return answer(body)
        return super().get(
            f'{path}?{urllib.parse.urlencode(query)}', microversion
        )


def hypervisor(name, **changes):
    service = {'host': name, 'disabled_reason': None}
    host = {'id': f'id-{name}', 'service': service, 'vcpus': 99}
    return {**host, 'state': 'up', 'status': 'enabled', **changes}


def resources(cpus, ram_mb, ratio=1.0, reserved=0):
    """Return the inventories of a resource provider."""
    return {
        'VCPU': {
            'total': cpus,
            'reserved': reserved,
            'allocation_ratio': ratio,
        },
        'MEMORY_MB': {
            'total': ram_mb,
            'reserved': 96,
            'allocation_ratio': 1.5,
        },
    }


def answer(body, status=200):
    return types.SimpleNamespace(
        status_code=status, json=lambda: body, text=json.dumps(body)
    )


class ReadTest(base.TestCase):
    def test_hosts_have_what_placement_gives_away(self):
        cloud = Cloud()
        cloud.aggregates = [
            {'hosts': ['h2'], 'metadata': {'vhpc:switch': 's'}}
        ]
        first, second = cloud_inventory.read(cloud)['hosts']
        self.assertEqual(('h1', 16, 6000), tuple(first.values())[:3])
        self.assertIsNone(first['switch'])
        self.assertEqual(('h2', 8), (second['name'], second['cpus']))
        self.assertEqual('s', second['switch'])

    def test_overcommit_allows_the_vcpus_of_all_hosts_together(self):
        cloud = Cloud()
        cloud.inventories = {
            'id-h1': resources(16, 4096, ratio=1.0, reserved=4),
            'id-h2': resources(8, 4096, ratio=4.5),
        }
        self.assertEqual(48 / 24, cloud_inventory.read(cloud)['overcommit'])

    def test_hosts_that_take_no_vm_are_left_out(self):
        cloud = Cloud()
        cloud.hypervisors += [
            hypervisor('down', state='down'),
            hypervisor('disabled', status='disabled'),
            hypervisor('gone'),
            hypervisor('dedicated'),
        ]
        cloud.inventories['id-down'] = resources(8, 4096)
        cloud.inventories['id-disabled'] = resources(8, 4096)
        cloud.inventories['id-dedicated'] = {'PCPU': {'total': 8}}
        hosts = cloud_inventory.read(cloud)['hosts']
        self.assertEqual(['h1', 'h2'], [host['name'] for host in hosts])

    def test_members_of_a_group_are_a_cluster_of_its_policy(self):
        cloud = Cloud(groups=1)
        for number in range(5):
            cloud.add(f's{number}', 4, 256, group=0, specs=PARALLEL)
        document = cloud_inventory.read(cloud)
        (cluster,) = document['clusters']
        self.assertEqual('name0', cluster['name'])
        self.assertEqual((5, 4, 256), tuple(cluster.values())[1:4])
        self.assertEqual('affinity', cluster['group_policy'])
        self.assertEqual([], document['vms'])

    def test_members_count_as_the_largest(self):
        cloud = Cloud(groups=1)
        cloud.add('head', 2, 1024, group=0, specs=PARALLEL)
        cloud.add('node', 8, 512, group=0, specs=PARALLEL)
        (cluster,) = cloud_inventory.read(cloud)['clusters']
        self.assertEqual((8, 1024), (cluster['vcpus'], cluster['ram_mb']))

    def test_clusters_of_one_name_are_told_apart(self):
        cloud = Cloud(groups=2)
        cloud.groups[1]['name'] = 'name0'
        for number in range(4):
            cloud.add(f's{number}', group=number % 2, specs=PARALLEL)
        clusters = cloud_inventory.read(cloud)['clusters']
        self.assertEqual(
            ['name0', 'name0/id1'], [one['name'] for one in clusters]
        )

    def test_other_servers_are_vms_by_their_workload(self):
        cloud = Cloud(groups=2)
        cloud.add('alone in its group', group=0, specs=PARALLEL)
        cloud.add('no vhpc 1', group=1)
        cloud.add('no vhpc 2', group=1)
        cloud.add('web', specs={'vhpc:workload': 'latency'})
        document = cloud_inventory.read(cloud)
        self.assertEqual([], document['clusters'])
        self.assertEqual(
            {'cg': 1, 'compile': 2, 'web': 1},
            {vm['program']: vm['count'] for vm in document['vms']},
        )

    def test_servers_that_share_no_cpu_are_left_out(self):
        cloud = Cloud()
        cloud.add('dedicated', specs={'hw:cpu_policy': 'dedicated'})
        cloud.add('building', host=None)
        cloud.servers.append({'id': 'stub of a cell that is down'})
        self.assertEqual([], cloud_inventory.read(cloud)['vms'])

    def test_document_is_an_inventory(self):
        cloud = Cloud(groups=2)
        for number in range(6):
            cloud.add(f's{number}', group=number % 2, specs=PARALLEL)
        cloud.add('single')
        spec = inventory.read(cloud_inventory.read(cloud), None)
        self.assertEqual(
            {'name0': 3, 'name1': 3, 'v1': 1},
            {job.name: job.members for job in spec.jobs},
        )
        self.assertEqual([16, 8], [host.cpus for host in spec.hosts])

    def test_cloud_without_a_usable_host_is_an_error(self):
        cloud = Cloud()
        cloud.hypervisors = [hypervisor('h1', state='down')]
        error = self.assertRaises(
            openstack.CloudError, cloud_inventory.read, cloud
        )
        self.assertIn('no compute host', str(error))

    def test_damaged_answer_is_a_cloud_error(self):
        for damage in (
            {'hypervisors': [{}]},
            {'servers': [5]},
            {'aggregates': 3},
            {'inventories': {'id-h1': {'VCPU': None}}},
        ):
            cloud = Cloud()
            vars(cloud).update(damage)
            self.assertRaises(
                openstack.CloudError, cloud_inventory.read, cloud
            )
