# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import pathlib
import time
import uuid

import fixtures

from nova_vhpc.cli import agents, cluster_reader
from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.tests.unit.cli import bus, shell
from nova_vhpc.topology import model
from nova_vhpc_lab.bench.scheduler import world

SPECS = {
    'vhpc:network': 'separate',
    'vhpc:workload': 'parallel',
    'resources_uplink:CUSTOM_VHPC_UPLINK': '1',
    'trait_uplink:CUSTOM_VHPC_BRIDGE_SEPARATE': 'required',
}

TENANT = [
    'all_projects',
    'all_tenants',
    'os-hypervisors',
    'os-aggregates',
    'allocation',
    'resource_providers',
]
"""Requests that Nova's and Placement's policies refuse to a member."""


class ClusterTestCase(shell.ShellTestCase):
    """Two hosts under one switch; the group ``g`` with a member on each."""

    def setUp(self):
        super().setUp()
        # Agents of the machine that runs the tests are none of ours.
        self.useFixture(
            fixtures.MonkeyPatch(
                'oslo_config.cfg.find_config_files', lambda *_, **__: []
            )
        )
        self.hosts = [world.node_name(number) for number in range(2)]
        self.servers = {}
        self.groups = []
        self.bulk = world.bulk_body(2)
        self.publish(self.hosts)
        self.hypervisors = [
            {
                'id': world.root_uuid(host),
                'service': {'host': host},
                'state': 'up',
                'status': 'enabled',
                'vcpus': 16,
                'vcpus_used': 8,
            }
            for host in self.hosts
        ]
        self.metadata = {
            host: {'vhpc:switch': 'leaf1', 'vhpc:rack': 'r1'}
            for host in self.hosts
        }
        self.group('g', 'a', 'b')
        for name, host in zip('ab', self.hosts, strict=True):
            self.server(name, host)

    def publish(self, hosts, minutes_ago=0):
        """Let the agents of hosts have published some time ago."""
        now = model.stamp(time.time())
        for host in hosts:
            marker = self.bulk['provider_summaries'][model.marker_uuid(host)]
            marker['resources'][model.STAMP]['capacity'] = now - minutes_ago

    def group(self, name, *members):
        """Add a server group; ``id-NAME`` is its ID."""
        self.groups.append(
            {
                'id': f'id-{name}',
                'name': name,
                'policy': 'soft-affinity',
                'rules': {},
                'members': list(members),
                'project_id': 'p',
            }
        )

    def server(self, name, host, specs=SPECS, **more):
        """Add a server that has claimed the first uplink of its host."""
        self.servers[name] = {
            'id': name,
            'name': name,
            'tenant_id': 'p',
            'status': 'ACTIVE',
            'OS-EXT-STS:power_state': 1,
            'OS-EXT-SRV-ATTR:host': host,
            'hostId': f'hash of {host}',
            'flavor': {
                'original_name': 'hpc.4',
                'vcpus': 4,
                'extra_specs': specs,
            },
            **more,
        }
        uplink = world.uplink_uuids(host)[0] if host else 'none'
        self.claim(name, uplink)

    def claim(self, name, *uplinks):
        """Let a server have claimed uplinks."""
        root = {'resources': {'VCPU': 4}}
        self.cloud.answers[f'/allocations/{name}'] = {
            'allocations': {
                'root': root,
                **{uuid: {'resources': {model.UPLINK: 1}} for uuid in uplinks},
            }
        }

    def run_(self, *argv):
        self._answer()
        return super().run_(*argv)

    def _answer(self):
        servers = list(self.servers.values())
        if '^tenant' in self.cloud.refused:
            # Nova leaves the name of the host out.
            servers = [
                {k: v for k, v in one.items() if 'SRV-ATTR' not in k}
                for one in servers
            ]
        groups = {'server_groups': self.groups}
        bulk = f'/allocation_candidates?{snapshot.BULK_READ.split("?")[1]}'
        self.cloud.answers |= {
            '/os-server-groups?offset=0': groups,
            '/os-server-groups?all_projects=True&offset=0': groups,
            '/os-server-groups': {'server_groups': []},
            '/servers/detail': {'servers': servers},
            f'/servers/detail?marker={servers[-1]["id"]}': {'servers': []},
            f'/servers/detail?all_tenants=1&marker={servers[-1]["id"]}': {
                'servers': []
            },
            '/os-hypervisors/detail': {'hypervisors': self.hypervisors},
            '/os-aggregates': {
                'aggregates': [
                    {'name': host, 'hosts': [host], 'metadata': metadata}
                    for host, metadata in self.metadata.items()
                ]
            },
            bulk: self.bulk,
            '/resource_providers': {'resource_providers': world.names(2)},
            **{f'/servers/{one["id"]}': {'server': one} for one in servers},
        }

    def as_tenant(self):
        """Go on with the rights of a member of the project."""
        self.cloud.refused = [*TENANT, '^tenant']


