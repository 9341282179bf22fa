# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restore what an agent that crashed has left in guests."""

import logging
from typing import Any

from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalError, NewerVersion
from nova_vhpc.agent.restore import recovery

LOG = logging.getLogger(__name__)

DRY_RUN = (
    'an agent that crashed has left its settings, and a dry run writes '
    'nothing; stop this one and run nova-vhpc-agent --restore'
)


class CrashRecovery:
    """Restores guests that an earlier agent left when it crashed.

    In a dry run they are only logged.

    :param restorer: restores one domain.
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
