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

"""Restore a domain from what an earlier agent left, as after a crash.

Also for ``nova-vhpc-agent --restore`` and for servers that opt out while no
agent runs.
"""

import dataclasses
import enum
import logging
import pathlib
from typing import Any

from nova_vhpc.agent.actuators import kernel_slice, weights
from nova_vhpc.agent.journal import domain_metadata, store, written_values
from nova_vhpc.agent.libvirt import cputune, domain_xml, migration
from nova_vhpc.agent.restore import (
    cputune as cputune_restore,
)
from nova_vhpc.agent.restore import (
    original as originals,
)
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)


class Outcome(enum.StrEnum):
    """What became of one domain; the values are shown in the log."""

    NOTHING = 'nothing of ours in it'
    RESTORED = 'restored'
    FROM_DEFINITION = 'set to its persistent definition'
    FROM_DEFINITION_NEWER = 'set to its definition; newer journal kept'


class RestoreError(Exception):
    """A domain has not its original settings; its journal record is kept."""


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """What tells how a domain was set before an agent wrote to it.

    In order of trust: the record of this run, the copy in the domain's
    metadata, the persistent definition.

    :ivar identity: the present run of the domain.
    :ivar record: journal record of this run, or None.
    :ivar record_of_earlier_run: journal record of an earlier run, or None. The
        restart reset the domain from its persistent definition, which no
        agent writes.
    :ivar record_error: why the journal record cannot be used, or None.
    :ivar metadata_copy: copy in the live XML, or None; not read if there is
        a record of this run.
    :ivar metadata_error: why that copy cannot be used, or None.
    """

    identity: qemu_process.Identity
    record: store.JournalRecord | None
    record_of_earlier_run: store.JournalRecord | None
    record_error: store.JournalError | None
    metadata_copy: store.JournalRecord | None
    metadata_error: store.JournalError | None

    @property
    def has_metadata(self) -> bool:
        """Whether the live XML has a copy, even a damaged one."""
        return bool(self.metadata_copy or self.metadata_error)


