# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.flavor import pci_aliases, validation
from nova_vhpc.tests import base


def exported(text):
    return {'vhpc:network': 'exported', 'pci_passthrough:alias': text}


class DevicesTest(base.TestCase):
    def test_devices_of_all_aliases_are_added_up(self):
        for text, number in (
            ('nic:1', 1),
            ('gpu:2,nic:1', 3),
            (' gpu:2 , nic:1 ', 3),
            ('nic:0', 0),
            ('nonsense', 0),
            ('nic:\u00b2', 0),
            ('', 0),
        ):
            self.assertEqual(number, pci_aliases.devices(exported(text)))
        self.assertEqual(0, pci_aliases.devices({}))


class ProblemsTest(base.TestCase):
    def test_aliases_with_a_device_have_no_problem(self):
        for text in ('nic:1', 'gpu:2,nic:1', ' gpu:2 , nic:1 ', 'gpu:0,nic:1'):
            self.assertEqual([], validation.problems(exported(text)))

    def test_aliases_without_any_device_are_a_problem(self):
        for text in ('nic:0', 'nic:0,gpu:00'):
            (problem,) = validation.problems(exported(text))
            self.assertIn(f'{text} asks for no device', problem)

    def test_alias_that_nova_cannot_read_is_a_problem(self):
        for text, item in (
            ('nic:x', 'nic:x'),
            ('nic', 'nic'),
            ('nic:-1', 'nic:-1'),
            ('nic:\u00b2', 'nic:\u00b2'),
            ('gpu:1, :2', ':2'),
            ('gpu:1,', ''),
            ('a:1:2', 'a:1:2'),
        ):
            (problem,) = validation.problems(exported(text))
            self.assertIn(f"'{item}' is not NAME:COUNT", problem)

    def test_alias_of_a_flavor_without_exported_is_no_problem(self):
        specs = {'vhpc:workload': 'latency', 'pci_passthrough:alias': 'gpu:0'}
        self.assertEqual([], validation.problems(specs))
