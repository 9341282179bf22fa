# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reads answers of a fake Nova; functional tests use a real one."""

import contextlib
import http
import json
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

import hypothesis
from hypothesis import strategies as st
from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent.clusters import nova
from nova_vhpc.conf import nova_api
from nova_vhpc.tests import served

OURS = {'vhpc:workload': 'parallel'}


def server(**fields: Any) -> dict[str, Any]:
    return {
        'id': 's',
        'tenant_id': 'p',
        'flavor': {'extra_specs': OURS},
        **fields,
    }


class ReadServerTest(base.BaseTestCase):
    def test_server_group_is_the_cluster(self) -> None:
        for hint in ('g', ['g']):
            read = nova.read_server(server(scheduler_hints={'group': hint}))
            self.assertEqual('g', read.group)

    def test_server_without_vhpc_specs_is_not_read(self) -> None:
        self.assertIsNone(
            nova.read_server(
                server(flavor={'extra_specs': {'hw:cpu_policy': 'shared'}})
            )
        )

    def test_partial_answer_of_a_down_cell_is_not_read(self) -> None:
        self.assertIsNone(nova.read_server({'id': 's', 'status': 'UNKNOWN'}))

    def test_metadata_overrides_the_flavor(self) -> None:
        flavor = {'extra_specs': OURS | {'vhpc:cluster': 'f'}}
        read = nova.read_server(
            server(flavor=flavor, metadata={'vhpc:cluster': 'm'})
        )
        self.assertEqual('p/m', read.named)

    def test_invalid_name_names_no_cluster(self) -> None:
        read = nova.read_server(server(metadata={'vhpc:cluster': 'a b/c'}))
        self.assertIsNone(read.named)
        for hint in ('\ud800', 'x' * 513, 'g\nforged log line', 7):
            read = nova.read_server(server(scheduler_hints={'group': hint}))
            self.assertIsNone(read.group)

    def test_tenants_cannot_join_each_other(self) -> None:
        names = {
            nova.read_server(
                server(tenant_id=tenant, metadata={'vhpc:cluster': 'x'})
            ).named
            for tenant in ('p', 'q')
        }
        self.assertEqual(2, len(names))

    def test_group_overrides_names_until_it_is_deleted(self) -> None:
        read = nova.Membership('s', group='g', named='p/n')
        self.assertEqual({'s': 'g'}, nova.clusters([read], frozenset()))
        self.assertEqual({'s': 'p/n'}, nova.clusters([read], frozenset('g')))

    @hypothesis.given(
        st.dictionaries(
            st.sampled_from(['scheduler_hints', 'metadata', 'flavor']),
            st.none()
            | st.dictionaries(
                st.sampled_from(['group', 'vhpc:cluster', 'extra_specs']),
                st.none() | st.just(OURS) | st.lists(st.text(), max_size=2),
            ),
        )
    )
    def test_invalid_answers_raise_expected_errors(
        self, fields: dict[str, Any]
    ) -> None:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            nova.read_server(server(**fields))


def reason(
    count: int, running: int, host: str | None, was_listed: bool = False
) -> str:
    servers = frozenset(f's{number}' for number in range(count))
    return nova.unlisted_reason(
        'cn1', servers, running, was_listed, lambda server: host
    )


class UnlistedTest(base.BaseTestCase):
    def test_listed_before_means_a_cell(self) -> None:
        self.assertIn('cell', reason(2, 3, None, was_listed=True))

    def test_none_listed_means_another_name(self) -> None:
        self.assertIn('set [vhpc_agent]host', reason(2, 2, 'cn1.local'))
        self.assertIn('is [vhpc_agent]host what', reason(2, 2, None))

    def test_some_listed_means_moved_servers(self) -> None:
        text = reason(1, 2, 'cn2')
        self.assertIn('1 of 2', text)
        self.assertIn('it has s0 on cn2', text)

    def test_same_host_is_not_proposed(self) -> None:
        self.assertNotIn('set [vhpc_agent]host', reason(1, 1, 'cn1'))


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
        make = server
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
        self.assertEqual(
            dict.fromkeys(('there', 'gone', 'secret'), 'p'), answer.projects
        )
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
            {**server(id='a', metadata=named), **host},
            server(id='b', metadata=named),
            server(id='c', metadata=named, scheduler_hints={'group': 'g'}),
            server(id='d'),
        )
        project = server()['tenant_id']
        self.assertEqual(
            {'a': 'cn1', 'b': None},
            self.servers.members_of(f'{project}/ocean'),
        )
        self.assertEqual(project, self.nova.queries[0]['project_id'])

    def test_refused_login_names_the_credentials(self) -> None:
        self.pages(server(scheduler_hints={'group': 'g'}))
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
