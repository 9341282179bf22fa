# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reads answers of a fake Nova; functional tests use a real one."""

import http
import json
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent.clusters import nova
from nova_vhpc.conf import nova_api
from nova_vhpc.tests import served
from nova_vhpc.tests.unit.agent.clusters import test_membership


class _Nova:
    """A Nova API with the given pages of servers and statuses of groups."""

    def __init__(self) -> None:
        self.queries: list[dict[str, str]] = []
        self.pages: dict[str | None, dict[str, Any]] = {}
        self.groups: dict[str, int] = {}
        self.servers: dict[str, Any] = {}
        self.members: list[str] = []

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        path = environ['PATH_INFO']
        status, body = 200, {}
        if path == '/servers/detail':
            query = dict(urllib.parse.parse_qsl(environ['QUERY_STRING']))
            self.queries.append(query)
            body = self.pages[query.get('marker')]
        elif path.startswith('/servers/'):
            body = self.servers.get(path.rpartition('/')[2], {})
            status = 200 if body else 404
        else:
            status = self.groups[path.rpartition('/')[2]]
            body = {'server_group': {'members': self.members}}
        start_response(
            f'{status} {http.HTTPStatus(status).phrase}',
            [('Content-Type', 'application/json')],
        )
        return [json.dumps(body).encode()]


class NovaServersTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.nova = _Nova()
        url = self.useFixture(served.Served(self.nova)).url
        self.conf = cfg.ConfigOpts()
        nova_api.register_opts(self.conf)
        self.conf([], project='nova-vhpc', default_config_files=[])
        self.conf.set_override('auth_type', 'none', 'vhpc_nova')
        self.conf.set_override('endpoint_override', url, 'vhpc_nova')
        self.servers = nova.NovaServers(self.conf, 'host1')

    def pages(self, *servers: dict[str, Any]) -> None:
        marker: str | None = None
        for server in servers:
            self.nova.pages[marker] = {
                'servers': [server],
                'servers_links': [{'rel': 'next', 'href': 'x'}],
            }
            marker = server['id']
        self.nova.pages[marker] = {'servers': []}

    def test_servers_on_all_pages_of_this_host_are_read(self) -> None:
        make = test_membership.server
        self.pages(
            make(id='a', scheduler_hints={'group': 'there'}),
            make(id='b', scheduler_hints={'group': 'gone'}),
            make(id='c', scheduler_hints={'group': 'secret'}),
            make(id='d', **{'OS-EXT-STS:task_state': 'migrating'}),
            make(id='not-ours', flavor={}),
            # Nova's stub for a server in a cell that is down.
            {'id': 'stub', 'status': 'UNKNOWN'},
        )
        self.nova.groups = {'there': 200, 'gone': 404, 'secret': 403}
        answer = self.servers.fetch()
        self.assertEqual({'a', 'b', 'c', 'd'}, answer.servers)
        self.assertEqual({'a': 'there', 'c': 'secret'}, answer.clusters)
        self.assertEqual({'d'}, answer.migrating)
        self.assertEqual({'a', 'b', 'c', 'd', 'not-ours'}, answer.listed)
        self.assertEqual(7, len(self.nova.queries))
        self.assertEqual(
            {'host1'}, {query['host'] for query in self.nova.queries}
        )

    def test_invalid_answer_raises_nova_error(self) -> None:
        self.nova.pages[None] = {'surprise': 1}
        error = self.assertRaises(nova.NovaError, self.servers.fetch)
        self.assertIn('the answer is invalid', str(error))

    def test_host_of_a_server(self) -> None:
        name = 'cn1.example.org'
        self.nova.servers = {
            'a': {'server': {'OS-EXT-SRV-ATTR:host': name}},
            'stub': {'server': {'status': 'UNKNOWN'}},
            'odd': [],
            'odder': {'server': 7},
        }
        self.assertEqual(name, self.servers.host_of('a'))
        for server in ('stub', 'odd', 'odder', 'unknown'):
            self.assertIsNone(self.servers.host_of(server))

    def test_hosts_of_the_members_of_a_group(self) -> None:
        self.nova.groups = {'g': 200, 'gone': 404}
        self.nova.members = ['a', 'shelved']
        self.nova.servers = {
            'a': {'server': {'OS-EXT-SRV-ATTR:host': 'cn1'}},
            'shelved': {'server': {'OS-EXT-SRV-ATTR:host': None}},
        }
        self.assertEqual(
            {'a': 'cn1', 'shelved': None}, self.servers.members_of('g')
        )
        error = self.assertRaises(
            nova.NovaError, self.servers.members_of, 'gone'
        )
        self.assertEqual('Nova has no server group gone', str(error))

    def test_member_that_was_deleted_meanwhile_is_left_out(self) -> None:
        self.nova.groups = {'g': 200}
        self.nova.members = ['a', 'deleted']
        self.nova.servers = {'a': {'server': {}}}
        self.assertEqual({'a': None}, self.servers.members_of('g'))

    def test_member_that_cannot_be_read_is_no_member_without_a_host(self):
        """The caller keeps what Nova said before."""
        self.nova.groups = {'g': 200}
        self.nova.members = ['a']
        self.nova.servers = {'a': {'server': 'x'}}
        self.assertRaises(nova.NovaError, self.servers.members_of, 'g')

    def test_hosts_of_a_cluster_that_metadata_name(self) -> None:
        named = {'vhpc:cluster': 'ocean'}
        host = {'OS-EXT-SRV-ATTR:host': 'cn1'}
        self.pages(
            {**test_membership.server(id='a', metadata=named), **host},
            test_membership.server(id='b', metadata=named),
            test_membership.server(
                id='c', metadata=named, scheduler_hints={'group': 'g'}
            ),
            test_membership.server(id='d'),
        )
        project = test_membership.server()['tenant_id']
        self.assertEqual(
            {'a': 'cn1', 'b': None},
            self.servers.members_of(f'{project}/ocean'),
        )
        self.assertEqual(project, self.nova.queries[0]['project_id'])

    def test_refused_login_names_the_credentials(self) -> None:
        self.pages(test_membership.server(scheduler_hints={'group': 'g'}))
        self.nova.groups = {'g': 401}
        error = self.assertRaises(nova.NovaError, self.servers.fetch)
        self.assertIn(
            'is auth_url of [vhpc_nova] the Keystone of that service?',
            str(error),
        )

    def test_invalid_auth_type_raises_nova_error(self) -> None:
        self.conf.set_override('auth_type', 'magic', 'vhpc_nova')
        error = self.assertRaises(nova.NovaError, self.servers.fetch)
        self.assertIn('magic', str(error))