class Restorer:
    """Restores domains from the journal, the metadata or their definition.

    :param journal: the original settings on the disk.
    :param processes: the host's QEMU processes.
    """

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

        :raises RestoreError: the domain has not its original settings.
        :raises journal.Unreadable: it is unknown whether an agent wrote to it.
        :raises libvirt.libvirtError: a call was refused.
        """
        uuid = domain.UUIDString()
        identity = self.processes.identity(uuid, domain.ID())
        if self._left_alone.get(uuid) == identity:
            return Outcome.FROM_DEFINITION_NEWER
        evidence = self._collect_evidence(domain, identity)
        if not evidence.has_metadata and isinstance(
            evidence.record_error, store.Unreadable
        ):
            # Nothing says that an agent ever wrote to the domain.
            raise evidence.record_error
        record = evidence.record
        if record is not None and record.is_handed_back:
            # Its metadata has a copy if it was to migrate, and has not yet.
            if domain_metadata.URI in domain.XMLDesc(
                0
            ) and not migration.leaves(domain):
                domain_metadata.remove(domain)
            return Outcome.NOTHING
        if _is_already_restored(evidence):
            # The copy is for another host, to which it has not migrated yet.
            if not migration.leaves(domain):
                domain_metadata.remove(domain)
            return Outcome.NOTHING
        if self._revert_misdirected(domain, evidence):
            return Outcome.RESTORED
        original, unmanaged = self._choose_original(domain, evidence)
        if original is None:
            return Outcome.NOTHING
        self._restore(domain, evidence, original, unmanaged)
        return self._close_records(domain, evidence)

    def _collect_evidence(
        self, domain: Any, identity: qemu_process.Identity
    ) -> Evidence:
        """Read the journal and, without a record of this run, the metadata.

        If there is such a record, its weight is restored at once by the
        control group's file: libvirt accepts no writes while a domain is
        migrated away, and waits for one that hangs, or that a gang window has
        starved.
        """
        record = earlier = metadata_copy = None
        record_error = metadata_error = None
        try:
            record = self.journal.load(domain.UUIDString())
        except store.JournalError as error:
            record_error = error
        if record is not None and not record.identity.same_run(identity):
            earlier, record = record, None
        if record is not None:
            weights.restore_recorded_by_file(domain, record, self.processes)
        else:
            try:
                metadata_copy = domain_metadata.get(domain)
            except store.JournalError as error:
                metadata_error = error
        return Evidence(
            identity,
            record,
            earlier,
            record_error,
            metadata_copy,
            metadata_error,
        )

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
            domain, earlier.written or {}, self.processes.cgroup
        )
        self._drop(earlier.uuid)
        return reverted

    def _choose_original(
        self, domain: Any, evidence: Evidence
    ) -> tuple[cputune.Cputune | None, frozenset[str]]:
        """Return the original settings, and values that must not be written.

        :returns: None if nothing says that an agent wrote to the domain.
        :raises RestoreError: an agent may have written to the domain, and
            nothing says how it was set before.
        """
        original, unmanaged = originals.known(
            domain, evidence.record, evidence.metadata_copy, evidence.identity
        )
        error = evidence.record_error or evidence.metadata_error
        if original is not None or error is None:
            return original, unmanaged
        if not domain.isPersistent():
            # libvirt then reports the settings in force as the definition.
            raise RestoreError(
                f'{error}; nothing tells what it was before, as it is '
                'transient: it has no definition'
            )
        definition = originals.from_definition(domain, self.processes.cgroup)
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
        slice_error = self._reset_slices(domain, evidence)
        if record is not None:
            # The metadata copy does not know all values that were written.
            unmanaged |= _external(domain, record)
        shares_written = (
            record is None
            or record.written is None
            or cputune.SHARES in record.written
        )
        left: tuple[str, ...] = ()
        try:
            left = cputune_restore.restore(
                domain,
                original,
                unmanaged,
                shares_written,
                lambda: self.processes.cpuset(pid),
            )
        finally:
            # The domain may have been restarted while a call waited, so that
            # the call reached the new run.
            now = domain.connect().lookupByUUIDString(domain.UUIDString())
            if now.ID() not in (evidence.identity.domain_id, -1):
                known = record.written if record is not None else None
                written = written_values.with_original(known or {}, original)
                revert(now, written, self.processes.cgroup)
                raise RestoreError('it was restarted while it was put back')
        if left:
            raise RestoreError('; '.join(left))
        if slice_error is not None:
            raise slice_error

    def _reset_slices(self, domain: Any, evidence: Evidence) -> OSError | None:
        """Reset the vCPU threads' kernel slices if an agent may have set them.

        :returns: why that failed, or None; the other values are restored
            nevertheless.
        """
        source = evidence.record or evidence.metadata_copy
        if source is not None and not source.sliced:
            return None
        # Without a record it is unknown; the reset does no harm.
        try:
            kernel_slice.reset(
                self.processes,
                evidence.identity.pid,
                # vCPUs that are online; pins exist for all possible ones.
                domain_xml.parse(domain.XMLDesc(0)).vcpus,
            )
        except OSError as error:
            return error
        return None

    def _close_records(self, domain: Any, evidence: Evidence) -> Outcome:
        """Remove metadata copy and record of a domain that was restored.

        Records that cannot be read are kept for people.
        """
        uuid, error = domain.UUIDString(), evidence.record_error
        domain_metadata.remove(domain)
        if isinstance(error, store.NewerVersion):
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
            if evidence.record is not None and evidence.record.external:
                self._keep_handed_back(evidence.record)
            else:
                self._drop(uuid)
        return outcome

    def forget(self, uuid: str) -> None:
        """Remove the record of a domain that has stopped.

        A record that cannot be read is kept for people.
        """
        try:
            self.journal.load(uuid)
        except (store.NewerVersion, store.Unreadable):
            return
        except store.JournalError as error:
            aside = self.journal.set_aside(uuid)
            LOG.warning('%s; the VM is gone, kept as %s', error, aside)
        else:
            self._drop(uuid)

    def _keep_handed_back(self, record: store.JournalRecord) -> None:
        """Have the next agent not manage the guest either."""
        try:
            self.journal.save(record.handed_back())
        except store.JournalError as error:
            LOG.warning('%s', error)

    def _drop(self, uuid: str) -> None:
        try:
            self.journal.remove(uuid)
        except store.JournalError as error:
            # Harmless: the next run of the domain has another identity, and
            # this run has its original settings.
            LOG.warning('%s', error)


def _is_already_restored(evidence: Evidence) -> bool:
    copy = evidence.metadata_copy
    return (
        copy is not None
        and copy.settled
        and copy.identity.same_run(evidence.identity)
        and evidence.record_error is None
    )


def revert(
    domain: Any,
    written: written_values.WrittenValues,
    cgroup_root: pathlib.Path,
) -> bool:
    """Revert values that reached a run that they were not meant for.

    They are set to the persistent definition, from which the run was started.

    :param written: values that were written to an earlier run.
    :param cgroup_root: mount point of the control groups.
    :returns: whether any of them was in force.
    :raises RestoreError: a value is in force nevertheless.
    :raises libvirt.libvirtError: a call was refused.
    """
    if not written:
        return False
    definition = originals.from_definition(domain, cgroup_root)
    names = frozenset(cputune.names(definition))
    misdirected = _without_unpinned(
        domain, written_values.found(written, definition, cputune.read(domain))
    )
    if not misdirected:
        return False
    left = cputune_restore.restore(domain, definition, names - misdirected)
    if left:
        raise RestoreError('; '.join(left))
    LOG.info(
        'VM %s: restarted while it was written; taken back: %s',
        domain.name(),
        ', '.join(sorted(misdirected)),
    )
    return True


def _external(domain: Any, record: store.JournalRecord) -> frozenset[str]:
    """Return names of values that were changed while no agent ran."""
    found = _without_unpinned(
        domain,
        written_values.theirs(
            record.written, record.original, cputune.read(domain)
        )
        - record.released,
    )
    if found:
        LOG.warning(
            'VM %s: external change of %s while no agent ran; it stays',
            record.name,
            ', '.join(sorted(found)),
        )
    return found


def _without_unpinned(domain: Any, names: frozenset[str]) -> frozenset[str]:
    """Leave out pins that nobody wrote: they follow the CPUs of the host."""
    if not any(name.startswith(cputune.PINS) for name in names):
        return names
    return names - {
        cputune.pin_name(vcpu) for vcpu in cputune.unpinned(domain)
    }
