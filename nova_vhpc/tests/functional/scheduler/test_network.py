# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The five network configurations, each with its flavor recipe.

HPCVirt'09 section 4. The recipes come from ``nova-vhpc-flavor``, and are
listed in doc/source/admin/placement.rst.
"""

import logging

import fixtures

from nova_vhpc.flavor import recipes
from nova_vhpc.tests.functional.scheduler import base, devices

MULTIPLE_SHARED = recipes.recipe(
    {'workload': 'parallel', 'network': 'multiple-shared'}
)
SHARED_SEPARATE = recipes.recipe(
    {'workload': 'parallel', 'network': 'shared-separate'}
)
EXPORTED = recipes.recipe(
    {'workload': 'parallel', 'network': 'exported'}, alias='hpc-nic'
)


class NetworkTestCase(base.SchedulerTestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(
            fixtures.FakeLogger(
                'nova_vhpc.scheduler',
                level=logging.DEBUG,
                nuke_handlers=False,
            )
        )

        self.log_begin = 0

    def forget_log(self):
        """Have assert_rejected() look at what is logged from now on."""
        self.log_begin = len(self.log.output)

    def boot(self, extra_specs, expected_state='ACTIVE', members=1, **more):
        flavor_id = self.flavor({**extra_specs, **more})
        return self.boot_cluster(
            flavor_id, members, expected_state=expected_state
        )

    def assert_rejected(self, host, *words):
        """Assert that one log line has a host's rejection with these words."""
        lines = [
            line
            for line in self.log.output[self.log_begin :].splitlines()
            if line.startswith(f'Host {host} cannot take')
        ]
        self.assertEqual(1, len(lines), self.log.output)
        for word in words:
            self.assertIn(word, lines[0])


class BridgeTest(NetworkTestCase):
    """The four configurations with bridges."""

    def test_shared_members_claim_slots_of_one_uplink(self):
        self.start_hosts('one', 'two')
        uplink = base.shared('br1', 'eth1')
        self.publish('one', base.separate('br2', 'eth2'))
        self.publish('two', uplink)
        servers = self.boot(base.SHARED, members=2)
        self.assertEqual(['two', 'two'], self.hosts_of(servers))
        self.assertEqual(2, self.used('two', uplink))

    def test_multiple_shared_members_claim_uplinks_of_two_bridges(self):
        # Placement alone would accept two uplinks of one bridge.
        self.start_hosts('one', 'two')
        self.publish(
            'one', base.shared('br1', 'eth1'), base.shared('br1', 'eth2')
        )
        self.publish(
            'two',
            base.shared('br1', 'eth1'),
            base.shared('br1', 'eth2'),
            base.shared('br2', 'eth3'),
        )
        servers = self.boot(MULTIPLE_SHARED, members=2)
        self.assertEqual(['two', 'two'], self.hosts_of(servers))
        for server in servers:
            bridges = {name.split(':')[2] for name in self.claims(server)}
            self.assertEqual({'br1', 'br2'}, bridges)
        self.assert_rejected('one', '1 shared bridge(s)', '2 are needed')

    def test_uplink_is_not_taken_twice_and_not_without_a_claim(self):
        self.start_hosts('one')
        bridge = base.shared('br1', 'eth1', slots=2)
        self.publish('one', bridge)
        self.boot(MULTIPLE_SHARED, 'ERROR')
        self.assertEqual(0, self.used('one', bridge))
        self.publish('one', base.separate('br2', 'eth2'))
        self.forget_log()
        server = self._create_server(
            flavor_id=self.flavor({'vhpc:network': 'separate'}),
            networks='none',
            expected_state='ERROR',
        )
        self.assertIn('No valid host', server['fault']['message'])
        self.assert_rejected('one', 'resources_uplink:CUSTOM_VHPC_UPLINK=1')

    def test_multiple_shared_takes_no_uplink_twice_of_unknown_topology(self):
        self.flags(group='vhpc_scheduler', unknown_topology='allow')
        self.start_hosts('one', 'two')
        bridge = base.shared('br1', 'eth1', slots=2)
        self.publish('one', bridge, stamp_s=1000)
        self.publish(
            'two', bridge, base.shared('br2', 'eth2', slots=1), stamp_s=1000
        )
        (server,) = self.boot(MULTIPLE_SHARED)
        self.assertEqual([1, 1], list(self.claims(server).values()))

    def test_separate_members_claim_an_uplink_each(self):
        self.start_hosts('one', 'two')
        self.publish('one', base.separate('br1', 'eth1', mbps=100))
        uplinks = [
            base.separate('br1', 'eth1'),
            base.separate('br2', 'eth2'),
        ]
        self.publish('two', *uplinks)
        servers = self.boot(
            base.SEPARATE, members=2, **{'vhpc:min_link_mbps': '1000'}
        )
        self.assertEqual(['two', 'two'], self.hosts_of(servers))
        self.assertEqual([1, 1], [self.used('two', u) for u in uplinks])
        self.assert_rejected('one', 'NIC eth1 on bridge br1', '100 Mbit/s')

    def test_shared_separate_member_needs_a_shared_bridge_too(self):
        self.start_hosts('one', 'two')
        own = base.separate('br2', 'eth2')
        self.publish('one', own)
        self.publish('two', base.shared('br1', 'eth1'), own)
        (server,) = self.boot(SHARED_SEPARATE)
        self.assertEqual('two', server['OS-EXT-SRV-ATTR:host'])
        self.assertEqual({'two:vhpc:br2:eth2': 1}, self.claims(server))
        self.assert_rejected('one', 'no shared bridge', 'NIC eth2')

    def test_host_whose_link_is_down_is_rejected(self):
        self.start_hosts('one', 'two')
        self.publish('one', base.shared('br1', 'eth1', up=False))
        self.publish('two', base.shared('br1', 'eth1'))
        # Placement offers both hosts, because the flavor claims nothing.
        (server,) = self.boot({'vhpc:network': 'shared'})
        self.assertEqual('two', server['OS-EXT-SRV-ATTR:host'])
        self.assert_rejected('one', 'link of NIC eth1 on bridge br1 is down')

    def test_host_without_enough_spare_cpus_is_rejected(self):
        self.start_hosts('one')
        self.publish('one', base.shared('br1', 'eth1'))
        # Nine of the host's ten CPUs may be used, by three members of three
        # vCPUs.
        flavor_id = self.flavor(
            {**base.SHARED, 'vhpc:spare_cpus': '1'}, vcpu=3
        )
        self.boot_cluster(flavor_id, 3)
        server = self._create_server(
            name='late',
            flavor_id=flavor_id,
            networks='none',
            expected_state='ERROR',
        )
        self.assertEqual('ERROR', server['status'])
        self.assert_rejected('one', '12 vCPUs would share 9 CPUs')
        with self.subTest('a plain server is not filtered'):
            server = self._create_server(networks='none')
            self.assertEqual('ACTIVE', server['status'])


