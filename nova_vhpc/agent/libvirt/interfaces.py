# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Read a domain's NICs and choose which NIC uses which claimed uplink."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence


class UnsupportedError(Exception):
    """A claim cannot steer packets; the text says why, and what to do.

    :ivar what: what is wrong, with the names of host and NIC, uplink or
        network.
    :ivar remedy: what to do; empty if ``what`` says it.
    :ivar cause: word for the reason, for the status.
    """

    def __init__(
        self, what: str, remedy: str = '', *, cause: str = 'refused'
    ) -> None:
        super().__init__(f'{what}. {remedy}' if remedy else what)
        self.what = what
        self.remedy = remedy
        self.cause = cause


_HARDWARE = ('direct', 'hostdev', 'vdpa')
"""Types of interfaces that SR-IOV ports of Nova have: macvtap, passthrough of
a virtual function, and vDPA."""


@dataclasses.dataclass(frozen=True, slots=True)
class Nic:
    """One ``<interface>`` of a domain.

    :ivar bridge: Linux bridge that the XML names; None for a NIC of another
        kind.
    :ivar kind: type of the virtual port, else type of the interface.
    :ivar in_hardware: whether the NIC is a function of the host's hardware,
        whose uplink nobody else chooses.
    :ivar macvtap_on: interface of the host that a macvtap device is on; empty
        for other NICs.
    :ivar pci: PCI address of the function that is passed through, such as
        ``0000:08:00.2``; empty for other NICs.
    :ivar device: the host's end of the NIC, such as a tap; may be empty.
    """

    mac: str
    kind: str
    bridge: str | None = None
    in_hardware: bool = False
    macvtap_on: str = ''
    pci: str = ''
    device: str = ''


def read(xml: str) -> tuple[Nic, ...]:
    """Return all NICs of a domain's live XML, in the guest's order.

    :raises ValueError: the text is not XML.
    """
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise ValueError(f'not XML: {error}') from None
    return tuple(_nic(one) for one in root.findall('./devices/interface'))


def chosen(
    nics: Sequence[Nic], claims: int, uplink_nic: int | None
) -> Sequence[Nic]:
    """Return the NICs that use the claimed uplinks, in the guest's order.

    One claim concerns the NIC with the index ``uplink_nic``, or the last NIC.
    Several claims concern as many NICs: from that index on, or the last ones.

    :param claims: number of uplinks that the server has claimed.
    :param uplink_nic: ``vhpc:uplink_nic``, from 0; None if it is not set.
    :raises UnsupportedError: the guest has fewer NICs than claims.
    """
    first = len(nics) - claims if uplink_nic is None else uplink_nic
    taken = nics[first : first + claims] if first >= 0 else ()
    if len(taken) < claims:
        raise UnsupportedError(
            f'{claims} uplinks are claimed from NIC {max(first, 0)} on, but '
            f'the guest has {len(nics) or "no"} NICs',
            'Boot it with more ports, or correct vhpc:uplink_nic',
            cause='too-few-nics' if nics else 'no-nic',
        )
    return taken


def assign(
    present: Mapping[str, str | None], wanted: Sequence[str]
) -> Mapping[str, str]:
    """Give each NIC one of the wanted values, changing as few as possible.

    :param present: value of each NIC, by MAC address, in the guest's order.
    :param wanted: as many values as NICs.
    :returns: the new value by MAC address, of the NICs that lack theirs.
    """
    remaining = list(wanted)
    lacking = []
    for mac, value in present.items():
        if value in remaining:
            remaining.remove(value)
        else:
            lacking.append(mac)
    return dict(zip(lacking, remaining, strict=True))


def _nic(element: ElementTree.Element) -> Nic:
    mac = element.find('mac')
    source = element.find('source')
    port = element.find('virtualport')
    target = element.find('target')
    kind = element.get('type', '')
    if port is not None and port.get('type'):
        kind = port.get('type', '')
    source_of: Mapping[str, str] = {} if source is None else source.attrib
    bridge = source_of.get('bridge')
    # Nova passes macvtap devices on virtual functions through; those of
    # Neutron's macvtap agent share an interface with others.
    shares = source_of.get('mode', 'passthrough') != 'passthrough'
    return Nic(
        mac='' if mac is None else mac.get('address', ''),
        kind=kind,
        bridge=bridge if kind == 'bridge' else None,
        in_hardware=element.get('type', '') in _HARDWARE and not shares,
        macvtap_on=source_of.get('dev', '')
        if element.get('type') == 'direct'
        else '',
        pci=_pci(element.find('./source/address')),
        device='' if target is None else target.get('dev', ''),
    )


def _pci(address: ElementTree.Element | None) -> str:
    """Return a PCI address as sysfs names it; empty if there is none."""
    parts = ('domain', 'bus', 'slot', 'function')
    if address is None or address.get('type') != 'pci':
        return ''
    try:
        numbers = [int(address.get(part, '0'), 16) for part in parts]
    except ValueError:
        return ''
    return '{:04x}:{:02x}:{:02x}.{:x}'.format(*numbers)
