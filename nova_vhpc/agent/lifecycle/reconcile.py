# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reconcile one domain: adopt, follow or restore it."""

import logging
import threading

import libvirt

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import misdirected_writes, policy
from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import connection, domain_xml
from nova_vhpc.agent.lifecycle import adoption, after_crash, restore_queue
from nova_vhpc.agent.restore import recovery

LOG = logging.getLogger(__name__)

INCOMING_S = 0.5
"""Pause before a domain that still migrates to this host is reconciled again,
in seconds."""


class Reconciler:
    """Adopts, follows or restores one domain after something has changed."""

    def __init__(
        self,
        context: HostContext,
        adoption: adoption.Adoption,
        policy: policy.ExternalChangePolicy,
        restore_queue: restore_queue.RestoreQueue,
        crash_recovery: after_crash.CrashRecovery,
    ) -> None:
        self._context = context
        self._adoption = adoption
        self._policy = policy
        self._restore_queue = restore_queue
        self._crash_recovery = crash_recovery
        self._lock = threading.Lock()
        self._queued: set[str] = set()
        self._incoming: set[str] = set()

    def enqueue(self, uuid: str) -> None:
        """Have a domain reconciled soon; returns at once."""
        with self._lock:
            if (
                self._context.permission.ending.is_set()
                or uuid in self._queued
            ):
                return
            self._queued.add(uuid)
        self._context.executor.submit(uuid, lambda: self._guarded(uuid))

    def _guarded(self, uuid: str) -> None:
        with self._lock:
            self._queued.discard(uuid)
        try:
            self._reconcile(uuid)
        except libvirt.libvirtError as error:
            self._failed(uuid, error)
        except (
            JournalError,
            recovery.RestoreError,
            OSError,
        ) as error:
            self._context.guests.refuse(uuid, str(error))
        except ValueError as error:
            self._context.guests.refuse(
                uuid, f'its XML cannot be read: {error}'
            )

    def _failed(self, uuid: str, error: libvirt.libvirtError) -> None:
        """Forget a domain that has ended; refuse it for another error."""
        self._context.connection.failed(error)
        guest = self._context.guests.by_uuid.get(uuid)
        domain_id = None if guest is None else guest.domain_id
        if not connection.is_gone(error):
            LOG.debug('Domain %s: %s', uuid, error)
        elif self._restore_queue.has_ended(uuid, error, domain_id):
            self._restore_queue.forget_domain(uuid)
        else:
            self._context.guests.refuse(uuid, str(error))

    def _reconcile(self, uuid: str) -> None:
        domain = self._context.connection.get().lookupByUUIDString(uuid)
        domain_id = domain.ID()
        if domain_id < 0:
            self._restore_queue.forget_domain(uuid)
            return
        xml = domain.XMLDesc(0)
        version = (domain_id, hash(xml))
        guest = self._context.guests.by_uuid.get(uuid)
        if guest is None and self._context.guests.is_unmanaged(uuid, version):
            return
        known = guest is not None and self._is_run(guest, domain_id)
        if guest is not None and known and version[1] == guest.xml_hash:
            # Nearly always; parsing hundreds of domains takes time.
            info = guest.info
        else:
            info = domain_xml.parse(xml)
        if (
            not known
            and (info.ours or store.METADATA_URI in xml)
            and connection.is_arriving(domain)
        ):
            self._enqueue_later(uuid)
            return
        if not info.ours:
            if guest is not None and known:
                if Hold.OPTED_OUT not in guest.holds:
                    LOG.info('VM %s: opted out', info.name)
                guest.domain = domain
                self._note_migration(guest)
                if not self._restore_queue.restore_now(guest, Hold.OPTED_OUT):
                    # Managed until it is restored; the next resync retries.
                    return
            elif (
                store.METADATA_URI in xml
                or uuid in self._context.journal.uuids()
            ):
                self._crash_recovery.recover(domain, info.name)
            self._context.guests.forget(uuid)
            if store.METADATA_URI not in xml:
                # Otherwise it is looked at again: a copy for the destination
                # of a migration that fails must be removed.
                self._context.guests.add_unmanaged(uuid, version)
            self._context.guests.unmanaged.follow(
                uuid, domain, info.online_vcpus
            )
            return
        if info.specs.errors and (guest is None or guest.info != info):
            LOG.warning(
                'VM %s: treated as general: %s',
                info.name,
                '; '.join(info.specs.errors),
            )
        if guest is None or not known:
            self._adoption.adopt(domain, info, version)
            guest = self._context.guests.by_uuid.get(uuid)
            if guest is not None:
                self._note_migration(guest)
            return
        guest.domain = domain
        if Hold.OPTED_OUT in guest.holds:
            self._restore_queue.release(guest, Hold.OPTED_OUT)
        self._follow(guest, info, version)

    def _is_run(self, guest: Guest, domain_id: int) -> bool:
        """Return whether a domain's present run is the guest's.

        A libvirtd that restarts counts run IDs from the domains that it finds.
        The next run of a domain that had ended by then may get the same ID.
        """
        return guest.domain_id == domain_id and guest.identity.same_run(
            self._context.processes.identity(guest.uuid, domain_id)
        )

    def _enqueue_later(self, uuid: str) -> None:
        """Enqueue a domain again that is still being migrated to this host.

        libvirt has no event for the end of such a migration.
        """
        with self._lock:
            if uuid in self._incoming:
                return
            self._incoming.add(uuid)
        timer = threading.Timer(INCOMING_S, self._enqueue_incoming, (uuid,))
        timer.daemon = True
        timer.start()

    def _enqueue_incoming(self, uuid: str) -> None:
        with self._lock:
            self._incoming.discard(uuid)
        self.enqueue(uuid)

    def _follow(
        self,
        guest: Guest,
        info: domain_xml.DomainInfo,
        version: registry.DomainVersion,
    ) -> None:
        """Take over what the XML says now, and check for external changes."""
        old, guest.xml_hash = guest.info, version[1]
        guest.set_info(info)
        if (
            (old.taps, old.vcpus, old.vcpu_numbers, old.specs.workload)
            != (info.taps, info.vcpus, info.vcpu_numbers, info.specs.workload)
            or guest.reader.dead
            or not guest.tids
        ):
            # The tick's thread closes the old reader, which it may be using.
            guest.reader, guest.tids = self._adoption.open(
                info,
                self._context.processes.find(info.uuid, guest.domain_id),
            )
        is_migrating = self._note_migration(guest)
        self._hold_with_gap(guest)
        if not is_migrating:
            try:
                self._policy.check(guest)
            except misdirected_writes.RunChangedError:
                self.enqueue(guest.uuid)
                return
            if guest.external and guest.journalled:
                self._restore_queue.restore_now(guest, Hold.EXTERNAL)
                if not self._context.guests.is_managed(guest):
                    # The domain was started again meanwhile.
                    self.enqueue(guest.uuid)
                    return
        self._context.guests.end_refusal(guest.uuid)

    def _hold_with_gap(self, guest: Guest) -> None:
        """Restore a guest, and hold it, while vCPUs between others are off.

        libvirt's call for pins lists as many vCPUs as are online, from the
        first: neither pins nor external changes of all of them can be read.
        """
        if not guest.info.vcpu_numbers:
            if Hold.VCPU_GAP in guest.holds:
                LOG.info(
                    'VM %s: no gap in its vCPUs, managed again', guest.name
                )
                self._restore_queue.release(guest, Hold.VCPU_GAP)
        elif Hold.VCPU_GAP not in guest.holds:
            adoption.log_vcpu_gap(guest.info)
            self._restore_queue.restore_now(guest, Hold.VCPU_GAP)

    def _note_migration(self, guest: Guest) -> bool:
        """Return whether a guest migrates away; hold it as long as it does."""
        if not connection.is_leaving(guest.domain):
            weights.restore_by_libvirt(guest)
            guest.holds.discard(Hold.MIGRATING)
            return False
        if Hold.MIGRATING not in guest.holds:
            # Too late to restore it: libvirt takes no writes now. The agent
            # that finds the guest next restores it from the metadata copy,
            # also after a managed save, which is such a job, too.
            LOG.info(
                'VM %s: migrates or is saved; not written meanwhile',
                guest.name,
            )
            guest.holds.add(Hold.MIGRATING)
        weights.restore_by_file(guest, self._context.processes)
        return True