class ListTest(ClusterTestCase):
    def test_members_hosts_and_tier_of_each_cluster(self):
        self.group('other', 'c')
        self.server('c', self.hosts[0], specs={'hw:cpu_policy': 'shared'})
        (cluster,) = self.json('cluster', 'list', '--long')
        self.assertEqual('id-g', cluster['ID'])
        self.assertEqual(
            (2, 2, 2),
            tuple(cluster[key] for key in ('Members', 'Running', 'Hosts')),
        )
        self.assertEqual('switch', cluster['Tier'])
        self.assertEqual('separate', cluster['Network'])
        self.assertEqual(8, cluster['vCPUs'])
        self.assertIn('nothing', cluster['Limited By'])

    def test_columns_can_be_chosen(self):
        status, out, _ = self.run_(
            'cluster', 'list', '-f', 'value', '-c', 'Name', '-c', 'Tier'
        )
        self.assertEqual((0, 'g switch\n'), (status, out))

    def test_missing_bus_is_said_on_stderr_only(self):
        status, out, err = self.run_('cluster', 'list', '-f', 'json')
        self.assertEqual(0, status)
        self.assertIn('Not shown: CPU time received', err)
        self.assertIn('--config-file', err)
        self.assertNotIn('Not shown', out)

    def test_named_configuration_without_a_bus_is_an_error(self):
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).join('conf'))
        file.write_text('[DEFAULT]\n')
        status, _, err = self.run_(
            'cluster', 'list', '--config-file', str(file)
        )
        self.assertEqual(1, status)
        self.assertIn('transport_url is not set', err)

    def test_tenant_sees_own_clusters_and_is_told_what_he_does_not(self):
        self.as_tenant()
        status, out, err = self.run_(
            'cluster', 'list', '-f', 'value', '-c', 'Name', '-c', 'Hosts'
        )
        self.assertEqual((0, 'g 2\n'), (status, out))
        self.assertIn(cluster_reader.HOSTS_UNSEEN, err)
        self.assertNotIn('403', err)
        self.assertFalse(
            [one for one in self.cloud.requests if 'alloc' in one[1]]
        )

    def test_all_projects_is_refused_to_a_tenant_in_one_sentence(self):
        self.as_tenant()
        status, out, err = self.run_('cluster', 'list', '--all-projects')
        self.assertEqual((1, ''), (status, out))
        self.assertIn('leave out --all-projects', err)
        self.assertNotIn('403', err)

    def test_administrator_lists_all_projects(self):
        (cluster,) = self.json('cluster', 'list', '--all-projects')
        self.assertEqual('g', cluster['Name'])
        paths = [path for _, path, _ in self.cloud.requests]
        self.assertIn('/servers/detail?all_tenants=1&', ' '.join(paths))

    def test_claims_are_read_of_members_that_request_uplinks_only(self):
        self.server('b', self.hosts[1], specs={'vhpc:workload': 'parallel'})
        self.json('cluster', 'list')
        paths = [path for _, path, _ in self.cloud.requests]
        self.assertIn('/allocations/a', paths)
        self.assertNotIn('/allocations/b', paths)

    def test_administrator_without_rights_in_placement(self):
        self.cloud.refused = ['/allocations/']
        status, out, err = self.run_('cluster', 'list', '-f', 'json')
        self.assertEqual(0, status)
        self.assertIn(cluster_reader.CLAIMS_UNSEEN, err)
        self.assertIn('"Tier": "switch"', out)

    def assertDamaged(self):
        """Check that commands report damage in one line."""
        for argv in (('list',), ('show', 'g')):
            status, out, err = self.run_('cluster', *argv)
            self.assertEqual((1, ''), (status, out))
            self.assertIn('cannot be read', err)
            self.assertNotIn('Traceback', err)

    def test_damaged_hosts_are_reported(self):
        self.hypervisors = [{}]
        self.assertDamaged()

    def test_damaged_claims_are_reported(self):
        self.cloud.answers['/allocations/b'] = {}
        self.assertDamaged()

    def test_damaged_flavor_is_reported(self):
        self.servers['b']['flavor'] = {'vcpus': '4'}
        self.assertDamaged()

    def test_project_without_a_cluster_is_said(self):
        for name in 'ab':
            self.server(name, self.hosts[0], specs={})
        for more, words in (
            ((), 'Your project has no virtual cluster'),
            (('--all-projects',), 'No server group'),
        ):
            status, out, err = self.run_(
                'cluster', 'list', '-f', 'json', *more
            )
            self.assertEqual((0, '[]'), (status, out.strip()))
            self.assertIn(words, err)

    def test_placement_without_agents_is_no_error(self):
        """Placement refuses names of resource classes that nobody created."""
        self.bulk = {'provider_summaries': {}}
        (cluster,) = self.json('cluster', 'list')
        self.assertIn('no agent has published', cluster['Limited By'])


