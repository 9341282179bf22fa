# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.libvirt.domain_xml`."""

from oslotest import base

from nova_vhpc.agent.libvirt import domain_xml

XML = """
<domain>
  <uuid>8d4b6e9a-0000-4000-8000-000000000001</uuid>
  <name>instance-00000001</name>
  {metadata}
  <vcpu{cpuset}>4</vcpu>
  {extra}
  <devices>
    <interface type='bridge'><target dev='tap1'/></interface>
    <interface type='hostdev'/>
    <disk type='file'><target dev='vda'/></disk>
  </devices>
</domain>
"""

NOVA = """
<metadata>
  <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/{v}">
    <nova:name>wn-1</nova:name>
    <nova:flavor name="hpc"><nova:extraSpecs>{specs}</nova:extraSpecs>
    </nova:flavor>
    <nova:owner><nova:project uuid="p1">x</nova:project></nova:owner>
  </nova:instance>
</metadata>
"""


def xml(
    specs: dict[str, str] | None, extra: str = '', cpuset: str = ''
) -> str:
    metadata = (
        ''
        if specs is None
        else NOVA.format(
            v='1.1',
            specs=''.join(
                f'<nova:extraSpec name="{k}">{v}</nova:extraSpec>'
                for k, v in specs.items()
            ),
        )
    )
    return XML.format(metadata=metadata, extra=extra, cpuset=cpuset)


class TestDomainXml(base.BaseTestCase):
    def test_server_with_vhpc_specs_is_parsed(self) -> None:
        info = domain_xml.parse(xml({'vhpc:workload': 'parallel'}))
        self.assertTrue(info.ours)
        self.assertEqual('parallel', info.specs.workload)
        self.assertEqual(4, info.vcpus)
        self.assertEqual(('tap1',), info.taps)
        self.assertEqual(('vda',), info.disks)
        self.assertEqual('p1', info.project)
        self.assertEqual('wn-1', info.server_name)
        self.assertTrue(info.repin)

    def test_server_name_is_one_line_or_empty(self) -> None:
        for name, expected in (
            ('<nova:name>a  b\n&lt;c&gt;</nova:name>', 'a b <c>'),
            ('<nova:name/>', ''),
            ('', ''),
        ):
            text = xml({}).replace('<nova:name>wn-1</nova:name>', name)
            self.assertEqual(expected, domain_xml.parse(text).server_name)
        self.assertEqual('', domain_xml.parse(xml(None)).server_name)

    def test_numbers_of_vcpus_are_given_if_there_is_a_gap(self) -> None:
        for enabled, numbers, vcpus in (
            ('yyyy', None, 4),
            ('yynn', None, 4),
            ('yyny', (0, 1, 3), 3),
            ('ynyn', (0, 2), 2),
        ):
            states = ''.join(
                f'<vcpu id="{number}" enabled="{letter.replace("y", "yes")}"/>'
                for number, letter in enumerate(enabled)
            )
            info = domain_xml.parse(
                xml({'vhpc:workload': 'parallel'}, f'<vcpus>{states}</vcpus>')
            )
            self.assertEqual(numbers, info.vcpu_numbers)
            self.assertEqual(vcpus, info.vcpus)

    def test_domain_without_vhpc_specs_is_not_managed(self) -> None:
        self.assertFalse(domain_xml.parse(xml(None)).ours)
        self.assertFalse(domain_xml.parse(xml({})).ours)
        self.assertFalse(
            domain_xml.parse(xml({'hw:cpu_policy': 'shared'})).ours
        )

    def test_hint_to_the_guest_does_not_make_a_domain_managed(self) -> None:
        hint = {'vhpc:wait': 'passive'}
        self.assertFalse(domain_xml.parse(xml(hint)).ours)
        self.assertTrue(
            domain_xml.parse(xml({**hint, 'vhpc:workload': 'general'})).ours
        )

    def test_server_with_host_cpus_of_its_own_is_not_repinned(self) -> None:
        requested = {'vhpc:workload': 'parallel'}
        for specs, extra in (
            ({**requested, 'hw:cpu_policy': 'dedicated'}, ''),
            ({**requested, 'hw:cpu_policy': 'mixed'}, ''),
            ({**requested, 'resources:PCPU': '4'}, ''),
            (requested, '<numatune><memory nodeset="0"/></numatune>'),
            (requested, '<cpu><numa><cell id="0"/></numa></cpu>'),
            (
                requested,
                '<cputune><vcpupin vcpu="0" cpuset="1"/></cputune>',
            ),
        ):
            self.assertFalse(domain_xml.parse(xml(specs, extra)).repin)

    def test_live_pins_of_the_agent_do_not_prevent_repinning(self) -> None:
        requested = {'vhpc:workload': 'parallel'}
        live = xml(
            requested, '<cputune><vcpupin vcpu="0" cpuset="1"/></cputune>'
        )
        self.assertTrue(domain_xml.parse(live, xml(requested)).repin)

    def test_cpuset_is_parsed(self) -> None:
        info = domain_xml.parse(xml({}, cpuset=" cpuset='0-2,^1'"))
        self.assertEqual({0, 2}, info.cpuset)

    def test_invalid_xml_raises_value_error(self) -> None:
        for text in ('', '<domain/>', '<network><uuid>1</uuid></network>'):
            self.assertRaises(ValueError, domain_xml.parse, text)
