# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import json
import types

from nova_vhpc.cli import flavor
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.cli import shell

SEPARATE = {
    'vhpc:network': 'separate',
    'resources_uplink:CUSTOM_VHPC_UPLINK': '1',
    'trait_uplink:CUSTOM_VHPC_BRIDGE_SEPARATE': 'required',
}
EXPORTED = {'vhpc:network': 'exported', 'pci_passthrough:alias': 'nic:1'}


class Cloud:
    """A connection to a cloud with one flavor."""

    def __init__(self, specs, name='f'):
        self.compute = self
        self.flavor = types.SimpleNamespace(name=name, extra_specs=specs)

    def find_flavor(self, name, **_):
        return self.flavor

    def flavors(self, **_):
        return iter([self.flavor])


class FlavorTest(base.TestCase):
    def run_(self, specs, *argv):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = flavor.main(list(argv), Cloud(specs))
        return status, out.getvalue(), err.getvalue()

    def test_alias_without_devices_is_refused(self):
        for alias in ('nic:0', 'nic:x'):
            status, _, err = self.run_(
                {}, 'set', 'f', '--network', 'exported', '--alias', alias
            )
            self.assertEqual(1, status)
            self.assertIn(alias, err)

    def test_name_with_markup_is_printed_unchanged(self):
        cloud = Cloud({'vhpc:workload': 'parallel'}, 'a[/b]')
        for argv in (
            ['show', 'f'],
            ['set', 'f', '--workload', 'parallel'],
            ['set', 'f', '--workload', 'general', '--dry-run'],
        ):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                self.assertEqual(0, flavor.main(argv, cloud))
            self.assertIn('a[/b]', out.getvalue())

    def test_name_outside_the_encoding_is_escaped(self):
        cloud = Cloud({'vhpc:workload': 'parallel'}, 'größe')
        out = io.TextIOWrapper(io.BytesIO(), 'ascii')
        with contextlib.redirect_stdout(out):
            self.assertEqual(0, flavor.main(['show', 'f'], cloud))
        out.flush()
        self.assertIn(rb'gr\xf6\xdfe', out.buffer.getvalue())

    def test_check_finds_what_an_old_client_wrote(self):
        wrong = {'vhpc:wrokload': 'parallel'}
        for argv in (('--all',), ('f',)):
            status, out, _ = self.run_(wrong, 'check', *argv)
            self.assertEqual(1, status)
            self.assertIn('vhpc:wrokload', out)
            status, out, _ = self.run_(wrong, 'check', *argv, '--json')
            self.assertEqual(1, status)
            self.assertIn('vhpc:wrokload', json.loads(out)['problems']['f'][0])

    def test_check_passes_right_flavors_and_those_of_others(self):
        for specs in (
            {'vhpc:workload': 'parallel'},
            {'hw:cpu_policy': 'dedicated', 'group_policy': 'odd'},
        ):
            status, out, _ = self.run_(specs, 'check', '--all')
            self.assertEqual(0, status, out)

    def test_check_takes_flavors_or_all(self):
        for argv in ((), ('--all', 'f')):
            self.assertRaises(SystemExit, self.run_, {}, 'check', *argv)

    def test_alias_that_stays_is_reported(self):
        for argv in (
            ('set', 'f', '--network', 'shared', '--dry-run'),
            ('unset', 'f', '--dry-run'),
        ):
            status, out, _ = self.run_(EXPORTED, *argv)
            self.assertEqual(0, status)
            self.assertIn('nic:1 stays', out)
            _, out, _ = self.run_(EXPORTED, *argv, '--json')
            self.assertIn('nic:1 stays', json.loads(out)['advice'][-1])
        _, out, _ = self.run_(
            EXPORTED, 'unset', 'f', '--alias', 'nic', '--dry-run'
        )
        self.assertNotIn('stays', out)

    def set_(self, specs, *argv):
        """Return what a flavor would be, and the advice."""
        status, out, err = self.run_(
            specs, 'set', 'f', *argv, '--dry-run', '--json'
        )
        self.assertEqual((0, ''), (status, err))
        answer = json.loads(out)
        return answer['after'], answer['advice']

    def test_waiting_is_set_and_spinning_on_shared_cpus_gets_advice(self):
        for how, extra, advised in (
            ('passive', {}, False),
            ('active', {}, True),
            ('active', {'hw:cpu_policy': 'dedicated'}, False),
        ):
            after, advice = self.set_(extra, '--wait', how)
            self.assertEqual({**extra, 'vhpc:wait': how}, after)
            self.assertEqual(
                advised, any('vhpc:wait=active' in one for one in advice)
            )

    def test_wrong_waiting_is_refused_when_set_and_found_by_check(self):
        status, _, err = self.run_({}, 'set', 'f', '--wait', 'pasive')
        self.assertEqual(1, status)
        self.assertIn("vhpc:wait: 'pasive' is not one of", err)
        self.assertIn('did you mean passive?', err)
        status, out, _ = self.run_({'vhpc:wait': 'pasive'}, 'check', 'f')
        self.assertEqual(1, status)
        self.assertIn('vhpc:wait', out)

    def test_ports_are_set_with_the_recipe_for_tenants(self):
        after, advice = self.set_({}, '--network', 'separate', '--ports')
        self.assertEqual({'vhpc:network': 'separate'}, after)
        self.assertIn('openstack port create', advice[0])
        status, out, _ = self.run_(after, 'show', 'f')
        self.assertEqual(0, status)
        self.assertIn('vhpc:network=separate', out)

    def test_ports_stay_until_another_network_is_set(self):
        by_ports = {'vhpc:network': 'separate'}
        after, _ = self.set_(by_ports, '--spare-cpus', '1')
        self.assertEqual({**by_ports, 'vhpc:spare_cpus': '1'}, after)
        for argv in (
            ('--network', 'separate'),
            ('--physnet', 'hpc1'),
        ):
            after, _ = self.set_(by_ports, *argv)
            self.assertEqual('1', after['resources_uplink:CUSTOM_VHPC_UPLINK'])

    def test_physical_network_goes_when_ports_are_set(self):
        specs, _ = self.set_({}, '--network', 'shared', '--physnet', 'hpc1')
        self.assertIn('trait_uplink:CUSTOM_PHYSNET_HPC1', specs)
        after, _ = self.set_(specs, '--ports')
        self.assertEqual({'vhpc:network': 'shared'}, after)

    def test_ports_without_a_network_are_refused(self):
        status, _, err = self.run_(
            {}, 'set', 'f', '--workload', 'parallel', '--ports', '--dry-run'
        )
        self.assertEqual(1, status)
        self.assertIn('--ports', err)

    def test_show_prints_problems_and_advice(self):
        specs = {
            **EXPORTED,
            'vhpc:min_link_mbps': '100000',
            'vhpc:paradigm': 'openmp',
            'vhpc:max_overcommit': '2',
        }
        status, out, _ = self.run_(specs, 'show', 'f')
        self.assertEqual(1, status)
        self.assertRegex(out, r'problems +\| .*vhpc:min_link_mbps')
        self.assertIn('openmp programs', out)

    def test_wrong_value_is_refused_without_a_cloud(self):
        class Nobody:
            def __getattr__(self, name):
                raise AssertionError('the cloud was asked')

        for words, said in (
            (('--workload', 'parralel'), 'did you mean parallel?'),
            (('--members', '0'), 'vhpc:members'),
        ):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                status = flavor.main(['set', 'f', *words], Nobody())
            self.assertEqual(1, status)
            self.assertIn(said, err.getvalue())


class ClientTest(shell.ShellTestCase):
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
            self.assertIn('only an administrator may', err)
            self.assertNotIn('403', err)
