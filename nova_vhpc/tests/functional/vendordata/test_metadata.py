# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Vendordata of members, from a real Nova API and metadata service.

A guest's request takes the real way: Nova's metadata application finds the
server, and its dynamic vendordata driver asks the application of
``nova-vhpc-vendordata`` with a token, which keystonemiddleware checks; that
application reads Nova's API. Only Keystone, and Neutron, which knows the
guest's address, are fixtures.
"""

import copy
import hashlib
import hmac
import json
import pathlib
from typing import Any

import fixtures
import requests
from keystonemiddleware import fixture as ks_fixture
from nova.tests import fixtures as nova_fixtures

from nova_vhpc.cli import vendordata
from nova_vhpc.tests import served
from nova_vhpc.tests.functional.clusters import cloud
from nova_vhpc.tests.unit.cli import bus
from nova_vhpc.vendordata import live, model
from nova_vhpc.vendordata import nova as nova_api

SECRET = 'only neutron knows'
SWITCH = 'leaf-7'
STRANGER = '99999999999999999999999999999999'
TOKEN = 'token-of-nova'


class VendordataCase(cloud.CloudCase):
    """Members with two NICs: ``shared-separate`` on ``host1``, ``host2``."""

    def setUp(self) -> None:
        super().setUp()
        self.project = self.api_fixture.project_id
        self.flavor = self.make_flavor(
            workload='parallel', network='shared-separate', wait='passive'
        )
        body = {'name': 'weather', 'policy': 'soft-affinity'}
        self.group: str = self.admin_api.post_server_groups(body)['id']
        aggregate = self.admin_api.post_aggregate(
            {'aggregate': {'name': 's1'}}
        )['id']
        for host in self.computes:
            self.admin_api.add_host_to_aggregate(aggregate, host)
        self.admin_api.post_aggregate_action(
            aggregate,
            {'set_metadata': {'metadata': {'vhpc:switch': SWITCH}}},
        )

    def member(
        self, number: int, host: str, group: str | None, **hints: str
    ) -> str:
        """Boot a server with NICs 192.168.1.1xx and 192.168.1.2xx."""
        server = self._build_server(
            name=f'm{number}',
            flavor_id=self.flavor,
            networks=[
                {'port': self.port(number, nic)['id']} for nic in range(2)
            ],
            host=host,
        )
        request: dict[str, Any] = {'server': server}
        if group is not None:
            request['os:scheduler_hints'] = {'group': group, **hints}
        created = self.admin_api.post_server(request)
        uuid: str = self._wait_for_state_change(created, 'ACTIVE')['id']
        return uuid

    def port(self, number: int, nic: int) -> dict[str, Any]:
        port: dict[str, Any] = copy.deepcopy(self.neutron.port_1)
        port['id'] = f'{nic}0000000-0000-4000-8000-{number:012}'
        port['mac_address'] = f'fa:16:3e:00:{nic:02}:{number:02}'
        port['fixed_ips'][0]['ip_address'] = (
            f'192.168.1.{100 * (nic + 1) + number}'
        )
        self.neutron._ports[port['id']] = port
        return port

    def conf(self, strategy: str) -> Any:
        """Return the configuration of ``nova-vhpc-vendordata``.

        :param strategy: ``[vhpc_vendordata] auth_strategy``.
        """
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(
            '[DEFAULT]\ntransport_url = fake://\n'
            '[vhpc_nova]\n'
            'auth_type = none\n'
            f'endpoint_override = {self.endpoint}\n'
            '[vhpc_vendordata]\n'
            f'auth_strategy = {strategy}\n'
            'cache_seconds = 0\n'
            'id_secret = only the operator knows\n'
            'agent_timeout = 2\n'
            '[keystone_authtoken]\n'
            'www_authenticate_uri = http://127.0.0.1:9/identity\n'
            'auth_type = password\nauth_url = http://127.0.0.1:9/identity\n'
            'username = nova-vhpc\npassword = x\n'
        )
        return vendordata.load(['--config-file', str(file)])


class MetadataTest(VendordataCase):
    def setUp(self) -> None:
        super().setUp()
        tokens = self.useFixture(ks_fixture.AuthTokenFixture())
        tokens.add_token_data(
            token_id=TOKEN, project_id='service', role_list=['service']
        )
        url = self.useFixture(
            served.Served(vendordata.make(self.conf('keystone')))
        ).url
        self.flags(
            group='api',
            vendordata_providers=['StaticJSON', 'DynamicJSON'],
            vendordata_dynamic_targets=[f'vhpc@{url}'],
            vendordata_dynamic_read_timeout=60,
            metadata_cache_expiration=0,
        )
        self.flags(
            group='neutron',
            service_metadata_proxy=True,
            metadata_proxy_shared_secret=SECRET,
        )
        self.token(TOKEN, url)
        self.metadata = self.useFixture(
            nova_fixtures.OSMetadataServer()
        ).md_url

    def token(self, token: str, url: str) -> None:
        """Set ``[vendordata_dynamic_auth]`` of nova.conf."""
        from keystoneauth1 import loading
        from nova import conf, service_auth

        # Nova loads the credentials once per process.
        service_auth.reset_globals()
        self.addCleanup(service_auth.reset_globals)
        group = 'vendordata_dynamic_auth'
        self.flags(group=group, auth_type='admin_token')
        conf.CONF.register_opts(
            loading.get_auth_plugin_conf_options('admin_token'), group=group
        )
        self.flags(group=group, endpoint=url, token=token)

    def ask(self, server: str) -> Any:
        """Return what a guest reads through Neutron's metadata proxy."""
        signature = hmac.new(
            SECRET.encode(), server.encode(), hashlib.sha256
        ).hexdigest()
        response = requests.get(
            self.metadata.rstrip('/') + '/openstack/latest/vendor_data2.json',
            headers={
                'X-Instance-ID': server,
                'X-Tenant-ID': self.project,
                'X-Instance-ID-Signature': signature,
                'X-Forwarded-For': '192.168.1.101',
            },
            timeout=60,
        )
        self.assertEqual(200, response.status_code, response.text)
        return response.json()['vhpc']

    def test_members_get_cluster_ranks_hostfile_and_routes(self) -> None:
        members = [
            self.member(1, 'host1', self.group),
            self.member(2, 'host2', self.group),
            self.member(3, 'host1', self.group),
        ]
        ungrouped = self.member(4, 'host1', None)
        # No agent answers on host2.
        self.useFixture(bus.Bus()).agent(
            'host1',
            agent={'paused': False, 'overcommit': 1.5, 'period_us': 100_000},
            vms=[
                {
                    'uuid': uuid,
                    'delay_s': 2.0,
                    'sync_latency_us': 30_000.0,
                    'problem': f'{SWITCH} of host1',
                }
                for uuid in (*members, ungrouped)
            ],
        )
        answers = {member: self.ask(member) for member in members}
        first = answers[members[0]]
        self.assertEqual(self.group, first['cluster']['id'])
        self.assertEqual('shared-separate', first['cluster']['network'])
        self.assertTrue(first['cluster']['complete'])
        # All members get the same order, and so the same hostfile.
        for answer in answers.values():
            self.assertEqual(
                [m['id'] for m in first['members']],
                [m['id'] for m in answer['members']],
            )
            self.assertEqual(first['hostfile'], answer['hostfile'])
        self.assertEqual(
            {0, 1, 2}, {answer['rank'] for answer in answers.values()}
        )
        self.assertEqual(
            ['192.168.1.201', '192.168.1.202', '192.168.1.203'],
            sorted(
                line.split()[0]
                for line in first['hostfile']['openmpi'].splitlines()
            ),
        )
        distances = {m['id']: m['distance'] for m in first['members']}
        self.assertEqual(
            ['self', 'same-switch', 'same-host'],
            [distances[member] for member in members],
        )
        # The route leads over the shared bridge to the member on the same
        # host.
        (route,) = first['routes']
        self.assertEqual('192.168.1.203/32', route['destination'])
        self.assertEqual('192.168.1.103', route['via'])
        self.assertEqual([], answers[members[1]]['routes'])
        self.assertEqual({}, self.ask(ungrouped))
        # Places are told apart, and not named.
        places = {m['id']: m for m in first['members']}
        self.assertEqual(
            [True, False],
            [
                places[members[0]]['host'] == places[other]['host']
                for other in (members[2], members[1])
            ],
        )
        self.assertEqual(1, len({m['switch'] for m in first['members']}))
        self.assertRegex(first['members'][0]['switch'], '^switch-[0-9a-f]+$')
        text = json.dumps(answers)
        for name in (*self.computes, SWITCH):
            self.assertNotIn(name, text)
        lives = {m['id']: m['live'] for m in first['members']}
        self.assertEqual(2.0, lives[members[0]]['held_up_s'])
        self.assertTrue(lives[members[0]]['held_up_now'])
        self.assertEqual('passive', first['wait']['mode'])
        self.assertIn('VHPC_WAIT=passive', first['wait']['openmpi'])
        self.assertEqual(1.5, lives[members[2]]['overcommit'])
        self.assertEqual(live.FAILING, lives[members[2]]['problem'])
        self.assertIsNone(lives[members[1]])
        # With a token that Keystone does not know, the answer is empty.
        self.token('forged', 'http://127.0.0.1:9/')
        self.assertEqual({}, self.ask(members[0]))

    def test_only_members_that_run_are_in_the_hostfile(self) -> None:
        members = [
            self.member(n, 'host1', self.group, vhpc_members='5')
            for n in range(1, 5)
        ]
        found = self.ask(members[0])
        self.assertEqual(4, found['hostfile']['mpich'].count('\n'))
        # One is still to come.
        self.assertFalse(found['cluster']['complete'])
        self.assertEqual(5, found['cluster']['expected'])
        stopped, shelved, failed, last = members
        # At once, unlike the two others.
        self.admin_api.post_server_action(
            failed, {'os-resetState': {'state': 'error'}}
        )
        for server, action, state in (
            (stopped, {'os-stop': None}, 'SHUTOFF'),
            (shelved, {'shelve': None}, 'SHELVED_OFFLOADED'),
        ):
            self.admin_api.post_server_action(server, action)
            self._wait_for_state_change({'id': server}, state)
        found = self.ask(last)
        self.assertEqual('192.168.1.204:1\n', found['hostfile']['mpich'])
        self.assertFalse(found['cluster']['complete'])
        self.assertEqual(
            {
                stopped: 'SHUTOFF',
                shelved: 'SHELVED_OFFLOADED',
                failed: 'ERROR',
                last: 'ACTIVE',
            },
            {m['id']: m['status'] for m in found['members']},
        )


