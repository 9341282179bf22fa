# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import fixtures

import nova_vhpc
from nova_vhpc.cli import explain
from nova_vhpc.explain import explain as scheduler_explain
from nova_vhpc.explain import request_file
from nova_vhpc.scheduler.planner import cost_table
from nova_vhpc.scheduler.sources import cost_table_file
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.cli import test_cluster
from nova_vhpc.tests.unit.explain.test_explain import host, request, uplink

FLAVOR = {
    '/flavors/f': {
        'flavor': {
            'id': '1',
            'name': 'f',
            'vcpus': 2,
            'ram': 1,
            'disk': 0,
            'swap': '',
            'OS-FLV-EXT-DATA:ephemeral': 0,
        }
    },
    '/flavors/1/os-extra_specs': {'extra_specs': test_cluster.SPECS},
}


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
        document = cost_table_file.document(cost_table.PAPER)
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
            command.wait(240)
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


class ClientTest(test_cluster.ClusterTestCase):
    def file(self, *hosts, **more):
        """Return a file with a request that needs no cloud."""
        file = Path(self.useFixture(fixtures.TempDir()).join('r'))
        file.write_text(json.dumps(request(hosts, **more)))
        return str(file)

    def test_rows_are_hosts_and_the_plan_is_on_stderr(self):
        path = self.file(host(1), host(2, uplinks=0), members=2)
        status, out, err = self.run_('explain', path, '-f', 'json')
        self.assertEqual(0, status, err)
        first, second = json.loads(out)
        self.assertEqual(2, first['Plan'])
        self.assertTrue(first['Filter'].startswith('passes'))
        self.assertEqual(0, second['Plan'])
        self.assertIn('no uplink', second['Filter'])
        self.assertIn('Plan: 1 host(s)', err)

    def test_exit_code_without_a_plan_is_that_of_the_program(self):
        path = self.file(host(1, uplinks=0), members=2)
        status, out, err = self.run_('explain', path, '-f', 'json')
        self.assertEqual(explain.NO_PLAN, status)
        self.assertEqual(1, len(json.loads(out)))
        self.assertIn('No plan: ', err)

    def test_wrong_arguments_are_refused_in_one_line(self):
        for argv, word in (
            ((), '--flavor'),
            (('--flavor', 'f', '--members', '0'), '--members: 0'),
            (('--flavor', 'f', '--port', ':'), '--port'),
            (('nowhere.json',), 'nowhere.json'),
        ):
            status, out, err = self.run_('explain', *argv)
            self.assertEqual((1, ''), (status, out))
            self.assertIn(word, err)
            self.assertNotIn('Traceback', err)

    def test_tenant_is_refused_in_one_sentence(self):
        self.cloud.answers |= FLAVOR
        self.as_tenant()
        for more in ((), ('--group', 'g')):
            status, out, err = self.run_('explain', '--flavor', 'f', *more)
            self.assertEqual((1, ''), (status, out))
            self.assertIn('only an administrator may see', err)
            self.assertIn('openstack vhpc cluster list', err)
            self.assertNotIn('403', err)
        # Of its own group it is told what it may see.
        self.server('b', self.hosts[1], status='SHUTOFF')
        _status, _out, err = self.run_(
            'explain', '--flavor', 'f', '--group', 'g'
        )
        self.assertIn('Cluster g: 1 of 2 members run, on 2 host(s).', err)
        self.assertIn('1 of 2 members do not run: b (SHUTOFF)', err)
        for name in self.hosts:
            self.assertNotIn(name, err.replace(f'hash of {name}', ''))

    def test_program_refuses_a_tenant_in_the_same_sentence(self):
        self.as_tenant()
        self._answer()
        self.cloud.answers |= FLAVOR
        # By our own requests, and by those of openstacksdk.
        for more in ((), ('flavors',)):
            self.cloud.refused += more
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                status = explain.main(['--flavor', 'f'], self.connection)
            self.assertEqual(1, status)
            # Before it, Python may warn of old calls in openstacksdk.
            self.assertEqual(
                f'nova-vhpc-explain: {explain.REFUSED}',
                err.getvalue().splitlines()[-1],
            )


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
