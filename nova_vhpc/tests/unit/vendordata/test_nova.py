# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What one answer of Nova's serves; the functional tests ask a real Nova."""

from types import SimpleNamespace
from unittest import mock

import requests

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import nova as nova_api


class Client:
    """Nova's API with one server group.

    :param servers: the servers of the group.
    :param unlisted: UUIDs of those that lists lack.
    """

    def __init__(self, servers, unlisted=()):
        self.servers = {server['id']: server for server in servers}
        self._unlisted = unlisted
        self.aggregates = []
        self.asked = []

    def get(self, url, **kwargs):
        self.asked.append(url)
        if url.startswith('/servers/detail'):
            listed = [
                server
                for uuid, server in self.servers.items()
                if uuid not in self._unlisted and '&marker=' not in url
            ]
            body = {'servers': listed}
        elif url.startswith('/servers/'):
            body = {'server': self.servers.get(url.rpartition('/')[2])}
            if body['server'] is None:
                return SimpleNamespace(status_code=404, text='gone')
        elif url.startswith('/os-server-groups'):
            body = {
                'server_group': {
                    'id': fakes.GROUP,
                    'name': 'weather',
                    'members': [*self.servers, fakes.uuid(99)],
                    'project_id': fakes.PROJECT,
                }
            }
        else:
            body = {'aggregates': self.aggregates}
        return SimpleNamespace(status_code=200, json=lambda: body)


class NovaTest(base.TestCase):
    def test_other_servers_of_the_group_are_no_members(self):
        plain, hidden = fakes.server(2), fakes.server(3)
        del hidden['flavor']['extra_specs']
        client = Client([fakes.server(1, workload='parallel'), plain, hidden])
        nova = nova_api.NovaClusterSource(client, fakes.SECRET)
        members = fakes.read(nova, fakes.uuid(1)).members
        self.assertEqual(
            {fakes.uuid(1), fakes.uuid(3)}, {one.uuid for one in members}
        )
        self.assertRaises(nova_api.NotMember, fakes.read, nova, plain['id'])

    def test_list_ends_at_the_page_with_the_last_member(self):
        client = Client([fakes.server(1, workload='parallel')])
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
        nova = nova_api.NovaClusterSource(client, fakes.SECRET)
        fakes.read(nova, fakes.uuid(1))
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
        client = Client(
            [fakes.server(1, workload='parallel'), stub], unlisted=[stub['id']]
        )
        nova = nova_api.NovaClusterSource(client, fakes.SECRET)
        error = self.assertRaises(
            RuntimeError, fakes.read, nova, fakes.uuid(1)
        )
        self.assertIn('its cell is down', str(error))

    def test_server_of_another_project_in_the_group_is_no_member(self):
        other = {'id': fakes.uuid(2), 'tenant_id': 'p2', 'status': 'UNKNOWN'}
        for unlisted in ([], [other['id']]):
            client = Client(
                [fakes.server(1, workload='parallel'), other], unlisted
            )
            nova = nova_api.NovaClusterSource(client, fakes.SECRET)
            members = fakes.read(nova, fakes.uuid(1)).members
            self.assertEqual([fakes.uuid(1)], [one.uuid for one in members])

    def test_host_in_two_aggregates_is_at_the_switch_of_the_scheduler(self):
        servers = [fakes.server(1, workload='parallel')]
        servers[0]['OS-EXT-SRV-ATTR:host'] = 'cn-1'
        switches = set()
        for names in (('leaf-2', 'leaf-1'), ('leaf-1', 'leaf-2')):
            client = Client(servers)
            client.aggregates = [
                {'hosts': ['cn-1'], 'metadata': {'vhpc:switch': name}}
                for name in names
            ]
            nova = nova_api.NovaClusterSource(client, fakes.SECRET)
            cluster = fakes.read(nova, fakes.uuid(1))
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
        client = Client(servers)
        get = client.get

        def diagnosed(url, **kwargs):
            if not url.endswith('/diagnostics'):
                return get(url, **kwargs)
            nics = [{'mac_address': mac} for mac in 'abc']
            return SimpleNamespace(
                status_code=200, json=lambda: {'nic_details': nics}
            )

        client.get = diagnosed
        nova = nova_api.NovaClusterSource(client, fakes.SECRET)
        cluster = fakes.read(nova, fakes.uuid(0))
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

    def test_what_is_no_json_is_nova_away(self):
        client = mock.Mock()
        client.get.return_value = requests.Response()
        client.get.return_value.status_code = 200
        client.get.return_value._content = b'<html>'
        nova = nova_api.NovaClusterSource(client, fakes.SECRET)
        error = self.assertRaises(
            RuntimeError, fakes.read, nova, fakes.uuid(1)
        )
        self.assertIn('not with JSON', str(error))

    def test_credentials_that_cannot_be_used_are_nova_away(self):
        client = mock.Mock()
        # As keystoneauth says it.
        client.get.side_effect = Exception('password is a required attribute')
        nova = nova_api.NovaClusterSource(client, fakes.SECRET)
        error = self.assertRaises(
            RuntimeError, fakes.read, nova, fakes.uuid(1)
        )
        self.assertIn('[vhpc_nova]', str(error))

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
            source = nova_api.NovaClusterSource(client, fakes.SECRET)
            error = self.assertRaises(
                RuntimeError, fakes.read, source, fakes.uuid(1)
            )
            self.assertIn('cannot be read', str(error))
