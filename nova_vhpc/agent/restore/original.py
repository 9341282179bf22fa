# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Find a domain's original settings in a record or its definition."""

import dataclasses
import pathlib
import xml.etree.ElementTree as ElementTree
from typing import Any

import libvirt

from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.restore import incoming
from nova_vhpc.control import model
from nova_vhpc.linux import cgroup, cpus, qemu_process

DEFAULT_PERIOD_US = 100_000


def from_record(
    domain: Any,
    record: JournalRecord | None,
    copy: JournalRecord | None,
    identity: qemu_process.Identity,
) -> tuple[cputune.Cputune | None, frozenset[str]]:
    """Return the original settings that the journal or its copy holds.

    :param record: journal record of this run, or None.
    :param copy: copy in the live XML, of this run or another one, or None.
    :param identity: the present run of the domain.
    :returns: the settings, None without record and copy; and names of values
        that must not be written.
    :raises libvirt.libvirtError: libvirt refused a call.
    """
    if record is not None:
        return _with_new_cpus(domain, record), record.unmanaged_fields
    if copy is None:
        return None, frozenset()
    if copy.identity.same_run(identity):
        return _with_new_cpus(domain, copy), copy.unmanaged_fields
    # The domain was migrated here or started from a managed save: its CPUs
    # are this host's, all other settings are its own.
    host_cpus = len(domain.emulatorPinInfo(cputune.LIVE))
    # Nova writes the cpuset for this host into the XML.
    cpuset = domain_xml.parse(domain.XMLDesc(0)).cpuset
    here = frozenset(range(host_cpus))
    pins = incoming.pins(copy, cpuset, here)
    return (
        dataclasses.replace(
            copy.original,
            vcpupins=tuple(pin or cpuset or here for pin in pins),
            emulatorpin=frozenset(),
            host_cpus=host_cpus,
        ),
        incoming.unmanaged_fields(copy),
    )


def _with_new_cpus(domain: Any, record: JournalRecord) -> cputune.Cputune:
    """Return the original settings on the host CPUs that are online now.

    A floating guest could also use CPUs that were switched on while no agent
    ran; :mod:`.cpu_hotplug` handles those that are while one runs.
    """
    original = record.original
    if not record.is_floating or domain_xml.parse(domain.XMLDesc(0)).cpuset:
        return original
    online = cputune.online(domain)
    return dataclasses.replace(
        original,
        vcpupins=tuple(pin | online for pin in original.vcpupins),
        host_cpus=max(original.host_cpus, *(cpu + 1 for cpu in online)),
    )


def from_definition(domain: Any, cgroup_root: pathlib.Path) -> cputune.Cputune:
    """Return the settings that the domain's persistent definition starts with.

    The last resort if the journal record is damaged and there is no metadata
    copy: neither Nova nor the agent changes the cputune in the persistent
    definition of a running domain.

    :param cgroup_root: mount point of the control groups.
    :raises libvirt.libvirtError: libvirt refused a call.
    """
    now = cputune.read(domain)
    root = ElementTree.fromstring(
        domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    v2 = cgroup.cpu_is_v2(cgroup_root)
    shares = model.DEFAULT_SHARES_V2 if v2 else model.DEFAULT_SHARES_V1
    unset = {
        cputune.PERIOD: ('period', DEFAULT_PERIOD_US),
        cputune.QUOTA: ('quota', -1),
        cputune.SHARES: ('shares', shares),
    }
    parameters = dict(now.parameters)
    for name, (element, default) in unset.items():
        value = int(root.findtext(f'./cputune/{element}') or default)
        if name == cputune.QUOTA and cputune.is_unlimited(value):
            # Keep the number that means "unlimited" on this host.
            old = parameters.get(name, value)
            value = old if cputune.is_unlimited(old) else model.UNLIMITED
        parameters[name] = value
    info = domain_xml.parse(ElementTree.tostring(root, 'unicode'))
    pin = info.cpuset or frozenset(range(now.host_cpus))
    pins = [pin] * len(now.vcpupins)
    for pinned in root.findall('./cputune/vcpupin'):
        vcpu = int(pinned.get('vcpu', '-1'))
        if 0 <= vcpu < len(pins):
            pins[vcpu] = cpus.parse_cpu_set(pinned.get('cpuset', ''))
    return dataclasses.replace(
        now, parameters=parameters, vcpupins=tuple(pins)
    )
