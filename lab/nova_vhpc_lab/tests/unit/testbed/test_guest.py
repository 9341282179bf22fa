# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of the domain XML of a guest."""

from pathlib import Path
from xml.etree import ElementTree

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import guest, image

IMAGE = image.GuestImage(Path('/kernel'), Path('/initrd'))


class DomainXmlTest(base.TestCase):
    def parse(self, **settings):
        return ElementTree.fromstring(
            guest.domain_xml('one', IMAGE, **settings)
        )

    def test_extra_specs_are_in_novas_metadata(self):
        root = self.parse(extra_specs={'vhpc:workload': 'parallel'})
        namespaces = {'nova': guest.NOVA_NS}
        (spec,) = root.findall(
            'metadata/nova:instance/nova:flavor/nova:extraSpecs/'
            'nova:extraSpec',
            namespaces,
        )
        self.assertEqual('vhpc:workload', spec.get('name'))
        self.assertEqual('parallel', spec.text)

    def test_metadata_is_left_out_without_extra_specs(self):
        self.assertIsNone(self.parse().find('metadata'))

    def test_quota_is_in_the_flavor_and_in_force(self):
        root = self.parse(extra_specs={'a': 'b'}, quota_us=50_000)
        self.assertEqual('100000', root.findtext('cputune/period'))
        self.assertEqual('50000', root.findtext('cputune/quota'))
        specs = {
            spec.get('name'): spec.text
            for spec in root.iter(f'{{{guest.NOVA_NS}}}extraSpec')
        }
        self.assertEqual('50000', specs['quota:cpu_quota'])
        self.assertIsNone(self.parse().find('cputune'))

    def test_memory_is_shared_for_the_progress_page(self):
        root = self.parse()
        self.assertEqual(
            'memfd', root.find('memoryBacking/source').get('type')
        )
        self.assertEqual(
            'shared', root.find('memoryBacking/access').get('mode')
        )

    def test_workload_and_arguments_are_on_the_kernel_command_line(self):
        line = self.parse(
            workload='allreduce', arguments={'rank': 1}
        ).findtext('os/cmdline')
        self.assertIn(' vhpc.workload=allreduce ', line)
        self.assertIn(' vhpc.rank=1', line)

    def test_unknown_workload_is_refused_with_the_known_ones(self):
        error = self.assertRaises(ValueError, self.parse, workload='x')
        self.assertIn('barrier', str(error))

    def test_each_bridge_gets_a_nic(self):
        root = self.parse(bridges=('br0', 'br1'))
        self.assertEqual(
            ['br0', 'br1'],
            [
                nic.find('source').get('bridge')
                for nic in root.iter('interface')
            ],
        )
