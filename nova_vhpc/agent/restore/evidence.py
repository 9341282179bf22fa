# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the journal and the metadata say about a domain's original settings."""

import contextlib
import dataclasses
import logging
from typing import Any

import libvirt

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.journal.record import JournalError, JournalRecord
from nova_vhpc.linux import qemu_process

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
            metadata_copy = domain_metadata.get(domain)
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
        copy = domain_metadata.get(domain)
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