class ShowTest(ClusterTestCase):
    def test_members_with_host_and_uplink(self):
        answer = self.json('cluster', 'show', 'id-g')
        self.assertEqual(
            [
                ('a', 'host00000', ['br0:eth0']),
                ('b', 'host00001', ['br0:eth0']),
            ],
            [(m['name'], m['host'], m['uplinks']) for m in answer['members']],
        )
        self.assertEqual(['leaf1'], answer['switches'])
        self.assertEqual('2 of 2', answer['running'])

    def test_table_has_a_member_on_each_line(self):
        status, out, _ = self.run_('cluster', 'show', 'g', '-c', 'members')
        self.assertEqual(0, status)
        first, second = [line for line in out.splitlines() if 'name ' in line]
        self.assertIn('name a, ', first)
        self.assertIn('host host00001, uplinks br0:eth0', second)

    def test_tenant_learns_no_host(self):
        self.as_tenant()
        status, out, _ = self.run_('cluster', 'show', 'g', '-f', 'json')
        self.assertEqual(0, status)
        for secret in (*self.hosts, 'leaf1', 'r1', 'br0', 'eth0'):
            self.assertNotIn(f'"{secret}', out)
        self.assertIn('Only an administrator', out)

    def test_id_wins_over_name(self):
        self.group('id-g', 'b')
        self.assertEqual('g', self.json('cluster', 'show', 'id-g')['name'])

    def test_ambiguous_name_is_refused(self):
        self.group('g', 'b')
        self.groups[-1]['id'] = 'second'
        status, _, err = self.run_('cluster', 'show', 'g')
        self.assertEqual(1, status)
        self.assertIn('id-g, second', err)

    def test_unknown_name_is_refused(self):
        status, _, err = self.run_('cluster', 'show', 'nix')
        self.assertEqual(1, status)
        self.assertIn("no server group 'nix'", err)

    def test_group_without_opted_in_servers_is_no_cluster(self):
        self.group('plain', 'c')
        self.server('c', self.hosts[0], specs={})
        status, _, err = self.run_('cluster', 'show', 'plain')
        self.assertEqual(1, status)
        self.assertIn('is no virtual cluster', err)

    def test_servers_of_a_cell_that_is_down_end_the_list(self):
        """Nova lists them first, and takes none for a marker."""
        for name in 'ab':
            self.servers[name] = {
                'id': name,
                'tenant_id': 'p',
                'status': 'UNKNOWN',
            }
            self.cloud.refused.append(f'marker={name}')
        for argv in (('list',), ('list', '--all-projects')):
            (cluster,) = self.json('cluster', *argv)
            self.assertEqual(2, cluster['Members'])
            unknown = ('Running', 'Hosts', 'Tier', 'CPU Received')
            self.assertEqual([None] * 4, [cluster[key] for key in unknown])
            self.assertIn('state of 2 members (a, b)', cluster['Limited By'])

    def test_tier_is_unknown_as_long_as_a_host_is(self):
        self.assertEqual('switch', self.json('cluster', 'show', 'g')['tier'])
        self.server('b', 'a host that no list has')
        self.assertIsNone(self.json('cluster', 'show', 'g')['tier'])
        self.servers['b'] = {
            'id': 'b',
            'tenant_id': 'p',
            'status': 'UNKNOWN',
        }
        self.assertIsNone(self.json('cluster', 'show', 'g')['tier'])

    def test_member_deleted_meanwhile_is_left_out(self):
        self.groups[0]['members'].append('gone')
        self.assertEqual(2, len(self.json('cluster', 'show', 'g')['members']))


