# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The journal's copy inside the domain's live XML.

A live migration and a managed save carry the agent's settings to a QEMU
process that has no record in this host's journal. The metadata copy, an
element of its own in the live ``<metadata>``, travels with the settings, so
that any agent or hook that finds it can restore the original settings. It is
removed when the settings are restored.
"""

import html
from typing import Any

import libvirt

from nova_vhpc.agent.journal.record import JournalRecord

URI = 'http://openstack.org/xmlns/libvirt/nova-vhpc/1.0'
PREFIX = 'vhpc'

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
_OPEN, _CLOSE = '<journal>', '</journal>'


def put(domain: Any, record: JournalRecord) -> None:
    """Write the metadata copy.

    :raises libvirt.libvirtError: libvirt refused it.
    """
    # The domain's name may contain any character.
    text = html.escape(record.to_json(), quote=False)
    domain.setMetadata(_ELEMENT, f'{_OPEN}{text}{_CLOSE}', PREFIX, URI, _LIVE)


def get(domain: Any) -> JournalRecord | None:
    """Return the metadata copy; None if there is none.

    :raises NewerVersion: a newer agent wrote the copy.
    :raises JournalError: the copy is damaged.
    :raises libvirt.libvirtError: libvirt could not read it.
    """
    try:
        xml = domain.metadata(_ELEMENT, URI, _LIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return None
        raise
    text = html.unescape(xml.partition('>')[2].rpartition('<')[0])
    return JournalRecord.from_json(text, f'metadata of {domain.name()}')


def remove(domain: Any) -> None:
    """Remove the metadata copy, if there is one.

    :raises libvirt.libvirtError: libvirt refused it.
    """
    try:
        domain.setMetadata(_ELEMENT, None, PREFIX, URI, _LIVE)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            raise
