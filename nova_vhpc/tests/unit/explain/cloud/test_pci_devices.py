# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


from nova_vhpc.explain.cloud import pci_devices
from nova_vhpc.tests import base

NIC = pci_devices.Alias('CUSTOM_NIC')


class AliasesTest(base.TestCase):
    def test_class_is_by_vendor_and_product_or_by_name(self):
        self.assertEqual(
            {
                'nic': pci_devices.Alias('CUSTOM_PCI_8086_154C'),
                'gpu': pci_devices.Alias('CUSTOM_FAST_GPU', ('CUSTOM_NEW',)),
            },
            pci_devices.aliases(
                [
                    '{"name": "nic", "vendor_id": "8086", '
                    '"product_id": "154c"}',
                    '{"name": "gpu", "resource_class": "custom_fast_gpu", '
                    '"traits": "custom_new"}',
                ]
            ),
        )

    def test_ambiguous_or_invalid_aliases_are_left_out(self):
        self.assertEqual(
            {},
            pci_devices.aliases(
                [
                    '{"name": "two", "vendor_id": "8086", "product_id": "1"}',
                    '{"name": "two", "vendor_id": "8086", "product_id": "2"}',
                    '{"name": "none"}',
                    'rubbish',
                    '[]',
                ]
            ),
        )

    def test_devices_are_unknown_for_several_aliases(self):
        # Which devices go with which member is Nova's to say.
        for text in ('nic:1,gpu:1', 'other:1', ''):
            specs = {'pci_passthrough:alias': text}
            self.assertEqual({}, pci_devices.free(None, specs, {'nic': NIC}))

    def test_members_of_isolated_devices_need_several_functions(self):
        for free, devices, together, apart in (
            ((), 1, 0, 0),
            ((3,), 1, 3, 3),
            ((3,), 2, 1, 0),
            ((3, 1), 2, 2, 1),
            ((4, 4), 2, 4, 4),
            ((5, 1, 1, 1), 3, 2, 1),
        ):
            self.assertEqual(
                (together, apart),
                tuple(
                    pci_devices.members(free, devices, isolated)
                    for isolated in (False, True)
                ),
            )
