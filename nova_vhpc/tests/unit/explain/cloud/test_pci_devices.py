# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


from nova_vhpc.explain.cloud import pci_devices
from nova_vhpc.tests import base


class ResourceClassesTest(base.TestCase):
    def test_class_is_by_vendor_and_product_or_by_name(self):
        self.assertEqual(
            {'nic': 'CUSTOM_PCI_8086_154C', 'gpu': 'CUSTOM_FAST_GPU'},
            pci_devices.resource_classes(
                [
                    '{"name": "nic", "vendor_id": "8086", '
                    '"product_id": "154c"}',
                    '{"name": "gpu", "resource_class": "custom_fast_gpu"}',
                ]
            ),
        )

    def test_ambiguous_or_invalid_aliases_are_left_out(self):
        self.assertEqual(
            {},
            pci_devices.resource_classes(
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
            self.assertEqual(
                {}, pci_devices.free(None, specs, {'nic': 'CUSTOM_NIC'})
            )
