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

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Any

import libvirt

from nova_vhpc.agent.external_changes import misdirected_writes, policy
from nova_vhpc.agent.guests import guest, write_permission
from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.libvirt import connection, cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process


class GuestRestorer:
    """Puts VMs back exactly.

    :param allowed: whether the agent is ending.
    :param link: to libvirt.
    :param records: the journal.
    :param actuators: what has written.
    :param changes: finds what others wrote.
    :param host: reads the QEMU processes.
    """

    def __init__(
        self,
        allowed: write_permission.WritePermission,
        link: connection.Connection,
        records: store.Journal,
        actuators: Iterable[Any],
        changes: policy.ExternalChangePolicy,
        host: qemu_process.Processes,
    ) -> None:
        self._gate = allowed
        self._connection = link
        self._journal = records
        self._actuators = tuple(actuators)
        self._changes = changes
        self._strays = misdirected_writes.MisdirectedWrites(link, host)
        self._host = host

    def put_back(self, target: guest.Guest) -> None:
        """Put a VM back exactly, and forget that we ever wrote.

        :raises RunChangedError: the domain has started anew, without our
            values.
        :raises restore.RestoreError: it is not exactly what it was.
        :raises libvirt.libvirtError, JournalError, OSError: likewise.
        """
        with target.lock:
            self._put_back_locked(target)

    def _put_back_locked(self, target: guest.Guest) -> None:
        # Also if the reason to put it back ends before that is done.
        target.stop_free_weights()
        tried = [_undo(actuator, target) for actuator in self._actuators]
        if target.journalled:
            self._restore(target)
        for error in tried:
            if error is not None:
                raise error
        if target.journalled:
            self._forget_writes(target)
        elif guest.Hold.MIGRATING not in target.holds:
            # The call would hang otherwise, and come too late.
            if target.settled or _is_to_say(target):
                self._check_run(target)
            self._settle(target, target.settled)

    def _check_run(self, target: guest.Guest) -> None:
        """Only with the lock: whoever had it may have waited for its end.

        libvirt's calls would go to the next run, if there is one: of another
        flavor maybe, and not ours.
        """
        domain = self._connection.get().lookupByUUIDString(target.uuid)
        if domain.ID() != target.domain_id:
            raise misdirected_writes.RunChangedError
        # The one at hand may be of a connection that is gone; nobody looks at
        # VMs any more when the agent ends.
        target.domain = domain

    def _restore(self, target: guest.Guest) -> None:
        self._check_run(target)
        self._changes.settle(target)
        # The event of this write comes late, as all do.
        target.echoes.shares_ours |= {
            value
            for name, value in target.original.parameters.items()
            if name == cputune.SHARES
        }
        left: tuple[str, ...] = ()
        try:
            left = cputune_restore.restore(
                target.domain,
                target.original,
                target.released,
                cputune.SHARES in target.written,
                lambda: self._host.cpuset(target.identity.pid),
            )
        finally:
            # A call may have waited for the end of its run, and what was
            # right for that one came into the next.
            if self._strays.take_back(target, put_back=True):
                raise misdirected_writes.RunChangedError
        if left:
            raise recovery.RestoreError('; '.join(left))

    def _forget_writes(self, target: guest.Guest) -> None:
        target.marked = False
        self._settle(target, True)
        self._journal.remove(target.uuid)
        target.journalled = False
        target.uncertain = False
        target.written = {}
        if not self._gate.ending.is_set():
            target.set_expected(cputune.read(target.domain))

    def _settle(self, target: guest.Guest, marked: bool) -> None:
        """Have the XML of a VM that was put back say so, or say nothing.

        :param marked: it says something now.
        """
        if _is_to_say(target):
            record = dataclasses.replace(target.record(), settled=True)
            domain_metadata.put(target.domain, record)
            if not self._connection.runs(target.uuid, target.domain_id):
                # Whoever takes that run in would put it back to what this
                # one was. Without a copy of its own there is none of ours.
                with contextlib.suppress(libvirt.libvirtError):
                    domain_metadata.remove(target.domain)
                raise misdirected_writes.RunChangedError
            target.settled = True
        elif marked:
            domain_metadata.remove(target.domain)
            target.settled = False


def _is_to_say(target: guest.Guest) -> bool:
    return target.tells_another_host and (
        target.settled or target.has_our_pins
    )


def _undo(actuator: Any, target: guest.Guest) -> Exception | None:
    """What one cannot take back must not keep the journal from its part."""
    try:
        actuator.undo(target)
    except (OSError, libvirt.libvirtError) as error:
        return error
    except Exception as error:
        # Actuators are plugins.
        return OSError(
            f'actuator {type(actuator).__qualname__} failed: {error!r}'
        )
    return None
