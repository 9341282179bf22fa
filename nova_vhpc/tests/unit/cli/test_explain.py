# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import contextlib
import io
import json
import re
import subprocess
import sys
import urllib.parse
from pathlib import Path

import fixtures

import nova_vhpc
from nova_vhpc.cli import explain
from nova_vhpc.explain import explain as scheduler_explain
from nova_vhpc.explain import member_ports, request_file
from nova_vhpc.explain.cloud import pci_devices, placement
from nova_vhpc.explain.request_file import Flavor
from nova_vhpc.flavor import recipes, request_groups
from nova_vhpc.scheduler.planner import cost
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources import cost_table_file
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.explain.test_explain import host, request, uplink


class CommandTest(base.TestCase):
    def run_(self, *argv):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = explain.main(list(argv))
            except SystemExit as stop:
                status = stop.code
        return status, out.getvalue(), err.getvalue()

    def text(self, *argv):
        """Return all that is printed."""
        _, out, err = self.run_(*argv)
        return out + err

    def write(self, document):
        folder = self.useFixture(fixtures.TempDir()).path
        path = Path(folder, 'request.json')
        path.write_text(
            document if isinstance(document, str) else json.dumps(document)
        )
        return str(path)

    def test_file_with_hosts_needs_no_cloud(self):
        path = self.write(request([host(1), host(2, uplinks=0)], members=2))
        status, out, err = self.run_(path)
        self.assertEqual(0, status)
        self.assertIn('c1', out)
        self.assertIn('no uplink at all', out.replace('\n', ' '))
        self.assertIn('Plan: 1 host(s)', err)

    def test_members_that_share_cpus_with_each_other_are_said(self):
        small = host(1, cpus=4, cpu_allocation_ratio=4.0)
        wanted = request([small], None, members=3)
        out = self.text(self.write(wanted))
        self.assertIn('up to 1.50 of the vCPUs of the cluster per CPU', out)
        large = host(2, cpus=8)
        out = self.text(self.write({**wanted, 'hosts': [small, large]}))
        self.assertNotIn('share CPUs', out)

    def test_rails_and_what_steers_are_shown_for_tunneled_members(self):
        def on(*rails):
            return [
                uplink(n, rail=f'10.{n}.0.0/24', used=int(n not in rails))
                for n in (1, 2)
            ]

        hosts = [host(1, uplinks=on(1, 2)), host(2, uplinks=on(2))]
        wanted = request(hosts, members=2, group={'policy': 'anti-affinity'})
        path = self.write(wanted)
        out = self.text(path, '--tunneled')
        self.assertEqual(
            2, out.count('NIC eth2 on bridge br2, rail 10.2.0.0/24')
        )
        self.assertIn('uplinks on 2 host(s) of the plan by the encap IP', out)
        self.assertNotIn('different rails', out)
        out = self.text(path)
        self.assertIn('No claim steers packets on 2 host(s)', out)
        self.assertIn('--tunneled', out)
        hosts[0] = host(1, uplinks=on(1))
        path = self.write(wanted)
        out = self.text(path, '--tunneled')
        self.assertIn('100% of the frames between hosts leave by', out)

    def test_moves_that_gain_are_shown_on_request(self):
        hosts = [host(1, switch='a'), host(2, switch='b'), host(3)]
        running = {'policy': 'anti-affinity', 'max_server_per_host': 4}
        document = request(hosts, members=1)
        document['group'] = {**running, 'existing': {'c1': 1, 'c2': 1}}
        path = self.write(document)
        out = self.text(path)
        self.assertNotIn('moves', out)
        out = self.text(path, '--move')
        self.assertIn('1 c2', out)
        _, out, _ = self.run_(path, '--move', '--json')
        now, better = json.loads(out)['moves']
        self.assertEqual((0, 'rack'), (now['moves'], now['tier']))
        self.assertEqual((1, 'host'), (better['moves'], better['tier']))
        self.assertLess(better['cost_us'], now['cost_us'])
        self.assertEqual(
            round(1 - better['cost_us'] / now['cost_us'], 2),
            round(better['gain'], 2),
        )
        self.assertEqual(
            better['leave'].keys() ^ better['join'].keys(), {'c1', 'c2'}
        )

    def test_moves_of_a_cluster_that_does_not_run_are_refused(self):
        status, _, err = self.run_(self.write(request([host(1)])), '--move')
        self.assertEqual(1, status)
        self.assertIn('no member of the server group runs', err)

    def test_name_that_the_terminal_cannot_show_is_escaped(self):
        path = self.write(request([host(1) | {'name': 'cö1'}], members=1))
        out = io.TextIOWrapper(io.BytesIO(), 'ascii')
        with contextlib.redirect_stdout(out):
            self.assertEqual(0, explain.main([path]))
        out.flush()
        self.assertIn(rb'c\xf61', out.buffer.getvalue())

    def test_json_is_printed(self):
        path = self.write(request([host(1)], members=2))
        status, out, _ = self.run_(path, '--json')
        self.assertEqual(0, status)
        self.assertEqual({'c1': 2}, json.loads(out)['plan']['assignments'])

    def test_arguments_override_the_file(self):
        path = self.write(request([host(1, uplinks=8)], members=2))
        _, out, _ = self.run_(path, '--members', '5', '--json')
        self.assertEqual(5, json.loads(out)['members'])

    def test_numbers_below_their_minimum_are_refused(self):
        path = self.write(request([host(1)]))
        for option, value, least in (
            ('--devices', '-1', 0),
            ('--members', '0', 1),
        ):
            status, _, err = self.run_(path, option, value)
            self.assertEqual(2, status)
            self.assertIn(f'{option}: {value} is less than {least}', err)

    def test_ports_are_those_of_the_arguments(self):
        bridge = {'device': 'br', 'physnet': 'hpc1', 'kbps': 1000, 'used': 0}
        document = request([host(1, neutron_uplinks=[bridge])], members=1)
        document['flavor']['extra_specs'] = {'vhpc:network': 'separate'}
        path = self.write(document)
        for argv, fits in (
            ([], False),
            (['--port', 'hpc1'], False),
            (['--port', 'hpc1:1000'], True),
            (['--port', 'hpc0', '--port', 'hpc1:1000'], True),
            (['--port', 'hpc1:999'], False),
        ):
            _, out, _ = self.run_(path, '--json', *argv)
            (found,) = json.loads(out)['hosts']
            self.assertIs(fits, found['reason'] is None, argv)

    def test_port_that_is_none_is_refused(self):
        path = self.write(request([host(1)]))
        for text in (':1000', 'hpc1:', 'hpc1:fast', 'hpc1:-1', 'hpc1:\u00b2'):
            status, _, err = self.run_(path, '--port', text)
            self.assertEqual(1, status)
            self.assertIn('is not PHYSNET or PHYSNET:KBPS', err)

    def test_configuration_that_is_no_text_is_an_error(self):
        path = self.write(request([host(1)]))
        conf = Path(path + '.conf')
        conf.write_bytes(b'[DEFAULT]\n# 50 \xb5s\n')
        status, _, err = self.run_(path, '--config-file', str(conf))
        self.assertEqual(1, status)
        self.assertIn(f'{conf}: not UTF-8 text', err)
        self.assertEqual(1, err.count('\n'))

    def test_cost_table_of_the_configuration_is_used(self):
        path = self.write(request([host(1)], members=2))
        table = Path(path + '.costs')
        conf = Path(path + '.conf')
        conf.write_text(f'[vhpc_scheduler]\ncost_table = {table}\n')
        status, _, err = self.run_(path, '--config-file', str(conf))
        self.assertEqual(1, status)
        self.assertIn(str(table), err)
        document = cost_table_file.document(cost.PAPER)
        document['local_mb_s'] = {
            row: [rate / 10 for rate in rates]
            for row, rates in document['local_mb_s'].items()
        }
        costs = []
        for _ in range(2):
            words = ('--config-file', str(conf)) if table.exists() else ()
            _, out, _ = self.run_(path, '--json', *words)
            costs.append(json.loads(out)['plan']['cost_us'])
            table.write_text(json.dumps(document))
        self.assertGreater(costs[1], costs[0])

    def test_directory_of_nova_scheduler_is_read(self):
        home = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.EnvironmentVariable('HOME', home))
        part = Path(home, '.nova', 'nova-scheduler.conf.d', '50-vhpc.conf')
        part.parent.mkdir(parents=True)
        part.write_text('[vhpc_scheduler]\nspare_cpus = many\n')
        nova_conf = Path(home, 'scheduler.conf')
        nova_conf.write_text('[DEFAULT]\n')
        path = self.write(request([host(1)]))
        status, _, err = self.run_(path, '--config-file', str(nova_conf))
        self.assertEqual(1, status)
        self.assertIn(str(part), err)

    def test_closed_pipe_is_no_error(self):
        path = self.write(request([host(n) for n in range(2000)]))
        for more in (['--json'], ['--limit', '0']):
            command = subprocess.Popen(
                [sys.executable, '-m', 'nova_vhpc.cli.explain', path, *more],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            command.stdout.readline()
            command.stdout.close()
            err = command.stderr.read()
            command.stderr.close()
            command.wait(60)
            self.assertNotIn(b'BrokenPipe', err)

    def test_exit_code_is_3_without_a_plan(self):
        path = self.write(request([host(1)], members=3))
        status, _, err = self.run_(path)
        self.assertEqual(3, status)
        self.assertIn('No plan: 3 members of 2 vCPUs', err)
        status, out, _ = self.run_(path, '--json')
        self.assertEqual(3, status)
        self.assertTrue(json.loads(out)['plan']['infeasible_reason'])

    def test_limit_shortens_the_table(self):
        path = self.write(request([host(n) for n in range(9)]))
        out = self.text(path, '--limit', '3')
        self.assertIn('6 more host(s)', out)
        out = self.text(path, '--limit', '0')
        self.assertNotIn('more host(s)', out)

    def test_errors_are_printed_in_one_line(self):
        for text in ('{', '[]', '{"flavor": 3}'):
            status, out, err = self.run_(self.write(text))
            self.assertEqual((1, ''), (status, out))
            self.assertEqual(1, len(err.splitlines()), err)
            self.assertTrue(err.startswith('nova-vhpc-explain: '))
        status, _, err = self.run_('/nowhere/request.json')
        self.assertEqual(1, status)
        self.assertIn('/nowhere/request.json', err)

    def test_file_that_is_no_text_is_an_error(self):
        path = self.write('{}')
        for content in (b'\xff\xfe', b'[' * 100000):
            Path(path).write_bytes(content)
            status, out, err = self.run_(path)
            self.assertEqual((1, ''), (status, out))
            self.assertEqual(1, len(err.splitlines()), err)
            self.assertIn(path, err)

    def test_numbers_that_json_does_not_have_are_an_error(self):
        text = json.dumps(request([host(1, free_ram_mb='RAM')]))
        for word in ('NaN', '1e999', '-Infinity'):
            path = self.write(text.replace('"RAM"', word))
            status, _, err = self.run_(path)
            self.assertEqual(1, status)
            self.assertIn('free_ram_mb', err)

    def test_number_of_thousands_of_digits_is_an_error(self):
        status, out, err = self.run_(self.write('{"members": ' + '9' * 5000))
        self.assertEqual((1, ''), (status, out))
        self.assertIn('not JSON', err)
        self.assertEqual(1, err.count('\n'))

    def test_bad_arguments_exit_with_2(self):
        for argv in ((), ('request.json', '--flavor', 'hpc')):
            status, _, err = self.run_(*argv)
            self.assertEqual(2, status)
            self.assertIn('either REQUEST.json or --flavor', err)


class DocumentationTest(base.TestCase):
    def test_documented_example_is_explained(self):
        page = Path(
            nova_vhpc.__file__, '../../doc/source/admin/explain.rst'
        ).resolve()
        text = page.read_text().partition('.. code-block:: json')[2]
        document, _ = json.JSONDecoder().raw_decode(text[text.index('{') :])
        found, hosts = request_file.read(document)
        answer = scheduler_explain.explain(found.question(hosts))
        self.assertEqual((), answer.flaws)
        self.assertIsNone(answer.hosts[0].reason)


class QueryTest(base.TestCase):
    """The question to Placement must be the one that Nova asks."""

    def nova_query(self, flavor, port_groups=()):
        from nova import objects
        from nova.pci import request
        from nova.scheduler import utils

        objects.register_all()
        nova_flavor = objects.Flavor(
            vcpus=flavor.vcpus,
            memory_mb=flavor.ram_mb,
            root_gb=flavor.disk_gb,
            ephemeral_gb=0,
            swap=0,
            extra_specs=dict(flavor.extra_specs),
        )
        spec = objects.RequestSpec(
            flavor=nova_flavor,
            image=objects.ImageMeta.from_dict({'properties': {}}),
            requested_resources=list(port_groups),
        )
        if 'pci_passthrough:alias' in flavor.extra_specs:
            spec.pci_requests = request.get_pci_requests_from_flavor(
                nova_flavor
            )
            spec.generate_request_groups_from_pci_requests()
        asked = utils.resources_from_request_spec(None, spec, None)
        query = dict(urllib.parse.parse_qsl(asked.to_querystring()))
        query.pop('limit', None)
        return query

    def check(self, **specs):
        flavor = Flavor(4, 2048, specs, disk_gb=10)
        ours = placement.query(flavor)
        self.assertEqual(
            {k: set(v.split(',')) for k, v in self.nova_query(flavor).items()},
            {
                k: set(v.split(','))
                for k, v in urllib.parse.parse_qsl(ours.partition('?')[2])
            },
        )

    def test_query_equals_that_of_nova_for_every_configuration(self):
        for network in request_groups.BRIDGE_TRAITS:
            if network != 'exported':
                recipe = recipes.recipe(
                    {'network': network}, physnet='physnet0'
                )
                self.check(**recipe)

    def test_query_equals_that_of_nova_for_devices_in_placement(self):
        self.pci_in_placement()
        known = pci_devices.aliases(self.ALIASES)
        for network in ('exported', 'shared', 'multiple-shared'):
            for policy in ({}, {'group_policy': 'isolate'}):
                specs = {
                    **request_groups.recipe(network),
                    'pci_passthrough:alias': 'vf:2, gpu:1',
                    **policy,
                }
                flavor = Flavor(4, 2048, specs, disk_gb=10)
                ours = placement.query(
                    flavor, devices=pci_devices.requested(None, specs, known)
                )
                self.assertEqual(
                    self.without_names(self.nova_query(flavor).items()),
                    self.without_names(
                        urllib.parse.parse_qsl(ours.partition('?')[2])
                    ),
                )

    def test_query_equals_that_of_nova_for_ports(self):
        from nova import objects

        objects.register_all()
        ports = [member_ports.Port('hpc0', 1000), member_ports.Port('hpc1', 5)]
        for network, given in (
            ('separate', ports[:1]),
            ('multiple-shared', ports),
        ):
            flavor = Flavor(4, 2048, {'vhpc:network': network}, disk_gb=10)
            requests = member_ports.requests(given)
            groups = [
                objects.RequestGroup.from_port_request(
                    None,
                    f'port-{number}',
                    {'resources': each.kbps, 'required': each.traits},
                )
                for number, each in enumerate(requests)
            ]
            ours = placement.query(flavor, port_requests=requests)
            nova = self.nova_query(flavor, groups)
            self.assertEqual(
                self.without_names(nova.items()),
                self.without_names(
                    (re.sub('_port', 'port-', key), value)
                    for key, value in urllib.parse.parse_qsl(
                        ours.partition('?')[2]
                    )
                ),
            )

    ALIASES = (
        '{"name": "vf", "vendor_id": "8086", "product_id": "154c",'
        ' "device_type": "type-VF"}',
        '{"name": "gpu", "resource_class": "custom_gpu",'
        ' "traits": "CUSTOM_FAST,CUSTOM_NEW"}',
    )

    def pci_in_placement(self):
        """Have Nova ask Placement for the devices of two aliases."""
        from nova import conf
        from nova.pci import request

        for name, value, group in (
            ('pci_in_placement', True, 'filter_scheduler'),
            ('alias', list(self.ALIASES), 'pci'),
        ):
            conf.CONF.set_override(name, value, group)
            self.addCleanup(conf.CONF.clear_override, name, group)
        request.get_alias_from_config.cache_clear()
        self.addCleanup(request.get_alias_from_config.cache_clear)

    @staticmethod
    def without_names(query):
        """Return the groups of a query, whatever those of devices are named.

        Nova names them by random UUIDs.
        """
        return sorted(
            (re.sub('(resources|required).*-.*', r'\1_device', key), value)
            for key, value in (
                (key, ','.join(sorted(value.split(','))))
                for key, value in query
            )
        )

    def test_query_equals_that_of_nova_for_other_extra_specs(self):
        self.check()
        self.check(**{'resources:CUSTOM_X': '2', 'trait:HW_Y': 'forbidden'})
        self.check(**{'resources:DISK_GB': '0'})
        self.check(
            **{'resources:MEMORY_MB': 'much', 'resources_b:CUSTOM_X': '0'}
        )
        self.check(**{'resources:CUSTOM_X': '-2', 'resources:CUSTOM_Y': ' 7 '})
        self.check(**{'group_policy': 'isolate'})
        self.check(**{'group_policy': 'odd'})
        self.check(**{'resources_x1:MEMORY_MB': '512'})
        self.check(**{'resources:VCPU': '3'})
        self.check(**{'resources:PCPU': '4'})
        self.check(**{'resources1:PCPU': '4'})

    def test_query_equals_that_of_nova_for_cpu_policies(self):
        dedicated = {'hw:cpu_policy': 'dedicated'}
        mixed = {'hw:cpu_policy': 'mixed'}
        isolate = {'hw:emulator_threads_policy': 'isolate'}
        realtime = {'hw:cpu_realtime': 'Yes'}
        for specs in (
            {'hw:cpu_policy': 'shared'},
            dedicated,
            {**dedicated, **isolate},
            {**dedicated, 'hw:cpu_thread_policy': 'isolate'},
            {**dedicated, 'hw:cpu_thread_policy': 'require'},
            {**dedicated, 'hw:cpu_thread_policy': 'prefer'},
            {**mixed, 'hw:cpu_dedicated_mask': '^0'},
            {**mixed, 'hw:cpu_dedicated_mask': '0-3,^1', **isolate},
            {**mixed, 'hw:cpu_dedicated_mask': ' 2 , 1,,'},
            {**mixed, **realtime, 'hw:cpu_realtime_mask': '^0-1'},
        ):
            self.check(**specs)
        self.check(**{'resources_a:VGPU': '1', 'group_policy': 'none'})


class OffersTest(base.TestCase):
    def test_members_are_limited_by_resources_beyond_cpus_and_ram(self):
        own = {
            'VCPU': {'capacity': 64, 'used': 4},
            'MEMORY_MB': {'capacity': 8192, 'used': 1024},
            'DISK_GB': {'capacity': 100, 'used': 41},
            'PCPU': {'capacity': 8, 'used': 3},
        }
        asked = {'VCPU': 1, 'MEMORY_MB': 1024, 'DISK_GB': 20, 'PCPU': 3}
        for without, pinned, vcpus, ram_mb, members in (
            ((), False, 1, 1024, 1),
            (('PCPU',), False, 1, 1024, 2),
            # As of a sharing provider. The plan counts the others itself,
            (('PCPU', 'DISK_GB'), False, 1, 1024, NO_LIMIT),
            # unless the flavor claims more of them than it has.
            (('PCPU', 'DISK_GB'), False, 1, 512, 7),
            (('DISK_GB', 'MEMORY_MB'), True, 3, 1024, 60),
            (('DISK_GB', 'MEMORY_MB', 'VCPU'), True, 3, 1024, NO_LIMIT),
        ):
            summary = {
                'root_provider_uuid': 'root',
                'resources': {k: own[k] for k in own if k not in without},
            }
            offers = placement.Offers(pinned)
            offers.add(
                {
                    'provider_summaries': {'root': summary},
                    'allocation_requests': [
                        {'allocations': {'root': {'resources': asked}}}
                    ],
                }
            )
            self.assertEqual(members, offers.members('root', vcpus, ram_mb))

    def test_emulator_threads_count_for_pinned_members(self):
        for specs, judged in (
            ({'hw:cpu_policy': 'dedicated'}, (5, True)),
            ({'resources:PCPU': '5'}, (5, True)),
            # Nova counts the shared ones of this; the other is dedicated.
            (
                {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0'},
                (1, False),
            ),
        ):
            specs['hw:emulator_threads_policy'] = 'isolate'
            self.assertEqual(judged, Flavor(4, 1, specs).checked_vcpus)
            specs['hw:emulator_threads_policy'] = 'share'
            judged = (4, True) if judged[1] else judged
            self.assertEqual(judged, Flavor(4, 1, specs).checked_vcpus)
