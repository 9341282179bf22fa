# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What is left alone; functional/cli/test_claim.py has what is mended."""

import copy
import json
import types
import urllib.parse

from nova_vhpc.clients import openstack
from nova_vhpc.explain import claim_audit
from nova_vhpc.flavor import recipes
from nova_vhpc.tests import base
from nova_vhpc.topology import model

HOSTS = ('one', 'two')
PAGE = 2
SPECS = recipes.recipe({'workload': 'parallel', 'network': 'separate'})


def uplink(host, number=1):
    return model.provider_uuid(host, f'br{number}', f'eth{number}')


class Cloud:
    """Nova, Placement and Neutron; each host has an uplink for one guest."""

    def __init__(self):
        self.compute = self.placement = self.network = self
        self.up = dict.fromkeys(HOSTS, True)
        self.servers = {}
        self.migrations = {}
        self.held = {}
        self.ports = []
        self.networks = {}
        self.kind = 'INSTANCE'
        self.refused = 0
        self.writes = []

    def boot(self, uuid, host, **values):
        self.servers[uuid] = {
            'id': uuid,
            'status': 'ACTIVE',
            'tenant_id': 'project',
            'user_id': 'user',
            'image': {'id': 'image'},
            'OS-EXT-SRV-ATTR:host': host,
            'OS-EXT-SRV-ATTR:hypervisor_hostname': host,
            'OS-EXT-STS:task_state': None,
            'flavor': {
                'vcpus': 1,
                'ram': 64,
                'disk': 1,
                'ephemeral': 0,
                'swap': 0,
                'extra_specs': SPECS,
            },
            **values,
        }

    def claim(self, consumer, host):
        self.held.setdefault(consumer, {})[uplink(host)] = {
            'resources': {model.UPLINK: 1}
        }

    def get(self, url, microversion=None):
        path, _, query = url.partition('?')
        query = dict(urllib.parse.parse_qsl(query))
        kind, _, rest = path.strip('/').partition('/')
        body = getattr(self, '_' + kind.replace('-', '_'))(rest, query)
        return types.SimpleNamespace(
            status_code=404 if body is None else 200,
            json=lambda: copy.deepcopy(body),
            text=json.dumps(body),
        )

    def put(self, url, json, microversion):
        self.writes.append(json)
        self.refused -= 1
        if self.refused >= 0:
            return types.SimpleNamespace(status_code=409, text='generation')
        self.held[url.rpartition('/')[2]] = json['allocations']
        return types.SimpleNamespace(status_code=204, text='')

    def _page(self, key, path, entries, query):
        """Return a page of a list, with a link to the next."""
        first = int(query.get('marker', 0))
        body = {key: entries[first : first + PAGE]}
        if first + PAGE < len(entries):
            link = f'http://nova/v2.1/{path}?marker={first + PAGE}'
            body[f'{key}_links'] = [{'rel': 'next', 'href': link}]
        return body

    def _servers(self, rest, query):
        if rest == 'detail':
            entries = list(self.servers.values())
            return self._page('servers', 'servers/detail', entries, query)
        if rest.endswith('/os-interface'):
            return {'interfaceAttachments': self.ports}
        server = self.servers.get(rest)
        return server and {'server': server}

    def _os_migrations(self, rest, query):
        entries = [
            {'id': uuid, 'uuid': uuid, **values}
            for uuid, values in self.migrations.items()
            if query.get('instance_uuid', values['instance_uuid'])
            == values['instance_uuid']
        ]
        return self._page('migrations', 'os-migrations', entries, query)

    def _os_hypervisors(self, rest, query):
        return {
            'hypervisors': [
                {
                    'id': f'root-{host}',
                    'service': {'host': host},
                    'hypervisor_hostname': host,
                    'state': 'up' if up else 'down',
                }
                for host, up in self.up.items()
            ]
        }

    def _allocations(self, consumer, query):
        held = self.held.get(consumer)
        return {
            'allocations': held or {},
            **(
                {
                    'consumer_generation': 1,
                    'consumer_type': self.kind,
                    'project_id': 'project',
                    'user_id': 'user',
                }
                if held
                else {}
            ),
        }

    def _resource_providers(self, rest, query):
        if not rest:
            return {
                'resource_providers': [
                    {
                        'uuid': uplink(host),
                        'name': f'{host}:vhpc:br1:eth1',
                    }
                    for host in HOSTS
                ]
            }
        uuid = rest.partition('/')[0]
        return {
            'allocations': {
                consumer: held[uuid]
                for consumer, held in self.held.items()
                if uuid in held
            }
        }

    def _allocation_candidates(self, rest, query):
        if f'{model.STAMP}:1' not in query['resources']:
            root = query['in_tree']
            uuid = uplink(root.removeprefix('root-'))
            free = not any(uuid in held for held in self.held.values())
            return {
                'allocation_requests': [
                    {
                        'allocations': {
                            root: {'resources': {'VCPU': 1}},
                            uuid: {'resources': {model.UPLINK: 1}},
                        },
                        'mappings': {},
                    }
                ]
                * free,
                'provider_summaries': {},
            }
        return {
            'provider_summaries': {
                uuid: {
                    'root_provider_uuid': f'root-{host}',
                    'resources': resources,
                    'traits': [model.TRAIT_SEPARATE],
                }
                for host in HOSTS
                for uuid, resources in (
                    (
                        model.marker_uuid(host),
                        {model.STAMP: {'capacity': 1, 'used': 0}},
                    ),
                    (
                        uplink(host),
                        {
                            model.UPLINK: {
                                'capacity': 1,
                                'used': sum(
                                    uplink(host) in held
                                    for held in self.held.values()
                                ),
                            },
                            model.MBPS: {'capacity': 1000, 'used': 0},
                        },
                    ),
                )
            }
        }

    def _ports(self, rest, query):
        return {'ports': self.ports}

    def _networks(self, rest, query):
        return {'network': self.networks[rest]}


class ClaimAuditTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.cloud = Cloud()
        self.audit = claim_audit.ClaimAudit(self.cloud)

    def assert_left(self, text):
        """Assert that the only finding is named, and nothing written."""
        (finding,) = self.audit.findings()
        self.assertIn(text, finding.problem + finding.remedy)
        self.assertIsNone(finding.allocations)
        self.audit.mend(finding.consumer)
        self.assertEqual([], self.cloud.writes)
        return finding

    def test_servers_with_their_claims_are_no_finding(self):
        for number, host in enumerate(HOSTS):
            self.cloud.boot(f'server{number}', host)
            self.cloud.claim(f'server{number}', host)
        plain = {**self.cloud.servers['server0']['flavor'], 'extra_specs': {}}
        self.cloud.boot('plain', 'one', flavor=plain)
        self.assertEqual([], self.audit.findings())

    def test_lost_claims_beyond_the_first_page_are_found(self):
        plain = {'extra_specs': {}}
        for number in range(4):
            self.cloud.boot(f'plain{number}', 'one', flavor=plain)
        self.cloud.boot('last', 'one')
        (finding,) = self.audit.findings()
        self.assertEqual('last', finding.consumer)
        self.assertIsNone(self.audit.mend('last'))
        (body,) = self.cloud.writes
        self.assertEqual(
            ('project', 'user', None),
            (
                body['project_id'],
                body['user_id'],
                body['consumer_generation'],
            ),
        )

    def test_server_in_a_cell_that_does_not_answer_keeps_its_claim(self):
        self.cloud.servers['dark'] = {'id': 'dark', 'status': 'UNKNOWN'}
        self.cloud.claim('dark', 'one')
        finding = self.assert_left('its cell does not answer')
        self.assertFalse(finding.judged)
        self.assertEqual(1, self.audit.unseen)

    def test_server_that_is_being_changed_is_left(self):
        for values, text in (
            ({'OS-EXT-STS:task_state': 'migrating'}, 'at work on it'),
            ({'status': 'VERIFY_RESIZE'}, 'its resize is finished'),
        ):
            with self.subTest(text):
                self.cloud.boot('server', 'one', **values)
                self.cloud.migrations = {
                    'old': self.migration('failed'),
                    'new': self.migration('finished'),
                }
                self.assert_left(text)
        self.cloud.migrations['new'] = self.migration('failed')
        self.cloud.boot('server', 'one')
        (finding,) = self.audit.findings()
        self.assertIn('Claim NIC eth1', finding.remedy)

    def migration(self, status):
        return {
            'instance_uuid': 'server',
            'status': status,
            'migration_type': 'resize',
        }

    def test_only_migrations_that_ended_well_are_orphans(self):
        for status, found in (
            ('migrating', None),
            ('finished', None),
            ('done', None),
            ('error', 'a migration that is error'),
            ('confirmed', 'no server and no migration holds'),
        ):
            with self.subTest(status):
                self.cloud.migrations = {
                    # The list has more than a page.
                    **{str(n): self.migration('error') for n in range(3)},
                    'move': self.migration(status),
                }
                self.cloud.claim('move', 'one')
                findings = self.audit.findings()
                self.assertEqual(bool(found), bool(findings))
                for finding in findings:
                    self.assertIn(found, finding.problem)
                    self.assertEqual(
                        status == 'confirmed', finding.allocations is not None
                    )

    def test_orphan_on_a_host_that_nova_does_not_tell_of_is_left(self):
        self.cloud.claim('orphan', 'two')
        for up in ({'one': True}, {'one': True, 'two': False}):
            self.cloud.up = up
            self.assert_left('is not up')

    def test_consumer_of_another_service_is_left(self):
        self.cloud.claim('orphan', 'two')
        self.cloud.kind = 'RESERVATION'
        self.assert_left('it is no server (RESERVATION)')

    def test_failed_server_without_a_host_is_left(self):
        self.cloud.boot('server', None, status='ERROR')
        self.cloud.claim('server', 'one')
        self.assert_left('it is on no host (ERROR)')

    def test_write_is_tried_again_if_the_consumer_has_changed(self):
        self.cloud.boot('server', 'one')
        self.audit.findings()
        self.cloud.refused = 2
        self.assertIsNone(self.audit.mend('server'))
        self.assertEqual(3, len(self.cloud.writes))
        self.cloud.held.clear()
        self.cloud.refused = 99
        self.assertIn('generation', self.audit.mend('server').remedy)

    def test_what_changed_before_the_write_is_not_written(self):
        self.cloud.claim('orphan', 'two')
        (finding,) = self.audit.findings()
        self.assertIsNotNone(finding.allocations)
        self.cloud.boot('orphan', 'two')
        self.assertIsNone(self.audit.mend('orphan'))
        self.assertEqual([], self.cloud.writes)

    def test_networks_of_the_server_decide_what_it_claims(self):
        self.cloud.boot('server', 'one')
        port = {'network_id': 'net', 'resource_request': None}
        self.cloud.ports = [port]
        tunneled = {'provider:network_type': 'geneve'}
        for network, claims in (
            (tunneled, True),
            ({'segments': [tunneled]}, True),
            ({}, False),
        ):
            with self.subTest(network):
                self.cloud.networks['net'] = network
                (finding,) = self.audit.findings()
                self.assertEqual(claims, finding.allocations is not None)
        self.cloud.networks['net'] = tunneled
        port['resource_request'] = {'resources': {}}
        self.assert_left('ports hold bandwidth')

    def test_what_only_nova_can_claim_is_left_to_a_migration(self):
        self.cloud.boot('server', 'one')
        specs = {**SPECS, 'accel:device_profile': 'gpu'}
        self.cloud.servers['server']['flavor']['extra_specs'] = specs
        self.assert_left('A cold migration, which stops the server')

    def test_refusal_of_placement_is_an_error(self):
        self.cloud.boot('server', 'one')
        self.audit.findings()
        self.cloud.put = lambda *_, **__: types.SimpleNamespace(
            status_code=403, text='policy'
        )
        self.assertRaisesRegex(
            openstack.CloudError, '403: policy', self.audit.mend, 'server'
        )
