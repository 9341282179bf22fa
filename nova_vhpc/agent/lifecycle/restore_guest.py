# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""All that we wrote to one VM, taken back while the agent runs."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import libvirt

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import misdirected_writes, policy
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import domain_metadata, written_values
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.agent.restore import recovery


class GuestRestorer:
    """Restores a guest that this agent has written to.

    :param context: the agent's collaborators.
    :param actuators: restore what the journal does not record.
    :param policy: detects external changes.
    :param misdirected: reverts what was written to another run.
    """

    def __init__(
        self,
        context: HostContext,
        actuators: Iterable[Any],
        policy: policy.ExternalChangePolicy,
        misdirected: misdirected_writes.MisdirectedWrites,
    ) -> None:
        self._context = context
        self._actuators = tuple(actuators)
        self._policy = policy
        self._misdirected = misdirected

    def restore(self, guest: Guest) -> None:
        """Put a VM back exactly, and forget that we ever wrote.

        :raises RunChangedError: the domain has started anew, without our
            values.
        :raises restore.RestoreError: it is not exactly what it was.
        :raises libvirt.libvirtError, JournalError, OSError: likewise.
        """
        with guest.lock:
            self._restore_locked(guest)

    def _restore_locked(self, guest: Guest) -> None:
        # Also if the reason to put it back ends before that is done.
        guest.forbid_lock_free_weights()
        tried = [_undo(actuator, guest) for actuator in self._actuators]
        if guest.journalled:
            self._restore_values(guest)
        for error in tried:
            if error is not None:
                raise error
        if guest.journalled:
            self._forget_writes(guest)
        elif Hold.MIGRATING not in guest.holds:
            # The call would hang otherwise, and come too late.
            if guest.copy_for_destination or _is_to_say(guest):
                self._check_run(guest)
            self._settle(guest, guest.copy_for_destination)

    def _check_run(self, guest: Guest) -> None:
        """Only with the lock: whoever had it may have waited for its end.

        libvirt's calls would go to the next run, if there is one: of another
        flavor maybe, and not ours.
        """
        domain = self._context.connection.get().lookupByUUIDString(guest.uuid)
        if domain.ID() != guest.domain_id:
            raise misdirected_writes.RunChangedError
        # The one at hand may be of a connection that is gone; nobody looks at
        # VMs any more when the agent ends.
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
        left: tuple[str, ...] = ()
        try:
            left = cputune_restore.restore(
                guest.domain,
                guest.original,
                guest.unmanaged_fields,
                cputune.SHARES in guest.written,
                lambda: self._context.processes.cpuset(guest.identity.pid),
            )
        finally:
            # A call may have waited for the end of its run, and what was
            # right for that one came into the next.
            if self._misdirected.revert(guest, restored=True):
                raise misdirected_writes.RunChangedError
        if left:
            raise recovery.RestoreError('; '.join(left))

    def _forget_writes(self, guest: Guest) -> None:
        guest.has_metadata_copy = False
        self._settle(guest, True)
        if guest.external:
            # So that the next agent does not manage it either.
            self._context.journal.save(guest.record().handed_back())
        else:
            self._context.journal.remove(guest.uuid)
        guest.overwritten = frozenset()
        guest.journalled = False
        guest.uncertain = False
        guest.written = {}
        if not self._context.permission.ending.is_set():
            guest.set_expected(cputune.read(guest.domain))

    def _settle(self, guest: Guest, marked: bool) -> None:
        """Have the XML of a VM that was put back say so, or say nothing.

        :param marked: it says something now.
        """
        if _is_to_say(guest):
            record = dataclasses.replace(guest.record(), restored=True)
            self._misdirected.put_metadata(guest, record)
            guest.copy_for_destination = True
        elif marked:
            domain_metadata.remove(guest.domain)
            guest.copy_for_destination = False


def _is_to_say(guest: Guest) -> bool:
    return guest.needs_copy_on_migration and (
        guest.copy_for_destination or guest.keeps_agent_pins
    )


def _undo(actuator: Any, guest: Guest) -> Exception | None:
    """What one cannot take back must not keep the journal from its part."""
    try:
        actuator.undo(guest)
    except (OSError, libvirt.libvirtError) as error:
        return error
    except Exception as error:
        # Actuators are plugins.
        return OSError(
            f'actuator {type(actuator).__qualname__} failed: {error!r}'
        )
    return None
