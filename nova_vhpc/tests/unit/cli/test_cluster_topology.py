# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import pathlib

import fixtures

from nova_vhpc.tests import osc_shell
from nova_vhpc.tests.unit.cli import test_cluster
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import nova_server, opaque_ids

SECRET = 'only the operator knows'
HOST_ID = '0123456789abcdef' * 3


class TopologyTest(test_cluster.ClusterTestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.conf = self.path / 'nova-vhpc.conf'
        self.conf.write_text(f'[vhpc_vendordata]\nid_secret = {SECRET}\n')

    def topology(self, *argv, form='slurm-conf'):
        return self.run_('cluster', 'topology', '--format', form, *argv)

    def test_ids_are_those_that_members_get(self):
        status, out, err = self.topology('g', '--config-file', str(self.conf))
        self.assertEqual(0, status, err)
        ids = opaque_ids.OpaqueIds('p', SECRET.encode())
        member = nova_server.member_of(
            self.servers['a'] | {'id': fakes.uuid(1)},
            ids,
            {self.hosts[0]: ('leaf1', 'r1')},
        )
        self.assertEqual(
            f'SwitchName={member.switch} Nodes=a,b\n'
            f'SwitchName={member.rack} Switches={member.switch}\n',
            out,
        )

    def test_nodes_have_the_names_of_the_guests(self):
        """Also after ``openstack server set --name``."""
        self.servers['a'] |= {
            'name': 'renamed',
            'OS-EXT-SRV-ATTR:hostname': 'node-a',
        }
        for argv in (
            ('g', '--config-file', str(self.conf)),
            ('--vendor-data', self.vendor_data('node-a')),
        ):
            status, out, err = self.topology(*argv)
            self.assertEqual(0, status, err)
            self.assertIn('node-a', out)
            self.assertNotIn('renamed', out)

    def vendor_data(self, hostname):
        """Return the path of what a member reads."""
        member = dataclasses.replace(
            fakes.member(1, fakes.IDS.host('h1')),
            name='renamed',
            hostname=hostname,
        )
        found = fakes.answered(fakes.cluster([member]), member.uuid)
        path = self.path / 'vendor_data2.json'
        path.write_text(json.dumps({'vhpc': found}))
        return str(path)

    def test_servers_of_other_projects_are_no_nodes(self):
        """As in what members read."""
        self.group('shared', 'a', 'b')
        self.servers['b']['tenant_id'] = 'p2'
        status, out, err = self.topology(
            'shared', '--config-file', str(self.conf)
        )
        self.assertEqual(0, status, err)
        self.assertIn('Nodes=a\n', out)

    def test_nothing_of_the_operator_is_printed(self):
        for form in ('slurm-yaml', 'topograph', 'kubernetes'):
            status, out, _err = self.topology(
                'g', '--config-file', str(self.conf), form=form
            )
            self.assertEqual(0, status)
            for name in (*self.hosts, 'leaf1', 'r1'):
                self.assertNotIn(f'{name}\n', out.replace('"', '\n'))
                self.assertNotIn(f'={name} ', out)

    def test_several_clusters_make_one_topology(self):
        self.group('other', 'c')
        self.server('c', self.hosts[0])
        _status, out, _err = self.topology(
            'g', 'other', 'g', '--config-file', str(self.conf)
        )
        self.assertIn(' Nodes=a,b,c\n', out)

    def test_nodes_that_are_no_servers_yet_are_in_the_topology(self):
        _status, out, _err = self.topology(
            'g', '--config-file', str(self.conf), '--nodes', 'a,b,c,d'
        )
        self.assertIn('SwitchName=unplaced Nodes=c,d\n', out)
        self.assertRegex(out, 'SwitchName=vhpc Switches=rack-[^,]*,unplaced\n')

    def test_nodes_that_no_scheduler_can_have_name_the_option(self):
        status, out, err = self.topology(
            'g', '--config-file', str(self.conf), '--nodes', 'n[1-8]'
        )
        self.assertEqual((1, ''), (status, out))
        self.assertIn('--nodes', err.splitlines()[-1])

    def test_without_the_secret_nothing_is_printed(self):
        file = self.path / 'id_secret'
        self.conf.write_text(f'[vhpc_vendordata]\nid_secret_file = {file}\n')
        argv = ('g', '--config-file', str(self.conf))
        status, out, err = self.topology(*argv)
        self.assertEqual((1, ''), (status, out))
        self.assertIn('[vhpc_vendordata]id_secret', err.splitlines()[-1])
        # It is made by the service alone.
        self.assertFalse(file.exists())
        file.write_text(SECRET)
        file.chmod(0o600)
        self.assertEqual(0, self.topology(*argv)[0])

    def test_short_secret_is_refused(self):
        self.conf.write_text('[vhpc_vendordata]\nid_secret = short\n')
        status, _out, err = self.topology('g', '--config-file', str(self.conf))
        self.assertEqual(1, status)
        self.assertIn('fewer than 16', err)

    def test_tenant_gets_hosts_and_a_sentence_about_switches(self):
        self.as_tenant()
        for name in 'ab':
            self.servers[name]['hostId'] = HOST_ID
        status, out, err = self.topology('g')
        self.assertEqual(0, status)
        self.assertEqual('SwitchName=host-0123456789abcdef Nodes=a,b\n', out)
        self.assertIn('--vendor-data', err)
        self.assertNotIn('403', err)

    def test_vendordata_of_a_member_needs_no_login(self):
        ids = fakes.IDS
        cluster = fakes.cluster(
            [
                fakes.member(1, ids.host('h1'), ids.switch('s1')),
                fakes.member(2, ids.host('h2'), ids.switch('s2')),
            ]
        )
        file = self.path / 'vendor_data2.json'
        found = fakes.answered(cluster, fakes.uuid(1))
        file.write_text(json.dumps({'vhpc': found}))
        argv = ('cluster', 'topology', '--format', 'slurm-conf')
        status, out, err = osc_shell.run(
            None, *argv, '--vendor-data', str(file)
        )
        self.assertEqual(0, status, err)
        self.assertIn(f'SwitchName={ids.switch("s2")} Nodes=member-2\n', out)
        status, out, err = osc_shell.run(None, *argv, 'g')
        self.assertEqual((1, ''), (status, out))
        self.assertIn('no login', err)

    def test_file_that_is_no_vendordata_is_refused_in_one_line(self):
        file = self.path / 'vendor_data2.json'
        place = {'name': 'n', 'host': 'h\nSwitchName=x'}
        for value in (
            [],
            {},
            {'vhpc': {}},
            {'vhpc': {'members': [{}]}},
            {'vhpc': {'members': [place | {'switch': None, 'rack': None}]}},
        ):
            file.write_text(json.dumps(value))
            status, out, err = self.topology('--vendor-data', str(file))
            self.assertEqual((1, ''), (status, out))
            self.assertIn('no vendordata', err.splitlines()[-1])
            self.assertIn('no vendordata', err)
        file.write_text('[' * 100_000)
        status, _out, err = self.topology('--vendor-data', str(file))
        self.assertEqual(1, status)
        self.assertIn('no vendordata', err.splitlines()[-1])
        status, _out, err = self.topology('--vendor-data', '/nonexistent')
        self.assertEqual(1, status)
        self.assertIn('/nonexistent', err.splitlines()[-1])

    def test_clusters_and_files_exclude_each_other(self):
        for argv in ((), ('g', '--vendor-data', 'x')):
            # Said before a login that may fail.
            status, _out, err = osc_shell.run(
                None, 'cluster', 'topology', '--format', 'slurm-conf', *argv
            )
            self.assertEqual(1, status)
            self.assertIn('one of the two', err)
