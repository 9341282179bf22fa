# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Domains that bring their metadata copy along from another run.

A domain that was live migrated to this host, or started from a managed save,
has values of the other run's agent in force. The copy holds the original ones.
"""

import contextlib
import io
import xml.etree.ElementTree as ElementTree

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.control import model
from nova_vhpc.linux import cpus

_ELEMENTS = {
    cputune.SHARES: 'shares',
    cputune.PERIOD: 'period',
    cputune.QUOTA: 'quota',
}
_ALL_BUT_PINS = frozenset({cputune.PERIOD, cputune.QUOTA, cputune.SHARES})


def unmanaged_fields(copy: JournalRecord) -> frozenset[str]:
    """Return names of values that must stay as they came.

    :returns: names as in :attr:`.JournalRecord.unmanaged_fields`.
    """
    names = copy.unmanaged_fields
    if copy.restored:
        names |= _ALL_BUT_PINS
    if not copy.repin and not copy.is_floating:
        # No agent pins such guests. Nova gives guests with dedicated CPUs or
        # NUMA nodes other CPUs on each host; these are in force already.
        names |= {cputune.PINS}
    return names


def pins(
    copy: JournalRecord,
    cpuset: frozenset[int] | None,
    here: frozenset[int],
) -> tuple[frozenset[int] | None, ...]:
    """Return the original pins of each vCPU, in this host's CPUs.

    :param cpuset: ``cpuset`` of the domain's ``<vcpu>``, which Nova writes for
        each host; None without one.
    :param here: this host's CPUs.
    :returns: None for a vCPU that may use all CPUs that Nova gives to guests.
    """
    everywhere = frozenset(range(copy.original.host_cpus))
    return tuple(
        None
        if copy.is_floating
        or pin == everywhere
        or cpuset is not None
        or not pin & here
        else pin & here
        for pin in copy.original.vcpupins
    )


def with_original_settings(xml: str, here: frozenset[int]) -> str | None:
    """Return the XML of an incoming domain with its original settings.

    Unlike a libvirt call, this can take ``<vcpupin>`` elements out, so that
    the domain can start on a host that lacks CPUs that it was pinned to.

    :param xml: XML that libvirt passes to the migration hook.
    :param here: this host's CPUs that are online.
    :returns: None if the XML needs no change.
    :raises ValueError: the text is not a domain's XML.
    :raises JournalError: the copy is damaged, or a newer agent's.
    """
    info = domain_xml.parse(xml)
    _keep_prefixes(xml)
    root = ElementTree.fromstring(xml)
    metadata, tune = root.find('./metadata'), root.find('./cputune')
    element = root.find(f'./metadata/{{{store.METADATA_URI}}}journal')
    if metadata is None or element is None:
        if tune is None or not _has_only_agent_pins(info, tune, here):
            return None
        for pinned in tune.findall('./vcpupin'):
            tune.remove(pinned)
        return ElementTree.tostring(root, 'unicode')
    copy = JournalRecord.from_json(
        element.text or '', f'metadata of {info.name}'
    )
    if tune is not None:
        unmanaged = unmanaged_fields(copy)
        _restore_parameters(tune, copy, unmanaged)
        _restore_pins(tune, pins(copy, info.cpuset, here), unmanaged)
    metadata.remove(element)
    return ElementTree.tostring(root, 'unicode')


def _keep_prefixes(xml: str) -> None:
    """Keep the XML's namespace prefixes, because people compare such XML."""
    for _, (prefix, uri) in ElementTree.iterparse(
        io.StringIO(xml), ['start-ns']
    ):
        # ElementTree refuses prefixes like its own (``ns0``).
        with contextlib.suppress(ValueError):
            if prefix:
                ElementTree.register_namespace(prefix, uri)


def _has_only_agent_pins(
    info: domain_xml.DomainInfo,
    tune: ElementTree.Element,
    here: frozenset[int],
) -> bool:
    """Return whether all pins are what a stopped agent's restore has left.

    A floating guest keeps ``<vcpupin>`` elements with all CPUs that Nova gives
    to guests on the source host. On this host the same pins would fail, or
    take CPUs that Nova gives to other guests.
    """
    cpu_sets = {
        cpus.parse_cpu_set(element.get('cpuset', ''))
        for element in tune.findall('./vcpupin')
    }
    return (
        info.ours
        and not info.placed
        and len(cpu_sets) == 1
        and not cpu_sets.pop() <= (info.cpuset or here)
    )


def _restore_parameters(
    tune: ElementTree.Element, copy: JournalRecord, unmanaged: frozenset[str]
) -> None:
    original = copy.original.parameters
    for name, tag in _ELEMENTS.items():
        element = tune.find(tag)
        if element is None or name in unmanaged or name not in original:
            continue
        value = original[name]
        if name == cputune.QUOTA and cputune.is_unlimited(value):
            value = model.UNLIMITED
        element.text = str(value)


def _restore_pins(
    tune: ElementTree.Element,
    wanted: tuple[frozenset[int] | None, ...],
    unmanaged: frozenset[str],
) -> None:
    for element in tune.findall('./vcpupin'):
        vcpu = int(element.get('vcpu', '-1'))
        if not unmanaged.isdisjoint((cputune.PINS, cputune.pin_name(vcpu))):
            continue
        pin = wanted[vcpu] if 0 <= vcpu < len(wanted) else None
        if pin is None:
            tune.remove(element)
        else:
            element.set('cpuset', cpus.format_cpu_set(pin))
