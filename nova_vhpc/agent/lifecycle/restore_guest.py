# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restore one guest that this agent has written to."""

import dataclasses
import logging

from nova_vhpc.agent.actuators import affinity, weights
from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import misdirected_writes, policy
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.agent.restore import recovery

LOG = logging.getLogger(__name__)


class GuestRestorer:
    """Restores a guest that this agent has written to."""

    def __init__(
        self,
        context: HostContext,
        policy: policy.ExternalChangePolicy,
        misdirected: misdirected_writes.MisdirectedWrites,
    ) -> None:
        self._context = context
        self._policy = policy
        self._misdirected = misdirected

    def restore(self, guest: Guest) -> None:
        """Restore a guest exactly, and remove its record.

        :raises RunChangedError: the domain was started again, and so has no
            values of the agent.
        :raises RestoreError: the guest lacks some original settings.
        :raises libvirt.libvirtError, JournalError, OSError: likewise.
        """
        with guest.lock:
            self._restore_locked(guest)

    def _restore_locked(self, guest: Guest) -> None:
        # A window may write under the lock if the hold ends meanwhile.
        guest.forbid_lock_free_weights()
        if guest.journalled:
            self._restore_values(guest)
            self._forget_writes(guest)
        elif Hold.MIGRATING not in guest.holds:
            # During a migration the call would hang, and come too late.
            if guest.copy_for_destination or _needs_copy(guest):
                self._check_run(guest)
            self._update_metadata(guest, guest.copy_for_destination)

    def _check_run(self, guest: Guest) -> None:
        """Check that the domain still has the guest's run; the lock is held.

        Otherwise calls would reach the next run, which may not be managed.

        :raises RunChangedError: the domain was started again.
        """
        domain = self._context.connection.get().lookupByUUIDString(guest.uuid)
        if domain.ID() != guest.domain_id:
            raise misdirected_writes.RunChangedError
        # The old object may be of a lost connection: while the agent stops,
        # no reconcile replaces it.
        guest.domain = domain

    def _restore_values(self, guest: Guest) -> None:
        self._check_run(guest)
        self._policy.respect_unchecked(guest)
        # Events of these writes come late, and must be known as the agent's.
        history = guest.event_history
        original = written_values.values(guest.original)
        history.note(
            {
                name: value
                for name, value in original.items()
                if name not in guest.unmanaged_fields
            }
        )
        if cputune.SHARES in guest.original.parameters:
            shares = guest.original.parameters[cputune.SHARES]
            history.written_shares.add(shares)
        if cputune.SHARES not in guest.unmanaged_fields:
            weights.end_idle(
                guest.uuid,
                guest.domain_id,
                guest.written,
                self._context.processes,
            )
        _release_affinity(guest)
        differences: tuple[str, ...] = ()
        try:
            differences = cputune_restore.restore(
                guest.domain,
                guest.original,
                guest.unmanaged_fields,
                cputune.SHARES in guest.written,
                lambda: self._context.processes.cpuset(guest.identity.pid),
            )
        finally:
            # A call that waited for the end of its run reaches the next one.
            if self._misdirected.revert(guest, restored=True):
                raise misdirected_writes.RunChangedError
        if differences:
            raise recovery.RestoreError('; '.join(differences))

    def _forget_writes(self, guest: Guest) -> None:
        guest.has_metadata_copy = False
        self._update_metadata(guest, True)
        if guest.external:
            # The next agent must not manage the guest either.
            self._context.journal.save(guest.record().handed_back())
        else:
            self._context.journal.remove(guest.uuid)
        guest.overwritten = frozenset()
        guest.journalled = False
        guest.uncertain = False
        guest.written = {}
        if not self._context.permission.ending.is_set():
            guest.set_expected(cputune.read(guest.domain))

    def _update_metadata(self, guest: Guest, has_copy: bool) -> None:
        """Write or remove the metadata copy of a guest that was restored.

        :param has_copy: whether the live XML may have a copy now.
        """
        if _needs_copy(guest):
            record = dataclasses.replace(guest.record(), restored=True)
            self._misdirected.put_metadata(guest, record)
            guest.copy_for_destination = True
        elif has_copy:
            store.remove_metadata(guest.domain)
            guest.copy_for_destination = False


def _needs_copy(guest: Guest) -> bool:
    """Return whether the destination of a migration needs a copy."""
    return guest.needs_copy_on_migration and (
        guest.copy_for_destination or guest.keeps_agent_pins
    )


def _release_affinity(guest: Guest) -> None:
    """Let vCPUs run where the pins allow it; gang windows placed them.

    All other values are restored if that fails.
    """
    try:
        # A window that places the guest now ends first.
        with guest.state_lock:
            affinity.release_guest(guest)
    except OSError as error:
        LOG.warning(
            'VM %s: its vCPUs stay on the CPUs where gang windows put them, '
            'until they are pinned again: %r',
            guest.name,
            error,
        )