class NovaTest(VendordataCase):
    def nova(self) -> nova_api.NovaClusterSource:
        """Return the source that the service makes."""
        source = vendordata.make(self.conf('noauth'))._answers._source
        assert isinstance(source, nova_api.NovaClusterSource)
        return source

    def read(self, server: str, project: str) -> model.Cluster:
        """Return the virtual cluster of a server, as the service reads it."""
        source = self.nova()
        return source.cluster(source.group_of(server, project), project)

    def test_cluster_is_read_in_full_or_refused_with_a_reason(self) -> None:
        members = [self.member(n, 'host1', self.group) for n in range(1, 6)]
        # Nova's pages are shorter than the limit that a client asks for.
        self.flags(max_limit=2, group='api')
        self.assertEqual(
            members,
            [m.uuid for m in self.read(members[0], self.project).members],
        )
        for server, project, reason in (
            (members[0], STRANGER, 'not of this project'),
            (self.group, self.project, 'Nova has no'),
            (self.member(9, 'host2', None), self.project, 'no server group'),
        ):
            error = self.assertRaises(
                nova_api.NotMember, self.read, server, project
            )
            self.assertIn(reason, str(error))
        with nova_fixtures.DownCellFixture():
            self.assertRaises(
                RuntimeError, self.read, members[0], self.project
            )
        self.api_down = True
        self.assertRaises(RuntimeError, self.read, members[0], self.project)
        self.api_down = False
        self.admin_api.delete_server(members[0])
        self._wait_until_deleted({'id': members[0]})
        self.assertRaises(
            nova_api.NotMember, self.read, members[0], self.project
        )
        self.admin_api.delete_server_group(self.group)
        self.assertRaises(
            nova_api.NotMember, self.read, members[1], self.project
        )
