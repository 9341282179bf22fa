# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import json
import pathlib

import fixtures

from nova_vhpc.cli import explain
from nova_vhpc.tests.unit.cli import test_cluster
from nova_vhpc.tests.unit.explain.test_explain import host, request

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


class ExplainTest(test_cluster.ClusterTestCase):
    def file(self, *hosts, **more):
        """Return a file with a request that needs no cloud."""
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).join('r'))
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