class ExportedTest(NetworkTestCase):
    """Passthrough devices, by flavor alias and by Neutron port."""

    compute_driver = 'fake.DeviceDriver'

    def setUp(self):
        self.useFixture(devices.Devices())
        super().setUp()
        self.flags(
            group='pci',
            device_spec=[devices.spec(physical_network='physnet2')],
            alias=[devices.alias('hpc-nic')],
        )

    def test_members_with_an_alias_go_where_devices_are(self):
        self.start_hosts('none0', 'some2')
        servers = self.boot(EXPORTED, members=2)
        self.assertEqual(['some2', 'some2'], self.hosts_of(servers))

    def test_member_with_an_sriov_port_goes_where_devices_are(self):
        self.start_hosts('none0', 'some1')
        neutron = self.neutron
        port = dict(neutron.sriov_port)
        neutron._ports[port['id']] = port
        neutron._networks[port['network_id']] = neutron.network_2
        neutron._subnets[neutron.subnet_2['id']] = neutron.subnet_2
        flavor_id = self.flavor({'vhpc:network': 'exported'})
        server = self._create_server(
            flavor_id=flavor_id, networks=[{'port': port['id']}]
        )
        self.assertEqual('some1', server['OS-EXT-SRV-ATTR:host'])

    def test_exported_member_without_a_device_is_rejected(self):
        self.start_hosts('some1')
        (server,) = self.boot({'vhpc:network': 'exported'}, 'ERROR')
        self.assertIn('No valid host', server['fault']['message'])
        self.assert_rejected('some1', 'pci_passthrough:alias', 'vnic_type')


class UplinksBesideDevicesTest(NetworkTestCase):
    """Members with two uplinks and with devices that Placement allocates."""

    compute_driver = 'fake.DeviceDriver'

    def setUp(self):
        self.useFixture(devices.Devices())
        super().setUp()
        self.flags(
            group='pci',
            device_spec=[devices.spec()],
            alias=[devices.alias('vf')],
            report_in_placement=True,
        )
        self.flags(group='filter_scheduler', pci_in_placement=True)

    def test_two_devices_may_be_of_one_physical_function(self):
        self.start_hosts('some3')
        self.publish(
            'some3', base.shared('br1', 'eth1'), base.shared('br2', 'eth2')
        )
        flavor = recipes.change(
            {'pci_passthrough:alias': 'vf:2'}, MULTIPLE_SHARED
        )
        (server,) = self.boot(flavor.after)
        self.assertEqual(2, len(self.claims(server)))


class ExportedAloneTest(ExportedTest):
    """The same tests without Nova's PciPassthroughFilter."""

    enabled_filters = ['VirtualClusterFilter']

    def test_host_with_too_few_devices_is_rejected(self):
        self.start_hosts('some1')
        servers = self.boot(EXPORTED, 'ERROR', members=2)
        self.assertEqual(2, len(servers))
        self.assert_rejected(
            'some1', '0 free PCI device(s) for alias hpc-nic', '1 are needed'
        )