class FindTest(ClusterTestCase):
    """Which cluster a name or an ID means."""

    UUID = '7f0aa4d2-2f4b-4a44-8d4b-2a9f6f0c9f10'

    def setUp(self):
        super().setUp()
        self.server('c', self.hosts[0], tenant_id='q')
        self.group('g', 'c')
        theirs = self.groups.pop()
        theirs |= {'id': self.UUID, 'name': 'theirs', 'project_id': 'q'}
        self.path = f'/os-server-groups/{self.UUID}'
        self.cloud.answers[self.path] = {'server_group': theirs}

    def test_administrator_finds_any_cluster_by_its_uuid(self):
        answer = self.json('cluster', 'show', self.UUID)
        self.assertEqual(
            ('theirs', 'q'), (answer['name'], answer['project_id'])
        )
        conf = pathlib.Path(self.useFixture(fixtures.TempDir()).join('conf'))
        conf.write_text(f'[vhpc_vendordata]\nid_secret = {"s" * 32}\n')
        status, _, err = self.run_(
            *('cluster', 'topology', self.UUID, '--format', 'slurm-conf'),
            *('--config-file', str(conf)),
        )
        self.assertEqual(0, status, err)

    def test_uuid_of_others_is_unknown_to_tenants(self):
        self.as_tenant()
        self.cloud.refused.append(self.path)
        status, out, err = self.run_('cluster', 'show', self.UUID)
        self.assertEqual((1, ''), (status, out))
        self.assertIn(f"no server group '{self.UUID}'", err)
        self.assertNotIn('403', err)

    def test_misspelt_names_are_answered_by_what_was_meant(self):
        self.group('weather', 'a')
        for argv, meant in (
            (('cluster', 'show', 'wether'), 'weather'),
            (('host', 'show', 'hosts00000'), 'host00000'),
        ):
            status, _, err = self.run_(*argv)
            self.assertEqual(1, status)
            self.assertIn(f'did you mean {meant}?', err)

    def test_misspelt_format_is_answered_by_what_was_meant(self):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertRaises(
                SystemExit,
                *(self.run_, 'cluster', 'topology', 'g'),
                *('--format', 'slurmconf'),
            )
        self.assertIn('did you mean slurm-conf?', err.getvalue())

    def test_unknown_values_are_empty_but_null_in_json(self):
        self.metadata = {}
        for form in ('table', 'value'):
            for argv in (('host', 'list'), ('cluster', 'show', 'g')):
                _, out, _ = self.run_(*argv, '-f', form)
                self.assertNotIn('None', out)
        first, _ = self.json('host', 'list')
        self.assertIsNone(first['Switch'])


