# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Dedicated vCPUs are counted as Nova counts them."""

from nova import exception, objects
from nova.virt import hardware

from nova_vhpc.flavor import cpu_policy
from nova_vhpc.tests import base

objects.register_all()

MASKS = (
    '^0',
    '^0-1',
    '0',
    '0-2',
    '0-3,^1',
    ' 2 , 1,,',
    '^1,2',
    '1-2,^2-3',
    '^0,^3',
    '-1',
    '2-1',
    'all',
    '^',
    '0-',
    ',',
)


class DedicatedTest(base.TestCase):
    def flavor(self, specs, vcpus=4):
        return objects.Flavor(
            vcpus=vcpus, memory_mb=1, root_gb=0, extra_specs=specs
        )

    def by_nova(self, specs):
        """Return the number that Nova counts, or None if it refuses."""
        image = objects.ImageMeta.from_dict({'properties': {}})
        flavor = self.flavor(specs)
        try:
            dedicated = hardware.get_dedicated_cpu_constraint(
                flavor
            ) or hardware.get_realtime_cpu_constraint(flavor, image)
        except exception.NovaException:
            return None
        return len(dedicated) if dedicated else 0

    def test_masks_give_as_many_dedicated_vcpus_as_in_nova(self):
        read = 0
        for mask in MASKS:
            for specs in (
                {'hw:cpu_dedicated_mask': mask},
                {'hw:cpu_realtime': 'yes', 'hw:cpu_realtime_mask': mask},
                {'hw:cpu_realtime': 'no', 'hw:cpu_realtime_mask': mask},
            ):
                expected = self.by_nova(specs)
                specs['hw:cpu_policy'] = 'mixed'
                count = cpu_policy.dedicated(4, specs)
                if expected is not None:
                    self.assertEqual(expected, count, specs)
                    read += bool(count)
        self.assertGreater(read, 12)

    def test_policy_or_pcpu_resource_dedicates_all_vcpus(self):
        for specs, expected in (
            ({}, 0),
            ({'hw:cpu_policy': 'shared'}, 0),
            ({'hw:cpu_policy': 'dedicated'}, 4),
            ({'resources:PCPU': '4'}, 4),
            ({'resources2:PCPU': '4'}, 4),
            ({'resources:VCPU': '4'}, 0),
            ({'hw:cpu_policy': 'mixed'}, 0),
            ({'hw:cpu_dedicated_mask': '^0'}, 0),
        ):
            self.assertEqual(expected, cpu_policy.dedicated(4, specs))
