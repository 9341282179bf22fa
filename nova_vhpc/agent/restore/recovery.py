# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restore a domain that an earlier agent has left with its own values.

After a crash, for ``nova-vhpc-agent --restore``, and for servers that opted
out while no agent ran.
"""

import enum
import logging
import pathlib
from typing import Any

from nova_vhpc.agent.actuators import affinity, weights
from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.journal.record import (
    JournalError,
    JournalRecord,
    NewerVersion,
    Unreadable,
)
from nova_vhpc.agent.libvirt import connection, cputune, domain_xml
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.agent.restore.evidence import (
    Evidence,
    collect,
    from_definition,
    from_record,
)
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)


class Outcome(enum.StrEnum):
    """Result for one domain; the values are shown in the log."""

    NOTHING = 'nothing to restore'
    RESTORED = 'restored'
    FROM_DEFINITION = 'set to its persistent definition'
    FROM_DEFINITION_NEWER = 'set to its definition; newer journal kept'


class RestoreError(Exception):
    """A domain lacks its original settings; its journal record is kept."""


class Restorer:
    """Restores domains from the journal, the metadata or their definition."""

    def __init__(
        self, journal: store.Journal, processes: qemu_process.Processes
    ) -> None:
        self.journal = journal
        self.processes = processes
        # Domains with a newer agent's record that were set to their
        # definition. That is done once: later values are external changes.
        self._left_alone: dict[str, qemu_process.Identity] = {}

    def recover(self, domain: Any) -> Outcome:
        """Restore a running domain from whatever an earlier agent left.

        :raises RestoreError: the domain lacks its original settings.
        :raises Unreadable: it is unknown whether an agent wrote to it.
        :raises libvirt.libvirtError: a call was refused.
        """
        uuid = domain.UUIDString()
        identity = self.processes.identity(uuid, domain.ID())
        if self._left_alone.get(uuid) == identity:
            return Outcome.FROM_DEFINITION_NEWER
        evidence = collect(domain, identity, self.journal, self.processes)
        if not evidence.has_metadata and isinstance(
            evidence.record_error, Unreadable
        ):
            # Nothing says that an agent ever wrote to the domain.
            raise evidence.record_error
        if evidence.needs_no_restore:
            if store.METADATA_URI in domain.XMLDesc(
                0
            ) and not connection.is_leaving(domain):
                store.remove_metadata(domain)
            if evidence.record is None and not evidence.record_of_earlier_run:
                # A record that is older than that copy.
                self._close_record(uuid)
            return Outcome.NOTHING
        if self._revert_misdirected(domain, evidence):
            return Outcome.RESTORED
        original, unmanaged = self._choose_original(domain, evidence)
        if original is None:
            return Outcome.NOTHING
        self._restore(domain, evidence, original, unmanaged)
        return self._close_records(domain, evidence)

    def _revert_misdirected(self, domain: Any, evidence: Evidence) -> bool:
        """Revert what was meant for an earlier run; drop that run's record.

        An agent may have been killed between such a write and the check that
        follows it, see :mod:`.misdirected_writes`.
        """
        earlier = evidence.record_of_earlier_run
        if earlier is None:
            return False
        # A metadata copy says more exactly how to restore this run.
        reverted = not evidence.has_metadata and revert(
            domain, earlier.written, self.processes.cgroup
        )
        self._close_record(earlier.uuid)
        return reverted

    def _choose_original(
        self, domain: Any, evidence: Evidence
    ) -> tuple[cputune.Cputune | None, frozenset[str]]:
        """Return the original settings, and values that must not be written.

        :returns: None if nothing says that an agent wrote to the domain.
        :raises RestoreError: an agent may have written to the domain, and
            nothing says how it was set before.
        """
        original, unmanaged = from_record(
            domain, evidence.record, evidence.metadata_copy, evidence.identity
        )
        error = evidence.record_error or evidence.metadata_error
        if original is not None or error is None:
            return original, unmanaged
        if not domain.isPersistent():
            # libvirt then reports the settings in force as the definition.
            raise RestoreError(
                f'{error}; its original settings are unknown, because it is '
                'transient and so has no definition'
            )
        definition = from_definition(domain, self.processes.cgroup)
        return definition, unmanaged

    def _restore(
        self,
        domain: Any,
        evidence: Evidence,
        original: cputune.Cputune,
        unmanaged: frozenset[str],
    ) -> None:
        """Write the original settings, and check that they are in force.

        :param unmanaged: names of values that are left as they are.
        """
        record, pid = evidence.record, evidence.identity.pid
        complete = record or evidence.complete_copy
        if complete is not None:
            unmanaged |= _external(domain, complete)
        # Without a record of this run, any weight may have been written.
        written: written_values.WrittenValues = (
            {cputune.SHARES: None} if record is None else record.written
        )
        if cputune.SHARES not in unmanaged:
            weights.end_idle(
                domain.UUIDString(),
                evidence.identity.domain_id,
                written,
                self.processes,
            )
        self._release_affinity(domain, pid)
        before = written_values.values(cputune.read(domain))
        left: tuple[str, ...] = ()
        try:
            left = cputune_restore.restore(
                domain,
                original,
                unmanaged,
                cputune.SHARES in written,
                lambda: self.processes.cpuset(pid),
            )
        finally:
            # The domain may have been restarted while a call waited, so that
            # the call reached the new run.
            now = domain.connect().lookupByUUIDString(domain.UUIDString())
            if now.ID() not in (evidence.identity.domain_id, -1):
                # One call writes period and quota, also one that stays.
                known = {} if record is None else record.written
                for values in (before, written_values.values(original)):
                    known = written_values.with_values(known, values)
                revert(now, known, self.processes.cgroup)
                raise RestoreError('it was restarted while it was restored')
        if left:
            raise RestoreError('; '.join(left))

    def _release_affinity(self, domain: Any, pid: int) -> None:
        """Let vCPUs run where the pins allow it; gang windows placed them."""
        try:
            affinity.release_domain(
                self.processes,
                pid,
                domain_xml.parse(domain.XMLDesc(0)).online_vcpus,
                cputune.read(domain),
            )
        except OSError as error:
            LOG.warning(
                'VM %s: its vCPUs stay on the CPUs where gang windows put '
                'them, until they are pinned again: %r',
                domain.name(),
                error,
            )

    def _close_records(self, domain: Any, evidence: Evidence) -> Outcome:
        """Remove metadata copy and record of a domain that was restored.

        Records that cannot be read are kept for the operator.
        """
        uuid, error = domain.UUIDString(), evidence.record_error
        store.remove_metadata(domain)
        if isinstance(error, NewerVersion):
            LOG.warning('%s', error)
            self._left_alone[uuid] = evidence.identity
            return Outcome.FROM_DEFINITION_NEWER
        outcome = (
            Outcome.RESTORED
            if evidence.record or evidence.metadata_copy
            else Outcome.FROM_DEFINITION
        )
        if error is not None:
            aside = self.journal.set_aside(uuid)
            LOG.warning(
                '%s; %s, the record is kept as %s', error, outcome, aside
            )
        else:
            if evidence.metadata_error is not None:
                LOG.warning('%s; %s', evidence.metadata_error, outcome)
            self._close_record(uuid, evidence.record)
        return outcome

    def forget(self, uuid: str) -> None:
        """Remove the record of a domain that has stopped.

        A record that cannot be read is kept for the operator.
        """
        try:
            self.journal.load(uuid)
        except (NewerVersion, Unreadable):
            return
        except JournalError as error:
            aside = self.journal.set_aside(uuid)
            LOG.warning(
                '%s; the VM has stopped, the record is kept as %s',
                error,
                aside,
            )
        else:
            self._close_record(uuid)

    def _close_record(
        self, uuid: str, record: JournalRecord | None = None
    ) -> None:
        """Remove a record, or have it say that the guest is handed back."""
        try:
            if record is not None and record.external:
                self.journal.save(record.handed_back())
            else:
                self.journal.remove(uuid)
        except JournalError as error:
            # Harmless: the next run of the domain has another identity, and
            # this run has its original settings.
            LOG.warning('%s', error)


def revert(
    domain: Any,
    written: written_values.WrittenValues,
    cgroup_root: pathlib.Path,
) -> bool:
    """Revert values of an earlier run that reached the present one.

    They are set to the persistent definition, from which the run was started.

    :param written: values that were written to an earlier run.
    :param cgroup_root: mount point of the control groups.
    :returns: whether any of them was in force.
    :raises RestoreError: a value is in force nevertheless.
    :raises libvirt.libvirtError: a call was refused.
    """
    if not written:
        return False
    definition = from_definition(domain, cgroup_root)
    names = frozenset(cputune.names(definition))
    misdirected = _without_unpinned(
        domain,
        written_values.left_by_agent(
            written, definition, cputune.read(domain)
        ),
    )
    if not misdirected:
        return False
    left = cputune_restore.restore(domain, definition, names - misdirected)
    if left:
        raise RestoreError('; '.join(left))
    LOG.info(
        'VM %s: restarted while it was written; reverted: %s',
        domain.name(),
        ', '.join(sorted(misdirected)),
    )
    return True


def _external(domain: Any, record: JournalRecord) -> frozenset[str]:
    """Return names of values that were changed while no agent ran."""
    changed = _without_unpinned(
        domain,
        written_values.external(
            record.written, record.original, cputune.read(domain)
        )
        - record.unmanaged_fields,
    )
    if changed:
        LOG.warning(
            'VM %s: external change of %s while no agent ran; it stays',
            record.name,
            ', '.join(sorted(changed)),
        )
    return changed


def _without_unpinned(domain: Any, names: frozenset[str]) -> frozenset[str]:
    """Leave out pins of unpinned vCPUs, which follow the host's CPUs."""
    if not any(name.startswith(cputune.PINS) for name in names):
        return names
    return names - {
        cputune.pin_name(vcpu) for vcpu in cputune.unpinned(domain)
    }