class StatesTest(ClusterTestCase):
    """What agents say, as if there was a bus."""

    def states(self, **answers):
        return agents.member_states(answers)

    def test_received_and_latency_by_server(self):
        states, failures = self.states(
            h={
                'agent': {'paused': False},
                'vms': [
                    {'uuid': 'a', 'received': 0.8, 'sync_latency_us': 120},
                    {'uuid': 'b', 'problem': 'libvirt refuses'},
                ],
            }
        )
        self.assertEqual({}, failures)
        self.assertEqual(0.8, states['h', 'a'].received)
        self.assertEqual(120.0, states['h', 'a'].latency_us)
        self.assertIsNone(states['h', 'b'].received)
        self.assertEqual('libvirt refuses', states['h', 'b'].problem)

    def test_paused_agent_is_a_problem_of_its_servers(self):
        states, _ = self.states(
            h={'agent': {'paused': True}, 'vms': [{'uuid': 'a'}]}
        )
        self.assertIn('paused', states['h', 'a'].problem)

    def test_members_say_how_they_wait_and_what_spins_is_a_limit(self):
        agents_bus = self.useFixture(bus.Bus())
        host = uuid.uuid4().hex
        self.hypervisors.append(
            {**self.hypervisors[0], 'service': {'host': host}}
        )
        finding = 'never sleeps, runs together at most 30% of the time'
        waiting = {
            'a': {
                'state': 'held-up',
                'finding': finding,
                'remedy': 'let it wait',
            },
            'b': {
                'state': 'waits',
                'finding': 'waits',
                'remedy': 'needs no windows',
            },
        }
        for name in waiting:
            self.server(name, host)
            self.claim(name, 'none')
        agents_bus.agent(
            host,
            agent={'paused': False},
            vms=[
                {'uuid': name, 'waiting': one} for name, one in waiting.items()
            ],
        )
        answer = self.json('cluster', 'show', 'g', *agents_bus.options)
        self.assertEqual(
            [f'{finding}: let it wait', 'waits: needs no windows'],
            [member['waiting'] for member in answer['members']],
        )
        limit = answer['limited_by'].index(f'a {finding}')
        self.assertEqual('let it wait', answer['what_to_do'][limit])
        (row,) = self.json('cluster', 'list', *agents_bus.options)
        self.assertIn(finding, row['Limited By'])

    def test_agent_of_a_host_that_nova_names_counts(self):
        """Both have the server ``a``, as after an evacuation."""
        agents_bus = self.useFixture(bus.Bus())
        hosts = [f'{uuid.uuid4().hex}' for _ in range(2)]
        for host, name in zip(hosts, 'ab', strict=True):
            self.hypervisors.append(
                {**self.hypervisors[0], 'service': {'host': host}}
            )
            self.server(name, host)
            self.claim(name, 'none')
        for host, received in zip(hosts, (0.9, 0.1), strict=True):
            agents_bus.agent(
                host,
                agent={'paused': False},
                vms=[{'uuid': 'a', 'received': received}],
            )
        for received, members in ((0.9, (0.9, None)), (0.1, (0.1, None))):
            answer = self.json('cluster', 'show', 'g', *agents_bus.options)
            self.assertEqual(received, answer['cpu_received'])
            self.assertEqual(
                members,
                tuple(m.get('cpu_received') for m in answer['members']),
            )
            # The hosts are asked in the order of their names.
            for name, host in zip('ba', hosts, strict=True):
                self.server(name, host)
                self.claim(name, 'none')

    def test_unreadable_answer_is_said(self):
        for answer in ({}, None, [], {'agent': {'paused': 0}, 'vms': 3}):
            states, failures = self.states(h=answer)
            self.assertEqual({}, states)
            self.assertIn('host h', failures['h'])
