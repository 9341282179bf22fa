# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``exported`` members whose devices come with Neutron's SR-IOV ports.

Nova is real up to the device, which this machine lacks: the fake hypervisor
reports virtual functions, and Nova counts, claims and gives them out.
"""

import uuid

from nova_vhpc.flavor import recipes
from nova_vhpc.tests.functional.scheduler import devices, test_ports
from nova_vhpc.topology import model

EXPORTED = recipes.recipe(
    {'workload': 'parallel', 'network': 'exported'}, sriov_ports=True
)


class ExportedPortsTest(test_ports.PortsTestCase):
    """The virtual functions are on the physical network ``hpc1``."""

    compute_driver = 'fake.DeviceDriver'
    # Otherwise PciPassthroughFilter rejects hosts before ours gives a reason.
    enabled_filters = ['VirtualClusterFilter']

    def setUp(self):
        self.useFixture(devices.Devices())
        super().setUp()
        self.flags(
            group='pci', device_spec=[devices.spec(physical_network='hpc1')]
        )
        self.start_hosts('none0', 'some1')

    def direct_port(self, physnet, kbps=0):
        """Create an SR-IOV port, and return its id."""
        port_id = self.port(physnet, kbps)
        port = self.neutron._ports[port_id]
        port['binding:vnic_type'] = 'direct'
        if kbps:
            (group,) = port['resource_request']['request_groups']
            group['required'][1] = 'CUSTOM_VNIC_TYPE_DIRECT'
        return port_id

    def publish_nic(self, host):
        """Publish the bandwidth of a NIC as Neutron's SR-IOV agent does."""
        name = f'{host}:NIC Switch agent'
        agent = str(uuid.uuid5(test_ports.NAMESPACE, name))
        # Nova reads the NIC, the parent of the devices, from the name.
        nic = str(uuid.uuid5(test_ports.NAMESPACE, f'{name}:ens1'))
        self._provider(agent, name, self._get_provider_uuid_by_host(host))
        self._provider(nic, f'{name}:ens1', agent)
        total = {'total': test_ports.LINK_KBPS}
        self._inventory(
            nic, {test_ports.EGRESS: total, test_ports.INGRESS: total}
        )
        traits = [model.physnet_trait('hpc1'), 'CUSTOM_VNIC_TYPE_DIRECT']
        for trait in traits:
            self._create_trait(trait)
        self._set_provider_traits(nic, traits)
        return nic

    def test_members_go_where_devices_of_the_network_are(self):
        flavor = self.flavor(EXPORTED)
        self.assertEqual(
            'some1', self.boot_with(flavor, self.direct_port('hpc1'))
        )
        self.boot_with(
            flavor, self.direct_port('hpc1'), expected_state='ERROR'
        )
        self.assertIn('No valid host', self.booted['fault']['message'])

    def test_devices_of_another_network_do_not_serve(self):
        self.boot_with(
            self.flavor(EXPORTED),
            self.direct_port('hpc2'),
            expected_state='ERROR',
        )
        self.assert_rejected(
            'some1', '0 free PCI device(s)', 'physical network hpc2'
        )

    def test_port_without_device_is_rejected_with_the_remedy(self):
        self.boot_with(
            self.flavor(EXPORTED), self.port('hpc1'), expected_state='ERROR'
        )
        self.assert_rejected('some1', 'vnic_type')

    def test_port_with_minimum_bandwidth_claims_it_and_a_device(self):
        nic = self.publish_nic('some1')
        port = self.direct_port('hpc1', test_ports.LINK_KBPS)
        host = self.boot_with(self.flavor(EXPORTED), port)
        self.assertEqual('some1', host)
        self.assertEqual(nic, self.provider_of(port))
        self.assertEqual(
            test_ports.LINK_KBPS,
            self._get_provider_usages(nic)[test_ports.EGRESS],
        )

    def test_member_is_migrated_cold_to_another_device(self):
        self.start_hosts('other1')
        self.boot_with(self.flavor(EXPORTED), self.direct_port('hpc1'))
        before = self.booted['OS-EXT-SRV-ATTR:host']
        server = self._migrate_server(self.booted)
        server = self._confirm_resize(server)
        self.assertEqual(
            {'some1', 'other1'}, {before, server['OS-EXT-SRV-ATTR:host']}
        )
