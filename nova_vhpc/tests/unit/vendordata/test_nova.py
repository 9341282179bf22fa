# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What one answer of Nova's serves; the functional tests ask a real Nova."""

import threading
from types import SimpleNamespace
from unittest import mock

import requests

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes, test_shared_reads
from nova_vhpc.vendordata import answer
from nova_vhpc.vendordata import nova as nova_api


class _Client:
    """Nova's API with one server group.

    :param servers: the servers of the group.
    :param unlisted: UUIDs of those that lists lack.
    """

    def __init__(self, servers, unlisted=()):
        self._servers = {server['id']: server for server in servers}
        self._unlisted = unlisted
        self.aggregates = []
        self.asked = []
        self.group_asked = threading.Event()
        self.group_may_answer = threading.Event()
        self.group_may_answer.set()

    def get(self, url, **kwargs):
        self.asked.append(url)
        if url.startswith('/servers/detail'):
            listed = [
                server
                for uuid, server in self._servers.items()
                if uuid not in self._unlisted and '&marker=' not in url
            ]
            body = {'servers': listed}
        elif url.startswith('/servers/'):
            body = {'server': self._servers.get(url.rpartition('/')[2])}
            if body['server'] is None:
                return SimpleNamespace(status_code=404, text='gone')
        elif url.startswith('/os-server-groups'):
            body = {
                'server_group': {
                    'id': fakes.GROUP,
                    'name': 'weather',
                    'members': [*self._servers, fakes.uuid(99)],
                    'project_id': fakes.PROJECT,
                }
            }
            self.group_asked.set()
            self.group_may_answer.wait(60)
        else:
            body = {'aggregates': self.aggregates}
        return SimpleNamespace(status_code=200, json=lambda: body)


