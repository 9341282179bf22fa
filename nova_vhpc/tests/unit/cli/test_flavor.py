# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import json
import types

from nova_vhpc.cli import flavor
from nova_vhpc.tests import base

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
