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

"""Putting domains back: after a crash, on ``--restore``, on opt-out."""

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
    """What became of one domain."""

    NOTHING = 'nothing of ours in it'
    RESTORED = 'restored'
    FROM_DEFINITION = 'set to its persistent definition'
    FROM_DEFINITION_NEWER = 'set to its definition; newer journal kept'


class RestoreError(Exception):
    """A domain is not what it was; its journal is kept."""


class Restorer:
    """Puts domains back from the journal, the mark or their definition.

    :param journal: the original settings on the disk.
    :param processes: the host's QEMU processes.
    """

    def __init__(
        self, journal: store.Journal, processes: qemu_process.Processes
    ) -> None:
        self.journal = journal
        self.processes = processes
        # VMs with a newer agent's record that were set to their definition:
        # once is enough, what comes later is somebody else's.
        self._left_alone: dict[str, qemu_process.Identity] = {}

    def recover(self, domain: Any) -> Outcome:
        """Put one running domain back, if we have written to it.

        :raises RestoreError: it is not exactly what it was.
        :raises journal.Unreadable: it is not known whether we have.
        :raises libvirt.libvirtError: a call was refused.
        """
        uuid, run = domain.UUIDString(), domain.ID()
        record: store.JournalRecord | None = None
        unreadable: store.JournalError | None = None
        try:
            record = self.journal.load(uuid)
        except store.JournalError as error:
            unreadable = error
        identity = self.processes.identity(uuid, run)
        if self._left_alone.get(uuid) == identity:
            return Outcome.FROM_DEFINITION_NEWER
        earlier: store.JournalRecord | None = None
        if record is not None and not record.identity.same_run(identity):
            # Restarted since: the settings were made anew from the
            # persistent definition, which we never write.
            earlier, record = record, None
        if record is not None:
            # First: libvirt takes no writes while a VM is sent away, and
            # waits for one that hangs, or that a window has starved.
            weights.give_back_recorded(domain, record, self.processes)
        copy: store.JournalRecord | None = None
        torn_copy: store.JournalError | None = None
        if record is None:
            try:
                copy = domain_metadata.get(domain)
            except store.JournalError as error:
                torn_copy = error
        marked = copy is not None or torn_copy is not None
        if not marked and isinstance(unreadable, store.Unreadable):
            # Nothing says that we ever wrote to it: its settings are its own.
            raise unreadable
        if (
            copy is not None
            and copy.settled
            and copy.identity.same_run(identity)
            and unreadable is None
        ):
            # It has not migrated yet, and is as it was.
            if not migration.leaves(domain):
                domain_metadata.remove(domain)
            return Outcome.NOTHING
        if earlier is not None:
            # An agent may have been killed before it looked what it met.
            astray = not marked and revert(
                domain, earlier.written or {}, self.processes.cgroup
            )
            self._drop(uuid)
            if astray:
                return Outcome.RESTORED
        original, released = originals.known(domain, record, copy, identity)
        outcome = Outcome.RESTORED
        unknown = unreadable or torn_copy
        if original is None and unknown is not None:
            if not domain.isPersistent():
                # What it would be started from is then what is in force.
                raise RestoreError(
                    f'{unknown}; nothing tells what it was before, as it is '
                    'transient: it has no definition'
                )
            original = originals.from_definition(domain, self.processes.cgroup)
            outcome = Outcome.FROM_DEFINITION
        if original is None:
            return Outcome.NOTHING
        source = record or copy
        refused: OSError | None = None
        if source is None or source.sliced:
            # Without a record it is not known; the reset harms nobody.
            try:
                kernel_slice.reset(
                    self.processes,
                    identity.pid,
                    # Online, unlike those that have pins.
                    domain_xml.parse(domain.XMLDesc(0)).vcpus,
                )
            except OSError as error:
                # All else is put back first.
                refused = error
        if record is not None:
            # The copy is not kept up to date with what we write.
            released |= _theirs(domain, record)
        weighed = (
            record is None
            or record.written is None
            or cputune.SHARES in record.written
        )
        left: tuple[str, ...] = ()
        try:
            left = cputune_restore.restore(
                domain,
                original,
                released,
                weighed,
                lambda: self.processes.cpuset(identity.pid),
            )
        finally:
            # A call may have waited for the end of its run, and what was
            # right for that one came into the next.
            now = domain.connect().lookupByUUIDString(uuid)
            if now.ID() not in (run, -1):
                known = record.written if record is not None else None
                written = written_values.with_original(known or {}, original)
                revert(now, written, self.processes.cgroup)
                raise RestoreError('it was restarted while it was put back')
        if left:
            raise RestoreError('; '.join(left))
        if refused is not None:
            raise refused
        domain_metadata.remove(domain)
        if isinstance(unreadable, store.NewerVersion):
            LOG.warning('%s', unreadable)
            self._left_alone[uuid] = identity
            return Outcome.FROM_DEFINITION_NEWER
        if unreadable is not None:
            aside = self.journal.set_aside(uuid)
            LOG.warning(
                '%s; %s, the record is kept as %s', unreadable, outcome, aside
            )
        else:
            if torn_copy is not None:
                LOG.warning('%s; %s', torn_copy, outcome)
            self._drop(uuid)
        return outcome

    def forget(self, uuid: str) -> None:
        """A domain has stopped: its record has no more use."""
        try:
            self.journal.load(uuid)
        except (store.NewerVersion, store.Unreadable):
            return
        except store.JournalError as error:
            aside = self.journal.set_aside(uuid)
            LOG.warning('%s; the VM is gone, kept as %s', error, aside)
        else:
            self._drop(uuid)

    def _drop(self, uuid: str) -> None:
        try:
            self.journal.remove(uuid)
        except store.JournalError as error:
            # A leftover record does no harm: the next run of the domain
            # has another identity, and this one is as the record says.
            LOG.warning('%s', error)


def revert(
    domain: Any,
    written: written_values.WrittenValues,
    cgroup_root: pathlib.Path,
) -> bool:
    """Put back what came into a run that it was not meant for.

    :param written: to an earlier run of the domain.
    :returns: whether there was anything.
    :raises RestoreError: it is not exactly what it was.
    :raises libvirt.libvirtError: it cannot be told, or was refused.
    """
    if not written:
        return False
    definition = originals.from_definition(domain, cgroup_root)
    names = frozenset(cputune.names(definition))
    astray = _but_of_unpinned(
        domain, written_values.found(written, definition, cputune.read(domain))
    )
    if not astray:
        return False
    left = cputune_restore.restore(domain, definition, names - astray)
    if left:
        raise RestoreError('; '.join(left))
    LOG.info(
        'VM %s: restarted while it was written; taken back: %s',
        domain.name(),
        ', '.join(sorted(astray)),
    )
    return True


def _theirs(domain: Any, record: store.JournalRecord) -> frozenset[str]:
    """What somebody else has set while no agent looked."""
    found = _but_of_unpinned(
        domain,
        written_values.theirs(
            record.written, record.original, cputune.read(domain)
        )
        - record.released,
    )
    if found:
        LOG.warning(
            'VM %s: somebody changed %s while no agent ran; left so',
            record.name,
            ', '.join(sorted(found)),
        )
    return found


def _but_of_unpinned(domain: Any, names: frozenset[str]) -> frozenset[str]:
    """Without pins that nobody wrote: those follow the CPUs of the host."""
    if not any(name.startswith(cputune.PINS) for name in names):
        return names
    return names - {
        cputune.pin_name(vcpu) for vcpu in cputune.unpinned(domain)
    }
