# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Collect what says how a domain was set before an agent wrote to it.

The journal, the metadata and the persistent definition.
"""

import contextlib
import dataclasses
import logging
import pathlib
import xml.etree.ElementTree as ElementTree
from typing import Any

import libvirt

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalError, JournalRecord
from nova_vhpc.agent.libvirt import cputune, domain_xml
from nova_vhpc.agent.restore import incoming
from nova_vhpc.control import model
from nova_vhpc.linux import cgroup, cpus, qemu_process

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that says how a domain was set before an agent wrote to it.

    In order of trust: the record of this run, the copy in the domain's
    metadata, the persistent definition.

    :ivar identity: the present run of the domain.
    :ivar record: journal record of this run, or None.
    :ivar record_of_earlier_run: journal record of an earlier run, or None. The
        restart reset the domain from its persistent definition, which no
        agent writes.
    :ivar record_error: why the journal record cannot be used, or None.
    :ivar metadata_copy: copy in the live XML, or None; also None if there is
        a record of this run that is as new.
    :ivar metadata_error: why that copy cannot be used, or None.
    """

    identity: qemu_process.Identity
    record: JournalRecord | None
    record_of_earlier_run: JournalRecord | None
    record_error: JournalError | None
    metadata_copy: JournalRecord | None
    metadata_error: JournalError | None

    @property
    def has_metadata(self) -> bool:
        """Whether the live XML has a copy, even a damaged one."""
        return bool(self.metadata_copy or self.metadata_error)

    @property
    def complete_copy(self) -> JournalRecord | None:
        """The copy if it tells external changes from written values.

        After a migration the pins are another host's.
        """
        copy = self.metadata_copy
        if copy is None or copy.restored:
            return None
        same_boot = copy.identity.boot_id == self.identity.boot_id
        return copy if same_boot else None

    @property
    def needs_no_restore(self) -> bool:
        """Whether the original settings are known to be in force.

        A metadata copy is then for the destination host of a migration.
        """
        copy = self.metadata_copy
        return (self.record is not None and self.record.is_handed_back) or (
            copy is not None
            and copy.restored
            and copy.identity.same_run(self.identity)
            and self.record_error is None
        )


def collect(
    domain: Any,
    identity: qemu_process.Identity,
    journal: store.Journal,
    processes: qemu_process.Processes,
) -> Evidence:
    """Read the journal and the metadata of a domain.

    A record that is older than the copy in the metadata lacks values that
    were written since, which would be taken for external changes: it is not
    used.

    If there is a record of this run, its weight is restored at once by the
    control group's file: libvirt accepts no writes while a domain is migrated
    away, and waits for one that hangs, or that a gang window has starved.

    :param identity: the present run of the domain.
    :raises libvirt.libvirtError: libvirt refused a call.
    """
    record = earlier = metadata_copy = None
    record_error = metadata_error = None
    try:
        record = journal.load(domain.UUIDString())
    except JournalError as error:
        record_error = error
    if record is not None and not record.identity.same_run(identity):
        earlier, record = record, None
    if record is not None:
        metadata_copy = _newer_copy(domain, record)
        if metadata_copy is not None:
            record = None
    if record is not None:
        weights.restore_recorded_by_file(domain, record, processes)
    elif metadata_copy is None:
        try:
            metadata_copy = store.get_metadata(domain)
        except JournalError as error:
            metadata_error = error
    return Evidence(
        identity, record, earlier, record_error, metadata_copy, metadata_error
    )


def _newer_copy(domain: Any, record: JournalRecord) -> JournalRecord | None:
    """Return the copy in the metadata if it is newer than a record.

    :param record: the journal's record of the present run.
    """
    copy = None
    # Without a usable copy, the record is all there is.
    with contextlib.suppress(JournalError, libvirt.libvirtError):
        copy = store.get_metadata(domain)
    if (
        copy is None
        or copy.sequence <= record.sequence
        or not copy.identity.same_run(record.identity)
    ):
        return None
    LOG.warning(
        'VM %s: its journal record is older than the copy in its metadata, '
        'as if a backup was restored; the copy is used',
        record.name,
    )
    return copy


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