class NovaTest(base.TestCase):
    def test_other_servers_of_the_group_are_no_members(self):
        plain, hidden = fakes.server(2), fakes.server(3)
        del hidden['flavor']['extra_specs']
        client = _Client([fakes.server(1, workload='parallel'), plain, hidden])
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
        members = nova.cluster(fakes.uuid(1), fakes.PROJECT).members
        self.assertEqual(
            {fakes.uuid(1), fakes.uuid(3)}, {one.uuid for one in members}
        )
        self.assertRaises(
            nova_api.NotMember, nova.cluster, plain['id'], fakes.PROJECT
        )

    def test_list_ends_at_the_page_with_the_last_member(self):
        client = _Client([fakes.server(1, workload='parallel')])
        get = client.get
        client.get = lambda url, **kwargs: (
            SimpleNamespace(
                status_code=200,
                json=lambda: {
                    'server_group': {
                        'id': fakes.GROUP,
                        'name': 'weather',
                        'members': [fakes.uuid(1)],
                    }
                },
            )
            if url.startswith('/os-server-groups')
            else get(url, **kwargs)
        )
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
        nova.cluster(fakes.uuid(1), fakes.PROJECT)
        self.assertEqual(
            1, sum(url.startswith('/servers/detail') for url in client.asked)
        )

    def test_member_of_a_cell_that_is_down_makes_nova_away(self):
        """Nova's list of a project leaves such servers out."""
        stub = {
            'id': fakes.uuid(2),
            'tenant_id': fakes.PROJECT,
            'status': 'UNKNOWN',
        }
        client = _Client(
            [fakes.server(1, workload='parallel'), stub], unlisted=[stub['id']]
        )
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
        error = self.assertRaises(
            RuntimeError, nova.cluster, fakes.uuid(1), fakes.PROJECT
        )
        self.assertIn('its cell is down', str(error))

    def test_server_of_another_project_in_the_group_is_no_member(self):
        other = {'id': fakes.uuid(2), 'tenant_id': 'p2', 'status': 'UNKNOWN'}
        for unlisted in ([], [other['id']]):
            client = _Client(
                [fakes.server(1, workload='parallel'), other], unlisted
            )
            nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
            members = nova.cluster(fakes.uuid(1), fakes.PROJECT).members
            self.assertEqual([fakes.uuid(1)], [one.uuid for one in members])

    def test_host_in_two_aggregates_is_at_the_switch_of_the_scheduler(self):
        servers = [fakes.server(1, workload='parallel')]
        servers[0]['OS-EXT-SRV-ATTR:host'] = 'cn-1'
        switches = set()
        for names in (('leaf-2', 'leaf-1'), ('leaf-1', 'leaf-2')):
            client = _Client(servers)
            client.aggregates = [
                {'hosts': ['cn-1'], 'metadata': {'vhpc:switch': name}}
                for name in names
            ]
            nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
            cluster = nova.cluster(fakes.uuid(1), fakes.PROJECT)
            switches.add(cluster.members[0].switch)
        self.assertEqual({fakes.IDS.switch('leaf-1')}, switches)

    def test_order_of_nics_is_read_of_all_members_that_run(self):
        """A member must not have another address while it migrates."""
        nic = {'OS-EXT-IPS:type': 'fixed'}
        key = 'OS-EXT-IPS-MAC:mac_addr'
        addresses = {
            'net1': [
                {**nic, 'addr': '10.0.0.1', key: 'a'},
                {**nic, 'addr': '10.0.0.3', key: 'c'},
            ],
            'net2': [{**nic, 'addr': '10.0.0.2', key: 'b'}],
        }
        statuses = ('ACTIVE', 'MIGRATING', 'VERIFY_RESIZE', 'SHUTOFF')
        servers = [
            fakes.server(number, workload='parallel')
            | {'status': status, 'addresses': addresses}
            for number, status in enumerate(statuses)
        ]
        client = _Client(servers)
        get = client.get

        def diagnosed(url, **kwargs):
            if not url.endswith('/diagnostics'):
                return get(url, **kwargs)
            nics = [{'mac_address': mac} for mac in 'abc']
            return SimpleNamespace(
                status_code=200, json=lambda: {'nic_details': nics}
            )

        client.get = diagnosed
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
        cluster = nova.cluster(fakes.uuid(0), fakes.PROJECT)
        found = {
            member.status: [nic.mac for nic in member.nics]
            for member in cluster.members
        }
        self.assertEqual(
            {
                'ACTIVE': ['a', 'b', 'c'],
                'MIGRATING': ['a', 'b', 'c'],
                'VERIFY_RESIZE': ['a', 'b', 'c'],
                'SHUTOFF': ['a', 'c', 'b'],
            },
            found,
        )

    def test_members_that_ask_at_the_same_time_share_one_read(self):
        """Also without a cache, as while the first of them is answered."""
        numbers = range(1, 9)
        client = _Client(
            [fakes.server(number, workload='parallel') for number in numbers]
        )
        client.group_may_answer.clear()
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=0)
        found = []

        def ask(number):
            cluster = nova.cluster(fakes.uuid(number), fakes.PROJECT)
            found.append(len(cluster.members))

        with test_shared_reads.waiting_threads() as waiting:
            threads = [
                threading.Thread(target=ask, args=(number,), daemon=True)
                for number in numbers
            ]
            for thread in threads:
                thread.start()
            for _ in numbers[1:]:
                self.assertTrue(waiting.acquire(timeout=60))
            client.group_may_answer.set()
            for thread in threads:
                thread.join(60)
        self.assertEqual([len(numbers)] * len(numbers), found)
        group = f'/os-server-groups/{fakes.GROUP}'
        self.assertEqual(1, client.asked.count(group))

    def test_member_that_the_shared_read_lacks_is_read_again(self):
        """The read may have begun before Nova had the member."""
        old, new = (fakes.server(n, workload='parallel') for n in (1, 2))
        client = _Client([old, new])
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=0)
        groups = iter([[old], [old, new]])
        get = client.get

        def changing(url, **kwargs):
            if url.startswith('/os-server-groups'):
                client._servers = {one['id']: one for one in next(groups)}
            return get(url, **kwargs)

        client.get = changing
        cluster = nova.cluster(new['id'], fakes.PROJECT)
        self.assertEqual(2, len(cluster.members))

    def test_what_is_no_json_is_nova_away(self):
        client = mock.Mock()
        client.get.return_value = requests.Response()
        client.get.return_value.status_code = 200
        client.get.return_value._content = b'<html>'
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
        error = self.assertRaises(
            RuntimeError, nova.cluster, fakes.uuid(1), fakes.PROJECT
        )
        self.assertIn('not with JSON', str(error))

    def test_credentials_that_cannot_be_used_are_nova_away(self):
        client = mock.Mock()
        # As keystoneauth says it.
        client.get.side_effect = Exception('password is a required attribute')
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
        error = self.assertRaises(
            RuntimeError, nova.cluster, fakes.uuid(1), fakes.PROJECT
        )
        self.assertIn('[vhpc_nova]', str(error))

    def test_one_answer_serves_members_of_two_flavors(self):
        """The first that asks must not decide what the others are told."""
        client = _Client(
            [
                fakes.server(1, network='separate', uplink_nic='0'),
                fakes.server(2, network='multiple-shared', paradigm='hybrid'),
            ]
        )
        nova = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
        told = {}
        for number in (1, 2):
            uuid = fakes.uuid(number)
            told[number] = answer.answer(
                nova.cluster(uuid, fakes.PROJECT), uuid
            )
        shown = f'/servers/{fakes.uuid(1)}'
        self.assertEqual(1, client.asked.count(shown), client.asked)
        self.assertNotIn(f'/servers/{fakes.uuid(2)}', client.asked)
        self.assertEqual('separate', told[1]['cluster']['network'])
        self.assertEqual('mpi', told[1]['cluster']['paradigm'])
        self.assertEqual({}, told[1]['mpi']['environment'])
        self.assertEqual('multiple-shared', told[2]['cluster']['network'])
        self.assertEqual('hybrid', told[2]['cluster']['paradigm'])
        self.assertEqual(
            {'OMP_NUM_THREADS': '8'}, told[2]['mpi']['environment']
        )
        cluster = nova.cluster(fakes.uuid(1), fakes.PROJECT)
        self.assertEqual(
            [0, None], [member.uplink_nic for member in cluster.members]
        )

    def test_answer_of_another_shape_is_an_error_of_nova(self):
        server = {'server': fakes.server(1, workload='parallel')}
        group = {'server_group': {'id': 'g', 'name': 'g', 'members': [1]}}
        for bodies in (
            *([body] for body in (None, [], 'x', 7, {}, {'server': None})),
            [{'server': {'tenant_id': fakes.PROJECT, 'flavor': 'x'}}],
            [server, {'server_group': []}],
            [server, group, {'aggregates': [None]}],
            [
                server,
                {'server_group': {**group['server_group'], 'id': []}},
                {'aggregates': []},
                {'servers': []},
            ],
            [server, group, {'aggregates': []}, {}],
        ):
            answers = iter(bodies)
            client = mock.Mock()
            client.get.side_effect = lambda *_, **__: mock.Mock(
                status_code=200,
                json=lambda: next(answers),  # noqa: B023
            )
            source = nova_api.NovaClusterSource(client, fakes.SECRET, ttl_s=60)
            error = self.assertRaises(
                RuntimeError, source.cluster, fakes.uuid(1), fakes.PROJECT
            )
            self.assertIn('cannot be read', str(error))
