# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``nova-vhpc-flavor`` writes flavors of a real Nova, which then boot."""

import contextlib
import io
import json

from nova.tests.functional.api import client

from nova_vhpc.cli import flavor as command
from nova_vhpc.tests.functional import sdk
from nova_vhpc.tests.functional.scheduler import base


class FlavorTestCase(base.SchedulerTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = sdk.connect(
            self.api_fixture, self.placement.fixture.endpoint
        )

    def run_(self, *argv):
        """Run the command.

        :returns: exit status, standard output, standard error.
        """
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = command.main(list(argv), self.cloud)
            except SystemExit as stop:
                status = stop.code
        return status, out.getvalue(), err.getvalue()

    def specs(self, flavor_id):
        return self.api.api_get(f'/flavors/{flavor_id}/os-extra_specs').body[
            'extra_specs'
        ]


class BootTest(FlavorTestCase):
    """Servers of a written flavor claim uplinks of the right bridges."""

    def setUp(self):
        super().setUp()
        self.start_hosts('host')
        self.publish(
            'host',
            base.shared('br1', 'eth1'),
            base.shared('br2', 'eth2'),
            base.separate('br3', 'eth3'),
        )

    def boot(self, network):
        flavor_id = self.flavor({})
        status, _, err = self.run_(
            'set',
            flavor_id,
            '--network',
            network,
            '--workload',
            'parallel',
        )
        self.assertEqual((0, ''), (status, err))
        (server,) = self.boot_cluster(flavor_id, 1)
        return {name.split(':')[2] for name in self.claims(server)}

    def test_shared_flavor_claims_a_shared_bridge(self):
        (bridge,) = self.boot('shared')
        self.assertIn(bridge, ('br1', 'br2'))

    def test_multiple_shared_flavor_claims_two_shared_bridges(self):
        self.assertEqual({'br1', 'br2'}, self.boot('multiple-shared'))

    def test_separate_flavor_claims_a_separate_bridge(self):
        self.assertEqual({'br3'}, self.boot('separate'))

    def test_shared_separate_flavor_claims_a_separate_bridge(self):
        self.assertEqual({'br3'}, self.boot('shared-separate'))


class WriteTest(FlavorTestCase):
    def test_dry_run_writes_nothing(self):
        flavor_id = self.flavor({'hw:mem_page_size': 'large'})
        status, out, _ = self.run_(
            'set', flavor_id, '--network', 'separate', '--dry-run'
        )
        self.assertEqual(0, status)
        self.assertIn('vhpc:network', out)
        self.assertRegex(out, r'written +\| False')
        self.assertEqual({'hw:mem_page_size': 'large'}, self.specs(flavor_id))

    def test_set_and_unset_keep_other_extra_specs(self):
        others = {'hw:mem_page_size': 'large'}
        flavor_id = self.flavor(others)
        self.run_('set', flavor_id, '--network', 'multiple-shared')
        self.assertEqual(
            {
                **others,
                'vhpc:network': 'multiple-shared',
                'resources_uplink1:CUSTOM_VHPC_UPLINK': '1',
                'resources_uplink2:CUSTOM_VHPC_UPLINK': '1',
                'trait_uplink1:CUSTOM_VHPC_BRIDGE_SHARED': 'required',
                'trait_uplink2:CUSTOM_VHPC_BRIDGE_SHARED': 'required',
                'group_policy': 'none',
            },
            self.specs(flavor_id),
        )
        self.run_(
            'set',
            flavor_id,
            '--network',
            'shared-separate',
            '--physnet',
            'physnet0',
            '--spare-cpus',
            '1',
        )
        written = {
            **others,
            'vhpc:network': 'shared-separate',
            'vhpc:spare_cpus': '1',
            'resources_uplink:CUSTOM_VHPC_UPLINK': '1',
            'trait_uplink:CUSTOM_VHPC_BRIDGE_SEPARATE': 'required',
            'trait_uplink:CUSTOM_PHYSNET_PHYSNET0': 'required',
        }
        self.assertEqual(written, self.specs(flavor_id))
        # Extra specs that the call does not name stay.
        self.run_('set', flavor_id, '--spare-cpus', '2')
        self.assertEqual(
            {**written, 'vhpc:spare_cpus': '2'}, self.specs(flavor_id)
        )
        self.run_('unset', flavor_id)
        self.assertEqual(others, self.specs(flavor_id))

    def test_exported_adds_an_alias_and_unset_removes_it(self):
        flavor_id = self.flavor({'pci_passthrough:alias': 'gpu:1'})
        self.run_(
            'set',
            flavor_id,
            '--network',
            'exported',
            '--alias',
            'nic',
        )
        self.assertEqual(
            {
                'vhpc:network': 'exported',
                'pci_passthrough:alias': 'gpu:1,nic:1',
            },
            self.specs(flavor_id),
        )
        # A later call need not name the devices again.
        status, _, err = self.run_('set', flavor_id, '--workload', 'parallel')
        self.assertEqual((0, ''), (status, err))
        self.run_('unset', flavor_id, '--alias', 'nic')
        self.assertEqual(
            {'pci_passthrough:alias': 'gpu:1'}, self.specs(flavor_id)
        )

    def test_json_tells_whether_the_named_flavor_was_written(self):
        flavor_id = self.flavor({})
        name = self.api.get_flavor(flavor_id)['name']
        status, out, _ = self.run_(
            'set', name, '--network', 'shared', '--json'
        )
        self.assertEqual(0, status)
        document = json.loads(out)
        self.assertTrue(document['written'])
        self.assertEqual(self.specs(flavor_id), document['after'])
        status, out, _ = self.run_(
            'set', name, '--network', 'shared', '--json'
        )
        document = json.loads(out)
        self.assertFalse(document['written'])
        self.assertEqual({}, document['set'])

    def test_invalid_arguments_write_nothing(self):
        flavor_id = self.flavor({})
        for argv, words in (
            (('--network', 'mesh'), "'mesh' is not one of"),
            (('--network', 'exported'), '--alias NAME'),
            (('--uplink-nic', '1'), 'without vhpc:network'),
            ((), 'nothing to set'),
        ):
            status, out, err = self.run_('set', flavor_id, *argv)
            self.assertEqual((1, ''), (status, out))
            self.assertIn(words, err)
            self.assertEqual(1, len(err.splitlines()))
        self.assertEqual({}, self.specs(flavor_id))

    def test_waiting_is_written_and_wrong_waiting_refused_by_nova(self):
        flavor_id = self.flavor({})
        status, _, err = self.run_('set', flavor_id, '--wait', 'passive')
        self.assertEqual((0, ''), (status, err))
        self.assertEqual({'vhpc:wait': 'passive'}, self.specs(flavor_id))
        self.api.microversion = '2.86'
        error = self.assertRaises(
            client.OpenStackApiException,
            self.api.api_post,
            f'/flavors/{flavor_id}/os-extra_specs',
            {'extra_specs': {'vhpc:wait': 'sleep'}},
        )
        self.assertEqual(400, error.response.status_code)
        self.assertIn('auto, passive, active', error.response.text)

    def test_unknown_flavor_is_an_error(self):
        status, _, err = self.run_('show', 'nowhere')
        self.assertEqual(1, status)
        self.assertIn("no flavor 'nowhere'", err)


class ShowTest(FlavorTestCase):
    def test_show_of_a_valid_flavor_has_no_problems(self):
        flavor_id = self.flavor(base.SEPARATE)
        status, out, _ = self.run_('show', flavor_id, '--json')
        self.assertEqual(0, status)
        self.assertEqual([], json.loads(out)['problems'])

    def test_show_warns_of_a_flavor_that_claims_nothing_but_boots(self):
        self.start_hosts('host')
        self.publish('host', base.shared('br1', 'eth1'))
        flavor_id = self.flavor({'vhpc:network': 'shared'})
        status, out, _ = self.run_('show', flavor_id)
        self.assertEqual(0, status)
        self.assertRegex(out, r'problems +\| +\|')
        self.assertIn('vhpc:network=shared without a request group', out)
        (server,) = self.boot_cluster(flavor_id, 1)
        self.assertEqual({}, self.claims(server))

    def test_show_of_an_invalid_flavor_names_the_extra_spec(self):
        flavor_id = self.flavor(
            {**base.SEPARATE, 'vhpc:network': 'multiple-shared'}
        )
        status, out, _ = self.run_('show', flavor_id)
        self.assertEqual(1, status)
        self.assertIn('resources_uplink1', out)

    def test_show_of_a_flavor_for_ports_says_what_tenants_do(self):
        flavor_id = self.flavor(base.SEPARATE)
        self.run_('set', flavor_id, '--ports')
        status, out, _ = self.run_('show', flavor_id, '--json')
        document = json.loads(out)
        self.assertEqual((0, []), (status, document['problems']))
        self.assertEqual(
            {'vhpc:workload': 'parallel', 'vhpc:network': 'separate'},
            document['extra_specs'],
        )
        self.assertIn('openstack port create', document['advice'][0])


class CheckTest(FlavorTestCase):
    """What a client of an old microversion wrote is found."""

    def test_check_all_finds_a_wrong_key_of_an_old_client(self):
        self.flavor({'vhpc:workload': 'parallel'})
        status, out, err = self.run_('check', '--all')
        self.assertEqual(0, status, out)
        self.assertIn(', 0 are wrong', err)
        wrong = self.flavor({})
        # The default of the openstack client; Nova validates from 2.86 on.
        self.api.microversion = '2.1'
        self.api.api_post(
            f'/flavors/{wrong}/os-extra_specs',
            {'extra_specs': {'vhpc:wrokload': 'parallel'}},
        )
        status, out, err = self.run_('check', '--all')
        self.assertEqual(1, status)
        self.assertIn(', 1 are wrong', err)
        self.assertIn('vhpc:wrokload', out)
        status, out, _ = self.run_('check', wrong)
        self.assertEqual(1, status, out)
