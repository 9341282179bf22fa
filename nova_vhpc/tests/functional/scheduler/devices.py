# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Fake hypervisors with SR-IOV devices."""

import json

import fixtures
from nova.virt import fake

VENDOR = '8086'
PRODUCT = '154c'
DEVICE = {'vendor_id': VENDOR, 'product_id': PRODUCT}


class DeviceDriver(fake.MediumFakeDriver):
    """A fake hypervisor; the last digit of its name is its number of VFs."""

    def get_available_resource(self, nodename):
        """Return the compute node's resources, with its PCI devices."""
        resource = super().get_available_resource(nodename)
        resource['pci_passthrough_devices'] = json.dumps(
            [
                {
                    'address': f'0000:81:00.{number}',
                    **DEVICE,
                    'status': 'available',
                    'dev_type': 'type-VF',
                    'parent_addr': '0000:80:00.0',
                    'parent_ifname': 'ens1',
                    'numa_node': 0,
                    'label': 'label_8086_154c',
                }
                for number in range(int(nodename[-1]))
            ]
        )
        return resource


class Devices(fixtures.Fixture):
    """Makes Nova find the driver, and the VFs, which this machine lacks."""

    def _setUp(self):
        # Nova loads drivers from its own package only.
        self.useFixture(
            fixtures.MonkeyPatch('nova.virt.fake.DeviceDriver', DeviceDriver)
        )
        for name in ('get_mac_by_pci_address', 'get_vf_num_by_pci_address'):
            self.useFixture(
                fixtures.MockPatch(f'nova.pci.utils.{name}', return_value=1)
            )


def alias(name):
    """Return an entry of ``[pci] alias`` for the VFs."""
    return json.dumps({**DEVICE, 'device_type': 'type-VF', 'name': name})


def spec(**tags):
    """Return an entry of ``[pci] device_spec`` for the VFs."""
    return json.dumps({**DEVICE, **tags})
