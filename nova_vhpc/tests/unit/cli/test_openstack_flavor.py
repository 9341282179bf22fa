# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.tests.unit.cli import shell

SEPARATE = {
    'vhpc:network': 'separate',
    'resources_uplink:CUSTOM_VHPC_UPLINK': '1',
    'trait_uplink:CUSTOM_VHPC_BRIDGE_SEPARATE': 'required',
}


class FlavorTest(shell.ShellTestCase):
    def flavor(self, **specs):
        """Let the cloud have one flavor, named ``f``."""
        flavor = {'id': '1', 'name': 'f', 'vcpus': 2, 'ram': 1, 'disk': 0}
        self.cloud.answers |= {
            '/flavors/f': {'flavor': flavor},
            '/flavors/1/os-extra_specs': {'extra_specs': specs},
        }

    def written(self):
        """Return the requests that change something."""
        return [one for one in self.cloud.requests if one[0] != 'GET']

    def test_set_writes_the_recipe(self):
        self.flavor(other='x')
        answer = self.json('flavor', 'set', 'f', '--network', 'separate')
        self.assertEqual(SEPARATE, answer['set'])
        self.assertEqual({**SEPARATE, 'other': 'x'}, answer['after'])
        self.assertTrue(answer['written'])
        ((method, path, body),) = self.written()
        self.assertEqual(('POST', '/flavors/1/os-extra_specs'), (method, path))
        self.assertEqual({'extra_specs': SEPARATE}, body)

    def test_answer_of_a_proxy_is_one_line(self):
        self.cloud.answers['/flavors/f'] = []
        for argv in (('show', 'f'), ('set', 'f', '--workload', 'parallel')):
            status, out, err = self.run_('flavor', *argv)
            self.assertEqual((1, ''), (status, out))
            self.assertIn('is there a proxy', err.splitlines()[-1])
        self.assertEqual([], self.written())

    def test_dry_run_writes_nothing(self):
        self.flavor()
        for argv in (
            ('set', 'f', '--network', 'separate'),
            ('unset', 'f'),
        ):
            self.flavor(**{'vhpc:workload': 'parallel'})
            answer = self.json('flavor', *argv, '--dry-run')
            self.assertFalse(answer['written'])
            self.assertTrue(answer['set'] or answer['remove'])
        self.assertEqual([], self.written())

    def test_unset_removes_what_set_wrote(self):
        self.flavor(other='x', **SEPARATE)
        answer = self.json('flavor', 'unset', 'f')
        self.assertEqual(sorted(SEPARATE), sorted(answer['remove']))
        self.assertEqual({'other': 'x'}, answer['after'])
        self.assertEqual(
            {('DELETE', f'/flavors/1/os-extra_specs/{k}') for k in SEPARATE},
            {(method, path) for method, path, _ in self.written()},
        )

    def test_shared_connection_keeps_its_microversion(self):
        self.flavor()
        self.connection.compute.default_microversion = '2.61'
        self.json('flavor', 'set', 'f', '--workload', 'parallel')
        self.assertEqual('2.61', self.connection.compute.default_microversion)

    def test_contradiction_is_refused_in_one_line(self):
        self.flavor()
        status, out, err = self.run_(
            'flavor', 'set', 'f', '--network', 'exported'
        )
        self.assertEqual((1, ''), (status, out))
        self.assertIn('--alias NAME', err)
        self.assertNotIn('Traceback', err)
        self.assertEqual([], self.written())

    def test_show_exits_with_1_if_extra_specs_contradict(self):
        self.flavor(**SEPARATE)
        self.assertEqual([], self.json('flavor', 'show', 'f')['problems'])
        self.flavor(**{'vhpc:network': 'wrong'})
        status, out, _ = self.run_(
            'flavor', 'show', 'f', '-f', 'value', '-c', 'problems'
        )
        self.assertEqual(1, status)
        self.assertIn('vhpc:network', out)

    def test_unknown_flavor_is_named(self):
        self.cloud.answers['/flavors'] = {'flavors': []}
        self.cloud.answers['/flavors/detail'] = {'flavors': []}
        status, _, err = self.run_('flavor', 'show', 'nix')
        self.assertEqual(1, status)
        self.assertIn("no flavor 'nix'", err)

    def test_user_without_the_right_is_told_so(self):
        self.flavor()
        for refused in ('^POST .*os-extra_specs', '^GET .*os-extra_specs'):
            self.cloud.refused = [refused]
            status, out, err = self.run_(
                'flavor', 'set', 'f', '--workload', 'parallel'
            )
            self.assertEqual((1, ''), (status, out))
            self.assertIn('needs the role admin', err)
            self.assertNotIn('403', err)
