# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Damaged journal records and domain XML."""

import contextlib
import html
import json
import random

from nova_vhpc.agent.journal import record, store
from nova_vhpc.agent.libvirt import cputune, domain_xml, interfaces
from nova_vhpc.agent.restore import incoming
from nova_vhpc.linux import qemu_process
from nova_vhpc_lab.soak import damage

IDENTITY = qemu_process.Identity('boot', 12, 34, 5)
RECORD = record.JournalRecord(
    'u-1',
    'instance-1',
    IDENTITY,
    cputune.Cputune(
        {'vcpu_period': 100000, 'vcpu_quota': -1, 'cpu_shares': 1024},
        (frozenset({0, 1}), frozenset({0, 1})),
        frozenset({0, 1}),
        2,
    ),
    written={'vcpu_period': frozenset({8000}), 'cpu_shares': None},
)
XML = """<domain type='kvm' id='3'><name>instance-1</name><uuid>u-1</uuid>
<metadata><nova:instance
 xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
<nova:owner><nova:project uuid="p"/></nova:owner><nova:flavor name="f">
<nova:extraSpecs><nova:extraSpec name="vhpc:workload">parallel</nova:extraSpec>
<nova:extraSpec name="hw:cpu_policy">shared</nova:extraSpec></nova:extraSpecs>
</nova:flavor></nova:instance></metadata>
<vcpu placement='static' cpuset='0-1' current='2'>4</vcpu>
<cputune><shares>20</shares><vcpupin vcpu='0' cpuset='0'/></cputune>
<devices><interface type='bridge'><mac address='52:54:00:00:00:01'/>
<source bridge='br0'/><target dev='tap0'/></interface>
<disk><target dev='vda'/></disk></devices></domain>"""


def journal_record(rng: random.Random) -> None:
    """Read a journal record, and write again what was accepted."""
    try:
        accepted = RECORD.from_json(_damaged(rng, RECORD.to_json()), 'soak')
    except record.JournalError:
        return
    RECORD.from_json(accepted.to_json(), 'soak')


def domain(rng: random.Random) -> None:
    """Parse a domain's XML."""
    xml = damage.characters(rng, XML)
    for parse in (domain_xml.parse, interfaces.read):
        with contextlib.suppress(ValueError):
            parse(xml)


class _Domain:
    """A domain as libvirt returns its metadata element."""

    def __init__(self, xml: str) -> None:
        self._xml = xml

    def name(self) -> str:
        """Return the domain's name."""
        return 'instance-1'

    def metadata(self, kind: int, uri: str, flags: int) -> str:
        """Return the element that holds the copy of the record."""
        return self._xml


def metadata_copy(rng: random.Random) -> None:
    """Read a record's copy in a domain's metadata."""
    element = _element(rng)
    if rng.random() < 0.3:
        element = damage.characters(rng, element)
    with contextlib.suppress(record.JournalError):
        store.get_metadata(_Domain(element))


def libvirt_hook(rng: random.Random) -> None:
    """Give the hook the XML of an arriving domain, with a record's copy."""
    copy = _element(rng)
    prefix = f'<journal xmlns="{store.METADATA_URI}">'
    copy = copy.replace('<journal>', prefix)
    pins, shares = (str(damage.value(rng)) for _ in range(2))
    xml = XML.replace('</metadata>', f'{copy}</metadata>')
    if rng.random() < 0.5:
        xml = damage.characters(rng, xml)
    if rng.random() < 0.5:
        xml = xml.replace("cpuset='0'", f'cpuset="{html.escape(pins)}"')
        xml = xml.replace('>20<', f'>{html.escape(shares)}<')
    with contextlib.suppress(ValueError, record.JournalError):
        changed = incoming.with_original_settings(xml, frozenset({0, 1}))
        if changed is not None:
            # libvirt must be able to read what the hook writes.
            domain_xml.parse(changed)


def _element(rng: random.Random) -> str:
    """Return a metadata element with a damaged record, or a valid one."""
    text = RECORD.to_json()
    if rng.random() < 0.9:
        text = _damaged(rng, text)
    return f'<journal>{html.escape(text, quote=False)}</journal>'


def _damaged(rng: random.Random, text: str) -> str:
    """Return a damaged record, often with the right checksum nevertheless."""
    source = json.loads(text)
    del source[record.CHECKSUM_KEY]
    edited = damage.document(rng, source)
    if isinstance(edited, dict) and rng.random() < 0.7:
        return record.encode(edited)
    return damage.encoded(rng, json.loads(text))
