# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``nova-vhpc-explain`` predicts what a real Nova and Placement do."""

import collections
import contextlib
import io
import itertools
import json

import fixtures

from nova_vhpc.cli import explain as command
from nova_vhpc.flavor import recipes
from nova_vhpc.tests import long
from nova_vhpc.tests.functional import sdk
from nova_vhpc.tests.functional.scheduler import base, devices

COMBINATIONS = tuple(
    itertools.product(
        ('shared', 'multiple-shared'), ('none', 'isolate'), (1, 2, 4)
    )
)
"""Networks, group policies and numbers of devices."""

PAIRWISE = (
    *(('shared', 'none', 1), ('multiple-shared', 'isolate', 1)),
    *(('shared', 'isolate', 2), ('multiple-shared', 'none', 2)),
    *(('shared', 'none', 4), ('multiple-shared', 'isolate', 4)),
)
"""The half of them that has each pair of values."""


def exit_code(document):
    """Return the exit code that an answer must have."""
    feasible = document['plan']['infeasible_reason'] is None
    return 0 if feasible else command.NO_PLAN


class ExplainTest(base.SchedulerTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = sdk.connect(
            self.api_fixture, self.placement.fixture.endpoint
        )
        self.start_hosts('good1', 'good2', 'dead', 'bare', 'mute', 'off')
        for name in ('good1', 'good2', 'off'):
            self.publish(
                name,
                base.separate('br1', 'eth1'),
                base.separate('br2', 'eth2'),
            )
        self.publish('dead', base.separate('br1', 'eth1', up=False))
        self.publish('bare')
        service = self.api.api_get(
            '/os-services?binary=nova-compute&host=off'
        ).body['services'][0]
        self.api.put_service(
            service['id'], {'status': 'disabled', 'disabled_reason': 'new RAM'}
        )
        aggregate = self.api.post_aggregate({'aggregate': {'name': 'fabric'}})
        for name in ('good1', 'good2'):
            self.api.add_host_to_aggregate(aggregate['id'], name)
        self.api.post_aggregate_action(
            aggregate['id'],
            {'set_metadata': {'metadata': {'vhpc:switch': 'leaf7'}}},
        )
        self.flavor_id = self.flavor(base.SEPARATE)

    def run_(self, *argv):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command.main(
                ['--flavor', self.flavor_id, *argv], self.cloud
            )
        return status, out.getvalue(), err.getvalue()

    def explain(self, *argv):
        status, out, err = self.run_(*argv, '--json')
        self.assertEqual('', err)
        document = json.loads(out)
        self.assertEqual(exit_code(document), status)
        return document, {host['name']: host for host in document['hosts']}

    def test_members_are_placed_as_explained(self):
        document, hosts = self.explain('--members', '3')
        with self.subTest('each rejected host has its reason'):
            self.check_reasons(document, hosts)
        with self.subTest('an unknown group is an error'):
            status, _, err = self.run_('--group', 'nowhere')
            self.assertEqual(1, status)
            self.assertIn("no server group 'nowhere'", err)
        planned = {
            name: host['planned']
            for name, host in hosts.items()
            if host['planned']
        }
        self.assertEqual(3, sum(planned.values()))
        group = self.group('soft-affinity')
        servers = self.boot_cluster(self.flavor_id, 3, group)
        where = collections.Counter(self.hosts_of(servers))
        self.assertEqual(sorted(planned.values()), sorted(where.values()))
        self.assertLessEqual({*where}, {*planned})
        with self.subTest('running members are shown, one more is planned'):
            document, hosts = self.explain('--group', group)
            for name, running in where.items():
                self.assertEqual(running, hosts[name]['running'])
            plan = document['plan']
            self.assertEqual(1, sum(plan['assignments'].values()))
            # The group can be named, and the default output is a table.
            status, _, err = self.run_('--group', 'cluster')
            self.assertEqual(0, status)
            self.assertIn('Plan: 1 host(s)', err)
        self._create_server(flavor_id=self.flavor_id, networks='none')
        with self.subTest('claimed uplinks are the reason of hosts'):
            document, hosts = self.explain()
            self.assertIn('Placement', hosts['good1']['reason'])
            self.assertIn('1 of 1 slot(s) taken', hosts['good1']['reason'])
            self.assertIsNotNone(document['plan']['infeasible_reason'])

    def check_reasons(self, document, hosts):
        self.assertEqual([], document['flaws'])
        self.assertEqual(6, len(hosts))
        for name in ('good1', 'good2'):
            self.assertIsNone(hosts[name]['reason'])
            self.assertEqual(2, hosts[name]['slots'])
            self.assertEqual('leaf7', hosts[name]['switch'])
            self.assertEqual(1000, hosts[name]['link_mbps'])
        for name, words in (
            ('dead', 'the link of NIC eth1 on bridge br1 is down'),
            ('bare', 'no uplink at all'),
            ('mute', 'no agent has published'),
            ('off', 'its nova-compute is disabled: new RAM'),
        ):
            self.assertIn(words, hosts[name]['reason'])
            self.assertEqual(0, hosts[name]['planned'])
        self.assertEqual('switch', document['plan']['tier'])

    def test_weight_multipliers_change_the_plan_as_the_scheduler(self):
        """Multipliers of aggregates, and of the option."""
        low = self.api.post_aggregate({'aggregate': {'name': 'low'}})
        self.api.add_host_to_aggregate(low['id'], 'good1')
        self.api.post_aggregate_action(
            low['id'],
            {'set_metadata': {'metadata': {'vhpc_weight_multiplier': '-9'}}},
        )
        document, hosts = self.explain('--members', '2')
        self.assertEqual({'good2': 2}, document['plan']['assignments'])
        self.assertEqual(-9.0, hosts['good1']['multiplier'])
        _, out, _ = self.run_('--members', '2')
        self.assertIn('not planned: weight multiplier -9', out)
        conf_file = self.useFixture(fixtures.TempDir()).join('nova.conf')
        with open(conf_file, 'w') as file:
            file.write('[vhpc_scheduler]\nweight_multiplier = 0\n')
        document, _ = self.explain('--config-file', conf_file)
        self.assertEqual({}, document['plan']['assignments'])
        self.assertIn('multiplier', document['plan']['infeasible_reason'])
        _, out, _ = self.run_('--config-file', conf_file)
        self.assertIn('not planned: weight multiplier 0', out)
        servers = self.boot_cluster(self.flavor_id, 2)
        self.assertEqual(['good2'] * 2, self.hosts_of(servers))


class BeforeAnyAgentTest(base.SchedulerTestCase):
    def test_flavor_without_claims_is_planned_before_any_agent(self):
        cloud = sdk.connect(self.api_fixture, self.placement.fixture.endpoint)
        self.start_hosts('one')
        for specs, status in (
            ({'vhpc:workload': 'parallel'}, 0),
            (base.SEPARATE, 1),
        ):
            self.check(cloud, self.flavor(specs), status)

    def check(self, cloud, flavor_id, expected):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command.main(['--flavor', flavor_id, '--json'], cloud)
        self.assertEqual(expected, status)
        if expected:
            self.assertIn('no nova-vhpc-agent has published', err.getvalue())
        else:
            self.assertEqual(
                {'one': 1}, json.loads(out.getvalue())['plan']['assignments']
            )


class DevicesTest(base.SchedulerTestCase):
    """PCI devices, as far as nova-compute reports them to Placement."""

    compute_driver = 'fake.DeviceDriver'

    def setUp(self):
        self.useFixture(devices.Devices())
        super().setUp()
        alias = devices.alias('hpc-nic')
        self.flags(
            group='pci',
            device_spec=[devices.spec()],
            alias=[alias],
            report_in_placement=True,
        )
        self.flags(group='filter_scheduler', pci_in_placement=True)
        self.conf_file = self.useFixture(fixtures.TempDir()).join('nova.conf')
        with open(self.conf_file, 'w') as file:
            file.write(
                f'[pci]\nalias = {alias}\n'
                '[filter_scheduler]\npci_in_placement = True\n'
                'enabled_filters = ' + ','.join(self.enabled_filters)
            )
        self.cloud = sdk.connect(
            self.api_fixture, self.placement.fixture.endpoint
        )
        self.start_hosts('one1', 'some3')
        self.flags(group='pci', report_in_placement=False)
        self.start_hosts('mute2')
        self.flavor_id = self.flavor(
            recipes.recipe(
                {'workload': 'parallel', 'network': 'exported'},
                alias='hpc-nic:1',
            )
        )

    def explain(self, *argv):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = command.main(
                ['--flavor', self.flavor_id, '--json', *argv], self.cloud
            )
        document = json.loads(out.getvalue())
        self.assertEqual(exit_code(document), status)
        return document, {host['name']: host for host in document['hosts']}

    def test_devices_are_counted_where_placement_has_them(self):
        document, hosts = self.explain('--config-file', self.conf_file)
        self.assertEqual(
            {'one1': 1, 'some3': 3, 'mute2': None},
            {name: host['devices'] for name, host in hosts.items()},
        )
        self.assertEqual(3, hosts['some3']['slots'])
        self.assertIn('Placement offers no', hosts['mute2']['reason'])
        filters, note = document['notes']
        self.assertIn('(PciPassthroughFilter)', filters)
        self.assertIn('unknown for 1 of 3 host(s)', note)

        # A server takes a device. The flag is set for all hosts, which share
        # one configuration here.
        self.flags(group='pci', report_in_placement=True)
        server = self._create_server(
            flavor_id=self.flavor_id, networks='none', host='one1'
        )
        self.assertEqual('ACTIVE', server['status'])
        _, hosts = self.explain('--config-file', self.conf_file)
        self.assertEqual(0, hosts['one1']['devices'])
        self.assertIn(
            'uplinks or devices are missing', hosts['one1']['reason']
        )

        # Without the alias of nova.conf, devices are unknown everywhere.
        document, hosts = self.explain()
        self.assertIn('unknown for 3 of 3 host(s)', document['notes'][-1])
        self.assertIsNone(hosts['some3']['reason'])

    def test_server_boots_exactly_where_it_is_said_to_fit(self):
        for host in ('one1', 'some3'):
            self.publish(
                host, base.shared('br1', 'eth1'), base.shared('br2', 'eth2')
            )
        for network, policy, count in long.long(PAIRWISE, COMBINATIONS):
            with self.subTest(network, policy=policy, count=count):
                self.check(network, policy, count)

    def check(self, network, policy, count):
        """Explain a server with devices of one physical function; boot it."""
        recipe = recipes.recipe({'workload': 'parallel', 'network': network})
        self.flavor_id = self.flavor(
            {
                **recipe,
                'group_policy': policy,
                'pci_passthrough:alias': f'hpc-nic:{count}',
            }
        )
        found, hosts = self.explain('--config-file', self.conf_file)
        fits = [name for name in hosts if hosts[name]['reason'] is None]
        self.assertEqual(bool(fits), bool(found['plan']['assignments']))
        # All hosts share one configuration here.
        self.flags(group='pci', report_in_placement=True)
        (server,) = self.boot_cluster(
            self.flavor_id, 1, expected_state='ACTIVE' if fits else 'ERROR'
        )
        if fits:
            self.assertIn(server['OS-EXT-SRV-ATTR:host'], fits)
        self._delete_server(server)


class CandidateLimitTest(base.SchedulerTestCase):
    """Nova asks Placement for a few candidates only."""

    def setUp(self):
        super().setUp()
        self.cloud = sdk.connect(
            self.api_fixture, self.placement.fixture.endpoint
        )
        hosts = ('one', 'two', 'three')
        self.start_hosts(*hosts)
        for host in hosts:
            self.publish(host, base.separate('br1', 'eth1'))
        self.flags(group='scheduler', max_placement_results=2)
        self.conf_file = self.useFixture(fixtures.TempDir()).join('nova.conf')
        with open(self.conf_file, 'w') as file:
            file.write('[scheduler]\nmax_placement_results = 2\n')
        self.flavor_id = self.flavor(base.SEPARATE)

    def explain(self, *argv):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            command.main(
                [
                    *('--flavor', self.flavor_id, '--json', '--members', '3'),
                    *('--config-file', self.conf_file, *argv),
                ],
                self.cloud,
            )
        return json.loads(out.getvalue())

    def test_hosts_beyond_the_limit_are_not_said_to_fit(self):
        found = self.explain()
        self.assertEqual({}, found['plan']['assignments'])
        (rejected,) = (host for host in found['hosts'] if host['reason'])
        self.assertIn('max_placement_results', rejected['reason'])
        for server in self.boot_cluster(
            self.flavor_id, 3, expected_state='ERROR'
        ):
            self._delete_server(server)
        with self.subTest('members of a server group have no limit'):
            group = self.group()
            found = self.explain('--group', group)
            self.assertEqual(3, len(found['plan']['assignments']))
            self.boot_cluster(self.flavor_id, 3, group)
