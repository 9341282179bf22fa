# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc`` on a real Nova and Placement."""

import json
import pathlib
import re

import fixtures

from nova_vhpc.cli import explain
from nova_vhpc.tests import osc_shell
from nova_vhpc.tests.functional import sdk
from nova_vhpc.tests.functional.scheduler import base


class OscTest(base.SchedulerTestCase):
    """A virtual cluster with a member on each of two hosts."""

    def setUp(self):
        super().setUp()
        self.admin = self.connect()
        self.tenant = self.connect(user='tenant', roles='reader,member')
        self.start_hosts('one', 'two')
        for host in ('one', 'two'):
            self.publish(host, base.separate('br1', 'eth1'))
        aggregate = self.api.post_aggregate({'aggregate': {'name': 'fabric'}})
        for name in ('one', 'two'):
            self.api.add_host_to_aggregate(aggregate['id'], name)
        self.api.post_aggregate_action(
            aggregate['id'],
            {'set_metadata': {'metadata': {'vhpc:switch': 'leaf7'}}},
        )
        self.flavor_id = self.flavor(base.SEPARATE)
        self.group_id = self.group()
        self.servers = self.boot_cluster(self.flavor_id, 2, self.group_id)

    def connect(self, **user):
        return sdk.connect(
            self.api_fixture, self.placement.fixture.endpoint, **user
        )

    def json(self, connection, *argv):
        status, out, err = osc_shell.run(connection, *argv, '-f', 'json')
        self.assertEqual(0, status, err)
        return json.loads(out)

    def test_administrator_sees_hosts_switch_and_claims(self):
        for more in ((), ('--all-projects',)):
            (cluster,) = self.json(self.admin, 'cluster', 'list', *more)
            self.assertEqual(self.group_id, cluster['ID'])
            self.assertEqual(2, cluster['Running'])
            self.assertEqual(2, cluster['Hosts'])
            self.assertEqual('switch', cluster['Tier'])
        shown = self.json(self.admin, 'cluster', 'show', self.group_id)
        self.assertEqual(['leaf7'], shown['switches'])
        self.assertEqual(
            {('one', 'br1:eth1'), ('two', 'br1:eth1')},
            {
                (member['host'], *member['uplinks'])
                for member in shown['members']
            },
        )

    def test_tenant_sees_members_and_no_names_of_the_operator(self):
        status, out, err = osc_shell.run(
            self.tenant, 'cluster', 'list', '-f', 'json', '--long'
        )
        self.assertEqual(0, status, err)
        (cluster,) = json.loads(out)
        self.assertEqual(2, cluster['Running'])
        self.assertEqual(2, cluster['Hosts'])
        self.assertEqual('separate', cluster['Network'])
        self.assertIn('Only an administrator may see them', err)
        self.assertNotIn('403', err)
        shown = self.json(self.tenant, 'cluster', 'show', self.group_id)
        self.assertIsNone(shown['switches'])
        for member in shown['members']:
            self.assertNotIn('host', member)

    def test_topology_has_ids_instead_of_names(self):
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).join('conf'))
        file.write_text('[vhpc_vendordata]\nid_secret = ' + 16 * 'x')
        argv = ('cluster', 'topology', self.group_id, '--format', 'slurm-conf')
        status, out, err = osc_shell.run(
            self.admin, *argv, '--config-file', str(file)
        )
        self.assertEqual(0, status, err)
        self.assertRegex(out, r'^SwitchName=switch-[0-9a-f]{16} Nodes=\S+\n$')
        for name in ('leaf7', 'one,', 'two,'):
            self.assertNotIn(name, out)
        status, out, err = osc_shell.run(self.tenant, *argv)
        self.assertEqual(0, status, err)
        # Two hosts at a switch that the tenant may not see.
        self.assertEqual(
            2, len(re.findall(r'SwitchName=host-[0-9a-f]{16} Nodes=', out))
        )
        self.assertIn('--vendor-data', err)

    def test_tenant_is_refused_what_is_the_operators_in_a_sentence(self):
        for argv in (
            ('cluster', 'list', '--all-projects'),
            ('host', 'list'),
            ('explain', '--flavor', self.flavor_id),
            ('flavor', 'set', self.flavor_id, '--spare-cpus', '1'),
        ):
            status, out, err = osc_shell.run(self.tenant, *argv)
            self.assertEqual((1, ''), (status, out), argv)
            self.assertIn('only an administrator may', err)
            self.assertNotIn('403', err)

    def test_dead_link_of_a_claimed_uplink_is_the_first_limit(self):
        (cluster,) = self.json(self.admin, 'cluster', 'list')
        self.assertNotIn('link', cluster['Limited By'])
        self.publish('one', base.separate('br1', 'eth1', up=False))
        (cluster,) = self.json(self.admin, 'cluster', 'list')
        self.assertIn('link of NIC eth1', cluster['Limited By'])
        self.assertIn('host one', cluster['Limited By'])

    def test_stopped_member_is_the_first_limit(self):
        name = self.servers[0]['name']
        self.api.post_server_action(self.servers[0]['id'], {'os-stop': {}})
        self._wait_for_state_change(self.servers[0], 'SHUTOFF')
        for user in (self.admin, self.tenant):
            (cluster,) = self.json(user, 'cluster', 'list')
            self.assertEqual(1, cluster['Running'])
            self.assertIn(f'{name} (SHUTOFF)', cluster['Limited By'])

    def test_flavor_set_then_show_and_unset(self):
        flavor_id = self.flavor({'hw:mem_page_size': 'large'})
        self.json(
            self.admin, 'flavor', 'set', flavor_id, '--network', 'separate'
        )
        shown = self.json(self.admin, 'flavor', 'show', flavor_id)
        self.assertEqual('separate', shown['extra_specs']['vhpc:network'])
        self.json(self.admin, 'flavor', 'unset', flavor_id)
        self.assertEqual(
            {'hw:mem_page_size': 'large'},
            self.json(self.admin, 'flavor', 'show', flavor_id)['extra_specs'],
        )

    def test_hosts_and_their_uplinks(self):
        hosts = self.json(self.admin, 'host', 'list')
        self.assertEqual(
            [('one', 1, 0), ('two', 1, 0)],
            [(h['Host'], h['Uplinks'], h['Free Slots']) for h in hosts],
        )

    def test_explain_has_no_plan_on_full_uplinks(self):
        status, out, _ = osc_shell.run(
            self.admin, 'explain', '--flavor', self.flavor_id, '-f', 'json'
        )
        self.assertEqual(explain.NO_PLAN, status)
        self.assertEqual(
            {'one', 'two'}, {host['Host'] for host in json.loads(out)}
        )
