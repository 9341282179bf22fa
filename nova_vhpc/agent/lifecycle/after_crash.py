# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restore what an agent that crashed has left in guests."""

import logging
import threading
from typing import Any

import libvirt

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalError, NewerVersion
from nova_vhpc.agent.libvirt import connection, executor
from nova_vhpc.agent.restore import recovery

LOG = logging.getLogger(__name__)

DRY_RUN = (
    'an agent that crashed has left its settings, and a dry run writes '
    'nothing; stop this one and run nova-vhpc-agent --restore'
)


class CrashRecovery:
    """Restores guests that an earlier agent left when it crashed.

    In a dry run they are only logged.

    :param permission: whether this is a dry run.
    """

    def __init__(
        self,
        restorer: recovery.Restorer,
        permission: registry.WritePermission,
    ) -> None:
        self._restorer = restorer
        self._permission = permission
        self._logged: set[str] = set()

    def recover(self, domain: Any, name: str) -> recovery.Outcome:
        """Restore a running domain if an earlier agent has written to it.

        :raises RestoreError: the domain lacks its original settings.
        :raises libvirt.libvirtError: libvirt refused a call.
        """
        if not self._permission.dry_run:
            return self._restorer.recover(domain)
        uuid = domain.UUIDString()
        if not self._needs_restore(uuid, domain):
            self._logged.discard(uuid)
        elif uuid not in self._logged:
            self._logged.add(uuid)
            LOG.warning('VM %s: not restored: %s', name, DRY_RUN)
        return recovery.Outcome.NOTHING

    def forget(self, uuid: str) -> None:
        """Remove the record of a domain that does not run on this host.

        A record that cannot be read is kept for the operator.
        """
        self._logged.discard(uuid)
        if not self._permission.dry_run:
            self._restorer.forget(uuid)

    def unrestored(self) -> dict[str, str]:
        """Return names, by UUID, of running domains that have a record.

        Once all guests are restored, such a record is of a domain that an
        earlier agent left when it crashed, and that this agent has not
        reached. Records of a newer agent do not count: their domains were
        restored without them.
        """
        journal, processes = self._restorer.journal, self._restorer.processes
        boot_id = processes.boot_id()
        names: dict[str, str] = {}
        for uuid in journal.uuids():
            try:
                record = journal.load(uuid)
            except NewerVersion:
                continue
            except JournalError:
                record = None
            if record is not None:
                run = record.identity
                # To search all processes for each of hundreds of stopped
                # domains would take long.
                if (
                    record.is_handed_back
                    or run.boot_id != boot_id
                    or (
                        run.pid
                        and processes.start_ticks(run.pid) != run.start_ticks
                    )
                ):
                    continue
            if processes.find(uuid):
                names[uuid] = uuid if record is None else record.name
        return names

    def why_left(self, uuid: str) -> str:
        """Return why a dry run leaves a guest unrestored; empty if not."""
        return DRY_RUN if uuid in self._logged else ''

    def _needs_restore(self, uuid: str, domain: Any) -> bool:
        """Return whether an agent has left values in a domain."""
        try:
            record = self._restorer.journal.load(uuid)
            if record is not None and record.identity.same_run(
                self._restorer.processes.identity(uuid, domain.ID())
            ):
                return not record.is_handed_back
            return store.get_metadata(domain) is not None
        except JournalError:
            return True


class LastLook:
    """Recovers, while the agent stops, domains that it has not adopted.

    The agent may stop before it has looked at what an earlier one has left,
    or even before libvirt is connected.

    :ivar listed: whether libvirt has said which domains run.
    """

    def __init__(
        self, context: HostContext, crash_recovery: CrashRecovery
    ) -> None:
        self.listed = False
        self._context = context
        self._crash_recovery = crash_recovery
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._submitted: set[str] = set()

    @property
    def left(self) -> dict[str, str]:
        """Names, by UUID, of domains that may have values of an agent."""
        with self._lock:
            return dict(self._names)

    def submit(self) -> None:
        """Have each domain recovered that is not yet; return at once."""
        if not self.listed:
            self._submit('', self._list)
        for uuid in self.left:
            self._submit_one(uuid)

    def _submit_one(self, uuid: str) -> None:
        self._submit(uuid, lambda: self._recover(uuid))

    def _submit(self, key: str, call: executor.Call) -> None:
        """Submit a call unless the last one of its key has not returned."""
        if not self._context.connection.up:
            return
        with self._lock:
            if key in self._submitted:
                return
            self._submitted.add(key)

        def run() -> None:
            try:
                call()
            except libvirt.libvirtError as error:
                self._context.connection.failed(error)
            finally:
                with self._lock:
                    self._submitted.discard(key)

        self._context.executor.submit(key, run)

    def _list(self) -> None:
        """Find the running domains that this agent knows nothing of."""
        guests = self._context.guests
        names = {
            domain.UUIDString(): domain.name()
            for domain in self._context.connection.get().listAllDomains(
                libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE
            )
        }
        for uuid in guests.by_uuid.keys() | guests.unmanaged_uuids():
            names.pop(uuid, None)
        with self._lock:
            self._names = names
        self.listed = True
        for uuid in names:
            self._submit_one(uuid)

    def _recover(self, uuid: str) -> None:
        name = self._names[uuid]
        try:
            domain = self._context.connection.get().lookupByUUIDString(uuid)
            if domain.ID() >= 0:
                # One that arrives takes no writes yet.
                if connection.is_arriving(domain):
                    return
                self._crash_recovery.recover(domain, name)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
        except JournalError as error:
            # Its record, if there is one, is unrestored() in the end.
            LOG.debug(
                'VM %s: nothing says that it was written: %s', name, error
            )
        except (recovery.RestoreError, OSError) as error:
            LOG.debug('VM %s: not restored yet: %s', name, error)
            return
        with self._lock:
            self._names.pop(uuid, None)
