# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The XML of domains that come from another host."""

import xml.etree.ElementTree as ElementTree
from typing import Any
from xml.sax import saxutils

from oslotest import base

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import (
    JournalError,
    JournalRecord,
    NewerVersion,
)
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import incoming
from nova_vhpc.linux import qemu_process

NOVA = 'http://openstack.org/xmlns/libvirt/nova/1.1'
HERE = frozenset(range(4))
EIGHT = frozenset(range(8))
FLOATING = cputune.Cputune(
    {
        cputune.PERIOD: 100_000,
        cputune.QUOTA: 17_592_186_044_415,
        cputune.SHARES: 1024,
    },
    (EIGHT, EIGHT),
    EIGHT,
    8,
)
AGENT_TUNE = (
    '<shares>40960</shares><period>20000</period><quota>8000</quota>'
    "<vcpupin vcpu='0' cpuset='6'/><vcpupin vcpu='1' cpuset='7'/>"
    "<emulatorpin cpuset='1'/>"
)


def copy(original: cputune.Cputune = FLOATING, **about: Any) -> JournalRecord:
    identity = qemu_process.Identity('boot', 1, 2, 3)
    # Names are anybody's choice.
    return JournalRecord('u', 'a <&> "b"', identity, original, **about)


def domain(
    tune: str = AGENT_TUNE,
    record: JournalRecord | str | None = None,
    vcpu: str = '<vcpu>2</vcpu>',
    spec: str = 'vhpc:workload',
    extra: str = '',
) -> str:
    text = record.to_json() if isinstance(record, JournalRecord) else record
    metadata_copy = (
        ''
        if text is None
        else f'<vhpc:journal xmlns:vhpc="{store.METADATA_URI}">'
        f'{saxutils.escape(text)}</vhpc:journal>'
    )
    return (
        f'<domain type="kvm"><uuid>u</uuid><name>vm</name>{vcpu}{extra}'
        f'<metadata><nova:instance xmlns:nova="{NOVA}"><nova:flavor>'
        f'<nova:extraSpecs><nova:extraSpec name="{spec}">parallel'
        '</nova:extraSpec></nova:extraSpecs></nova:flavor></nova:instance>'
        f'{metadata_copy}</metadata><cputune>{tune}</cputune></domain>'
    )


class IncomingTest(base.BaseTestCase):
    def settings(self, xml: str) -> dict[str, str]:
        """Return the cputune elements of the changed XML."""
        changed = incoming.with_original_settings(xml, HERE) or ''
        root = ElementTree.fromstring(changed)
        self.assertIsNone(
            root.find(f'./metadata/{{{store.METADATA_URI}}}journal')
        )
        self.assertIn('<nova:extraSpec ', changed)
        return {
            element.tag + element.get('vcpu', ''): element.get('cpuset')
            or element.text
            or ''
            for element in root.findall('./cputune/*')
        }

    def test_incoming_xml_is_as_nova_made_it(self) -> None:
        self.assertEqual(
            {
                'shares': '1024',
                'period': '100000',
                'quota': '-1',
                'emulatorpin': '1',
            },
            self.settings(domain(record=copy(is_floating=True))),
        )

    def test_unmanaged_fields_stay(self) -> None:
        released = frozenset({cputune.QUOTA, cputune.PERIOD, 'vcpupin 1'})
        found = self.settings(
            domain(record=copy(is_floating=True, unmanaged_fields=released))
        )
        self.assertEqual(('20000', '8000'), (found['period'], found['quota']))
        self.assertEqual(
            ['vcpupin1'], [name for name in found if 'vcpupin' in name]
        )

    def test_only_pins_of_a_restored_guest_change(self) -> None:
        found = self.settings(
            domain(record=copy(is_floating=True, restored=True))
        )
        self.assertEqual('40960', found['shares'])
        self.assertNotIn('vcpupin0', found)

    def test_external_pins_are_restored_where_possible(self) -> None:
        by_hand = cputune.Cputune(
            {}, (frozenset({1, 6}), frozenset({6})), EIGHT, 8
        )
        found = self.settings(domain(record=copy(by_hand)))
        self.assertEqual('1', found['vcpupin0'])
        self.assertNotIn('vcpupin1', found)
        self.assertEqual('40960', found['shares'])

    def test_pins_are_removed_if_nova_gives_a_cpuset(self) -> None:
        by_hand = cputune.Cputune({}, (frozenset({1}),) * 2, EIGHT, 8)
        vcpu = "<vcpu cpuset='2-3'>2</vcpu>"
        found = self.settings(domain(record=copy(by_hand), vcpu=vcpu))
        self.assertNotIn('vcpupin0', found)

    def test_pins_of_dedicated_cpus_stay(self) -> None:
        tune = "<vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='3'/>"
        found = self.settings(domain(tune, copy(repin=False)))
        self.assertEqual({'vcpupin0': '2', 'vcpupin1': '3'}, found)

    def test_unreadable_copy_raises(self) -> None:
        newer = copy().to_json().replace('"version": 1', '"version": 99')
        self.assertRaises(
            NewerVersion,
            incoming.with_original_settings,
            domain(record=newer),
            HERE,
        )
        self.assertRaises(
            JournalError,
            incoming.with_original_settings,
            domain(record='{'),
            HERE,
        )

    def test_invalid_xml_raises(self) -> None:
        for xml in ('', '<', '<domain/>', '<network><uuid>u</uuid></network>'):
            self.assertRaises(
                ValueError, incoming.with_original_settings, xml, HERE
            )


class WithoutCopyTest(base.BaseTestCase):
    """A stopped agent leaves pins without a metadata copy."""

    ALL = "<vcpupin vcpu='0' cpuset='0-7'/><vcpupin vcpu='1' cpuset='0-7'/>"

    def changed(self, tune: str = ALL, **about: Any) -> str | None:
        return incoming.with_original_settings(domain(tune, **about), HERE)

    def test_pins_that_this_host_lacks_are_removed(self) -> None:
        changed = self.changed(f'<shares>9</shares>{self.ALL}') or ''
        self.assertNotIn('vcpupin', changed)
        self.assertIn('<shares>9</shares>', changed)

    def test_pins_to_cpus_of_other_guests_are_removed(self) -> None:
        here = "<vcpu cpuset='2-3'>2</vcpu>"
        for cpus in ('0-1', '0-3', '1-2'):
            pins = self.ALL.replace('0-7', cpus)
            changed = self.changed(pins, vcpu=here) or ''
            self.assertNotIn('vcpupin', changed)
            self.assertIn(here.replace("'", '"'), changed)
        for cpus in ('2-3', '2'):
            pins = self.ALL.replace('0-7', cpus)
            self.assertIsNone(self.changed(pins, vcpu=here))

    def test_other_pins_stay(self) -> None:
        self.assertIsNone(self.changed(self.ALL.replace('7', '3')))
        self.assertIsNone(self.changed(self.ALL.replace('0-7', '6', 1)))
        self.assertIsNone(self.changed(spec='hw:cpu_policy'))
        self.assertIsNone(self.changed(extra='<numatune/>'))
        self.assertIsNone(self.changed('<shares>40960</shares>'))

    def test_domain_without_metadata_is_not_changed(self) -> None:
        xml = '<domain><uuid>u</uuid><cputune/></domain>'
        self.assertIsNone(incoming.with_original_settings(xml, HERE))
