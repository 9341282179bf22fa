# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


from nova import objects
from nova.objects import pci_device_pool
from nova.pci import stats
from nova.scheduler import host_manager
from oslotest import base

from nova_vhpc.scheduler.hosts import pci
from nova_vhpc.scheduler.planner.model import NO_LIMIT

objects.register_all()


class DevicesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.state = host_manager.HostState('one', 'one', 'cell')
        self.state.pci_stats = stats.PciDeviceStats(
            None,
            stats=pci_device_pool.PciDevicePoolList(
                objects=[
                    self.pool(3, physical_network='fabric'),
                    self.pool(2, product_id='ffff'),
                ]
            ),
        )

    def pool(self, count, product_id='154c', **tags):
        return pci_device_pool.PciDevicePool(
            vendor_id='8086',
            product_id=product_id,
            numa_node=0,
            count=count,
            tags={'dev_type': 'type-VF', **tags},
        )

    def request(self, count=1, alias='hpc', **spec):
        return objects.InstancePCIRequest(
            count=count, alias_name=alias, spec=[spec]
        )

    def test_devices_of_an_alias_limit_members(self):
        request = self.request(2, vendor_id='8086', product_id='154c')
        self.assertIsNone(pci.shortage(self.state, [request]))
        self.assertEqual(1, pci.members(self.state, [request]))

    def test_devices_of_a_physical_network_limit_members(self):
        request = self.request(alias=None, physical_network='fabric')
        self.assertEqual(3, pci.members(self.state, [request]))
        request = self.request(alias=None, physical_network='other')
        self.assertEqual(
            'it has 0 free PCI device(s) for a port on physical network '
            'other, 1 are needed',
            pci.shortage(self.state, [request]),
        )

    def test_all_free_devices_can_be_requested(self):
        request = self.request(3, product_id='154c')
        self.assertIsNone(pci.shortage(self.state, [request]))

    def test_too_few_devices_are_named(self):
        request = self.request(4, product_id='154c')
        self.assertIn(
            'it has 3 free PCI device(s) for alias hpc, 4 are needed',
            pci.shortage(self.state, [request]),
        )

    def test_ports_of_one_network_share_its_devices(self):
        ports = [
            self.request(alias=None, physical_network='fabric')
            for _ in range(2)
        ]
        self.assertIsNone(pci.shortage(self.state, ports))
        self.assertEqual(1, pci.members(self.state, ports))
        self.assertEqual(
            'it has 3 free PCI device(s) for a port on physical network '
            'fabric, 4 are needed',
            pci.shortage(self.state, ports * 2),
        )
        self.assertEqual(0, pci.members(self.state, ports * 2))

    def test_overlapping_requests_share_devices(self):
        port = self.request(alias=None, physical_network='fabric')
        other = self.request(alias='other', product_id='ffff')
        self.assertEqual(2, pci.members(self.state, [port, other]))
        # Five devices match the alias; the port needs one of them.
        any_vf = self.request(4, vendor_id='8086')
        self.assertIsNone(pci.shortage(self.state, [any_vf, port]))
        self.assertIn(
            'it has 5 free PCI device(s)',
            pci.shortage(self.state, [any_vf, port, other]),
        )

    def test_scarcest_device_limits_members(self):
        for pool in self.state.pci_stats.pools:
            if 'physical_network' in pool:
                pool['count'] = 30
        port = self.request(alias=None, physical_network='fabric')
        other = self.request(2, alias='other', product_id='ffff')
        for requests in ([port, other], [other, port]):
            self.assertEqual(1, pci.members(self.state, requests))

    def test_tags_that_nova_ignores_are_ignored(self):
        # These tags are for Placement only; no pool has them.
        self.assertIn('resource_class', self.state.pci_stats.ignored_spec_tags)
        request = self.request(product_id='154c', resource_class='CUSTOM_VF')
        self.assertEqual(3, pci.members(self.state, [request]))

    def test_host_that_reported_no_devices_takes_no_member(self):
        new = host_manager.HostState('new', 'new', 'cell')
        self.assertIn(
            'no PCI devices yet', pci.shortage(new, [self.request()])
        )
        self.assertEqual(0, pci.members(new, [self.request()]))

    def test_request_without_devices_is_unlimited(self):
        self.assertEqual(NO_LIMIT, pci.members(self.state, []))
        self.assertEqual(0, pci.device_count([]))
