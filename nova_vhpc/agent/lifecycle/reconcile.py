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

"""Looking at one domain, and doing what follows from what it is."""

import logging
import threading

import libvirt

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.external_changes import misdirected_writes, policy
from nova_vhpc.agent.guests import guest, registry, write_permission
from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.libvirt import connection, domain_xml, executor, migration
from nova_vhpc.agent.lifecycle import adoption, restore_queue
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Until a VM that is still coming is looked at again."""


class Reconciler:
    """Is told that something may have changed; looks in a worker.

    :param vms: where it keeps what it finds.
    :param allowed: whether the agent is ending.
    :param link: to libvirt.
    :param pool: the threads that call libvirt.
    :param records: the journal.
    :param host: reads the QEMU processes.
    :param intake: takes VMs in.
    :param changes: finds what others wrote.
    :param back: puts VMs back that opt out.
    """

    def __init__(
        self,
        vms: registry.GuestRegistry,
        allowed: write_permission.WritePermission,
        link: connection.Connection,
        pool: executor.DomainExecutor,
        records: store.Journal,
        host: qemu_process.Processes,
        intake: adoption.Adoption,
        changes: policy.ExternalChangePolicy,
        back: restore_queue.RestoreQueue,
    ) -> None:
        self._roster = vms
        self._gate = allowed
        self._connection = link
        self._workers = pool
        self._journal = records
        self._host = host
        self._adoption = intake
        self._changes = changes
        self._undo = back
        self._lock = threading.Lock()
        self._looking: set[str] = set()
        self._coming: set[str] = set()

    def look(self, uuid: str) -> None:
        """Have a domain looked at soon. Returns at once."""
        with self._lock:
            if self._gate.ending.is_set() or uuid in self._looking:
                return
            self._looking.add(uuid)
        self._workers.submit(uuid, lambda: self._guarded(uuid))

    def _guarded(self, uuid: str) -> None:
        with self._lock:
            self._looking.discard(uuid)
        try:
            self._inspect(uuid)
        except libvirt.libvirtError as error:
            self._refused(uuid, error)
        except (
            store.JournalError,
            recovery.RestoreError,
            OSError,
        ) as error:
            self._roster.refuse(uuid, str(error))
        except ValueError as error:
            self._roster.refuse(uuid, f'its XML cannot be read: {error}')

    def _refused(self, uuid: str, error: libvirt.libvirtError) -> None:
        """libvirt did not let us look."""
        self._connection.failed(error)
        target = self._roster.guests.get(uuid)
        run = None if target is None else target.domain_id
        if not connection.is_gone(error):
            LOG.debug('Domain %s: %s', uuid, error)
        elif self._undo.is_gone(uuid, error, run):
            self._undo.gone(uuid)
        else:
            self._roster.refuse(uuid, str(error))

    def _inspect(self, uuid: str) -> None:
        domain = self._connection.get().lookupByUUIDString(uuid)
        domain_id = domain.ID()
        if domain_id < 0:
            self._undo.gone(uuid)
            return
        xml = domain.XMLDesc(0)
        seen = (domain_id, hash(xml))
        target = self._roster.guests.get(uuid)
        if target is None and self._roster.is_other(uuid, seen):
            return
        known = target is not None and self._is_run(target, domain_id)
        if target is not None and known and seen[1] == target.xml_hash:
            # Nearly always, and there may be hundreds to look at.
            info = target.info
        else:
            info = domain_xml.parse(xml)
        if (
            not known
            and (info.ours or domain_metadata.URI in xml)
            and migration.comes(domain)
        ):
            self._look_again(uuid)
            return
        if not info.ours:
            if target is not None and known:
                if guest.Hold.OPTED_OUT not in target.holds:
                    LOG.info('VM %s opted out', info.name)
                target.domain = domain
                self._note_migration(target)
                if not self._undo.now(target, guest.Hold.OPTED_OUT):
                    # Still ours to put back: the next look tries again.
                    return
            elif domain_metadata.URI in xml or uuid in self._journal.uuids():
                self._undo.leftovers.clean(domain, info.name)
            self._roster.forget(uuid)
            self._roster.add_other(uuid, seen)
            self._roster.neighbours.follow(uuid, domain, info.vcpus)
            return
        if info.specs.errors and (target is None or target.info != info):
            LOG.warning(
                'VM %s: treated as general: %s',
                info.name,
                '; '.join(info.specs.errors),
            )
        if target is None or not known:
            self._adoption.adopt(domain, info, seen)
            target = self._roster.guests.get(uuid)
            if target is not None:
                self._note_migration(target)
            return
        target.domain = domain
        if guest.Hold.OPTED_OUT in target.holds:
            self._undo.release(target, guest.Hold.OPTED_OUT)
        self._follow(target, info, seen)

    def _is_run(self, target: guest.Guest, domain_id: int) -> bool:
        """Whether a VM still runs as we know it.

        libvirtd counts runs from the VMs that it finds when it starts: the
        next run of one that had ended by then may have its number.
        """
        return target.domain_id == domain_id and target.identity.same_run(
            self._host.identity(target.uuid, domain_id)
        )

    def _look_again(self, uuid: str) -> None:
        """libvirt has no event for the end of a migration that comes here."""
        with self._lock:
            if uuid in self._coming:
                return
            self._coming.add(uuid)
        timer = threading.Timer(AGAIN_S, self._has_it_come, (uuid,))
        timer.daemon = True
        timer.start()

    def _has_it_come(self, uuid: str) -> None:
        with self._lock:
            self._coming.discard(uuid)
        self.look(uuid)

    def _follow(
        self,
        target: guest.Guest,
        info: domain_xml.DomainInfo,
        seen: registry.Seen,
    ) -> None:
        """A VM we know: what changed, and who changed it?"""
        old, target.xml_hash = target.info, seen[1]
        target.set_info(info)
        if (
            (old.taps, old.vcpus, old.specs.workload)
            != (info.taps, info.vcpus, info.specs.workload)
            or target.reader.dead
            or not target.tids
        ):
            # The tick's thread closes the old one: it may be reading it.
            target.reader, target.tids = self._adoption.open(
                info, self._host.find(info.uuid)
            )
        if not self._note_migration(target):
            try:
                self._changes.look(target)
            except misdirected_writes.RunChangedError:
                self.look(target.uuid)
                return
        self._roster.accept(target.uuid)

    def _note_migration(self, target: guest.Guest) -> bool:
        """Whether a VM migrates; it is held as long as it does."""
        if not migration.leaves(target.domain):
            weights.settle(target)
            target.holds.discard(guest.Hold.MIGRATING)
            return False
        if guest.Hold.MIGRATING not in target.holds:
            # Too late to put all back: libvirt takes no writes now. The mark
            # tells the other host what the VM was set to, or whoever looks at
            # it when it is back from disk: a save is such a job, too.
            LOG.info('VM %s migrates or is saved: hands off', target.name)
            target.holds.add(guest.Hold.MIGRATING)
        weights.give_back(target, self._host)
        return True
