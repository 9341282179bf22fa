# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Detect and revert writes that reached the wrong run of a domain.

A libvirt call identifies a domain by its UUID only. If the domain is destroyed
and started again (a hard reboot) while a call waits for the domain's lock,
libvirt applies the call to the *new* QEMU process. Adoption would then record
the agent's value as the new run's original setting.

Therefore every write is followed by a check of the domain's run ID, and a
write that reached another run is reverted to that run's persistent definition.
The guest's lock is held throughout, and adoption of the new run waits for it.
"""

import contextlib
from typing import Any

import libvirt

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.journal.record import JournalError, JournalRecord
from nova_vhpc.agent.libvirt import connection, cputune
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process


class RunChangedError(Exception):
    """The domain was started again: a read or write reached another run."""


class MisdirectedWrites:
    """Detects writes that reached another run, and reverts them.

    :param connection: the connection to libvirt.
    """

    def __init__(
        self,
        connection: connection.Connection,
        processes: qemu_process.Processes,
    ) -> None:
        self._connection = connection
        self._processes = processes

    def revert(self, guest: Guest, restored: bool = False) -> bool:
        """Check whether a write reached its run; revert it if it did not.

        The caller holds the guest's lock.

        :param restored: whether original settings were written, too.
        :returns: whether the write reached another run, or none.
        :raises libvirt.libvirtError: libvirt cannot say, or refused a call.
        """
        if self._connection.runs(guest.uuid, guest.domain_id):
            return False
        # The file may have been found by the process of the other run.
        guest.forbid_lock_free_weights()
        guest.weight_file = None
        domain = self._connection.get().lookupByUUIDString(guest.uuid)
        if domain.ID() >= 0 and not _has_metadata_copy(domain):
            written = guest.written
            if restored:
                for values in (
                    written_values.values(guest.original),
                    _external_bandwidth(guest),
                ):
                    written = written_values.with_values(written, values)
            # Adoption tries again as long as the journal has a record.
            with contextlib.suppress(recovery.RestoreError):
                recovery.revert(domain, written, self._processes.cgroup)
        return True

    def put_metadata(self, guest: Guest, record: JournalRecord) -> None:
        """Write a metadata copy, and remove it if it reached another run.

        Adoption would otherwise restore the new run to the settings of this
        one.

        :raises RunChangedError: the domain was started again.
        :raises libvirt.libvirtError: libvirt refused it.
        """
        store.put_metadata(guest.domain, record)
        if not self._connection.runs(guest.uuid, guest.domain_id):
            with contextlib.suppress(libvirt.libvirtError):
                store.remove_metadata(guest.domain)
            raise RunChangedError


def _external_bandwidth(guest: Guest) -> dict[str, written_values.Value]:
    """Return the external value of period or quota, by name.

    A restore of the other one has written it, too: libvirt is called with
    both.
    """
    now = written_values.values(guest.expected)
    both = {cputune.PERIOD, cputune.QUOTA} & guest.external
    return {name: now[name] for name in both if name in now}


def _has_metadata_copy(domain: Any) -> bool:
    """Return whether the domain has a metadata copy, even a damaged one.

    Adoption restores a domain that has one.
    """
    try:
        return store.get_metadata(domain) is not None
    except JournalError:
        return True
