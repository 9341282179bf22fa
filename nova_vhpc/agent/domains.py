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

"""Which VMs are ours: libvirt's events, and a look at all now and then."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import libvirt

from nova_vhpc.agent import (
    connection,
    cputune,
    domain_xml,
    guest,
    journal,
    mark,
    neighbours,
    processes,
    restore,
    sampler,
    workers,
)
from nova_vhpc.agent.actuators import kernel_slice
from nova_vhpc.agent.probes import base
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

LEAVING = 'leaving'
HANGS = 'a libvirt call hangs'

LOCK_SECONDS = 0.05
"""How long a window waits for another call about the same VM."""

TUNABLE_NAMES = {
    'cputune.vcpu_period': cputune.PERIOD,
    'cputune.vcpu_quota': cputune.QUOTA,
    'cputune.cpu_shares': cputune.SHARES,
}


def sync_every(info: domain_xml.DomainInfo, others: int) -> int:
    """In how many ticks a VM's synchronisation latency is read once.

    :param others: for all but parallel VMs, whose slices follow it.
    """
    return 1 if info.specs.workload == 'parallel' else others


class Domains:
    """Finds, follows, writes and restores the opted-in VMs.

    :param conf: with ``[vhpc_agent]``.
    :param records: the journal.
    :param host: reads the QEMU processes.
    :param probes: opens the VMs' probes.
    :param actuators: write what was decided, in order.
    :param usable: CPUs that VMs may be pinned to.
    """

    def __init__(
        self,
        conf: Any,
        records: journal.Journal,
        host: processes.Processes,
        probes: sampler.Sampler,
        actuators: Iterable[Any],
        usable: frozenset[int],
    ) -> None:
        self._conf = conf.vhpc_agent
        self._journal = records
        self._host = host
        self._probes = probes
        self._actuators = tuple(actuators)
        self._usable = usable
        self._slices = any(
            isinstance(one, kernel_slice.KernelSliceActuator)
            for one in self._actuators
        )
        self._restorer = restore.Restorer(records, host)
        self._lock = threading.Lock()
        self._guests: Mapping[str, guest.Guest] = {}
        self._others: dict[str, tuple[int, int]] = {}
        self.neighbours = neighbours.Neighbours(host)
        self._refused: dict[str, str] = {}
        self._looking: set[str] = set()
        self._leaving: frozenset[str] = frozenset()
        self._paused = False
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._reconciled_at = 0.0
        self.foreign = 0
        self.late_calls = 0
        self.dry_run = bool(self._conf.dry_run)
        self.workers = workers.Workers(
            self._conf.workers,
            lambda: self._conf.call_deadline,
            self._late,
            self._returned,
        )
        self.connection = connection.Connection(
            self._conf.libvirt_uri,
            self._up,
            self._down,
            self._conf.reconnect_max_seconds,
        )

    # -- what the tick sees ------------------------------------------------

    @property
    def guests(self) -> Mapping[str, guest.Guest]:
        """Our VMs by uuid; a snapshot that nobody changes."""
        return self._guests

    @property
    def paused(self) -> bool:
        """Whether nothing is written on an operator's word."""
        return self._paused

    @property
    def refused(self) -> Mapping[str, str]:
        """VMs that asked for us and are left alone, and why."""
        return dict(self._refused)

    def start(self) -> None:
        """Begin to connect and to follow."""
        self.connection.start()
        threading.Thread(
            target=self._reconcile_loop, name='reconcile', daemon=True
        ).start()

    def write(
        self,
        target: guest.Guest,
        tune: model.CpuTune,
        slice_us: int | None = None,
    ) -> None:
        """Have a VM written soon; what is already in force is left out.

        Returns at once; a newer wish replaces one that still waits.
        """
        if (
            self.dry_run
            or self._paused
            or self._ending.is_set()
            or target.hands_off
            or not self.connection.up
            or target.quarantined
        ):
            target.pending = None
            return
        target.pending = tune
        target.slice_us = slice_us
        if not target.queued:
            target.queued = True
            self.workers.submit(
                target.uuid, lambda: self._write_pending(target)
            )

    def set_shares(self, uuid: str, shares: int) -> None:
        """Write one weight at once; for the windows' own thread.

        :raises libvirt.libvirtError: it is refused, or may not be.
        """
        target = self._guests.get(uuid)
        if target is None:
            return
        if (
            self.dry_run
            or self._paused
            or self._ending.is_set()
            or target.hands_off
            or cputune.SHARES in target.released
        ):
            return
        self.connection.get()
        if not target.lock.acquire(timeout=LOCK_SECONDS):
            raise TimeoutError('another call about the VM takes its time')
        try:
            if not target.free_to_write:
                return
            self._ensure_journalled(target)
            target.shares_ours.add(shares)
            cputune.write_shares(target.domain, shares)
            target.note_written({cputune.SHARES: shares})
            target.writes += 1
        finally:
            target.lock.release()

    # -- operators' words --------------------------------------------------

    def pause(self) -> None:
        """Put all back and write nothing until :meth:`resume`."""
        self._paused = True
        for target in self._guests.values():
            self._submit_restore(target, 'paused')

    def resume(self) -> None:
        """Go on after :meth:`pause`, or after a restore of one VM."""
        self._paused = False
        for target in self._guests.values():
            if target.hands_off in ('paused', 'restored'):
                target.hands_off = ''

    def restore_one(self, uuid: str) -> bool:
        """Put one VM back and leave it alone until :meth:`resume`.

        :returns: False if the VM is not ours.
        """
        target = self._guests.get(uuid)
        if target is None:
            return False
        self._submit_restore(target, 'restored')
        return True

    def let_leave(self, uuids: frozenset[str]) -> None:
        """Put VMs back before Nova migrates them; go on with those that stay.

        :param uuids: servers that Nova says are migrating; called each tick.
        """
        if uuids == self._leaving:
            return
        before, self._leaving = self._leaving, uuids
        for uuid in uuids - before:
            target = self._guests.get(uuid)
            if target is not None and not target.hands_off:
                LOG.info('VM %s: put back before it migrates', target.name)
                self._submit_restore(target, LEAVING)
        for uuid in before - uuids:
            target = self._guests.get(uuid)
            if target is not None and target.hands_off == LEAVING:
                target.hands_off = ''

    def stop(self, timeout_s: float) -> bool:
        """Put all back and let go of libvirt.

        :returns: False if some VM could not be put back in time; its
            journal is kept for ``--restore``.
        """
        self._ending.set()
        self._wake.set()
        todo = [g for g in self._guests.values() if g.journalled]
        for target in todo:
            self._submit_restore(target, 'stopping')
        end = time.monotonic() + timeout_s
        done = False
        while not done and time.monotonic() < end:
            # One VM's hanging call must not keep a thread from the others.
            self.workers.watch()
            done = self.workers.drain(
                min(0.1, max(0.0, end - time.monotonic()))
            )
        self.workers.close()
        self.connection.stop()
        return done and not any(target.journalled for target in todo)

    # -- libvirt's side ----------------------------------------------------

    def _up(self, conn: Any) -> None:
        """A new connection: listen first, then look at all."""
        event = libvirt
        conn.domainEventRegisterAny(
            None, event.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle, None
        )
        for name, callback in (
            ('VIR_DOMAIN_EVENT_ID_TUNABLE', self._on_tunable),
            ('VIR_DOMAIN_EVENT_ID_METADATA_CHANGE', self._on_metadata),
            ('VIR_DOMAIN_EVENT_ID_JOB_COMPLETED', self._on_job),
            ('VIR_DOMAIN_EVENT_ID_DEVICE_ADDED', self._on_device),
            ('VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED', self._on_device),
            ('VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION', self._on_device),
        ):
            try:
                conn.domainEventRegisterAny(
                    None, getattr(event, name), callback, None
                )
            except (AttributeError, libvirt.libvirtError) as error:
                LOG.debug('libvirt has no %s: %s', name, error)
        self._wake.set()

    def _down(self) -> None:
        """The VMs stay known; nothing is written until libvirt is back."""

    def _on_lifecycle(
        self, conn: Any, domain: Any, event: int, detail: int, opaque: Any
    ) -> None:
        self.look(domain.UUIDString())

    def _on_metadata(
        self, conn: Any, domain: Any, kind: int, uri: str, opaque: Any
    ) -> None:
        if uri != mark.URI:
            self.look(domain.UUIDString())

    def _on_job(self, conn: Any, domain: Any, info: Any, opaque: Any) -> None:
        self.look(domain.UUIDString())

    def _on_device(
        self, conn: Any, domain: Any, device: Any, opaque: Any
    ) -> None:
        self.look(domain.UUIDString())

    def _on_tunable(
        self, conn: Any, domain: Any, values: dict[str, Any], opaque: Any
    ) -> None:
        """Our own writes come back, too; look only at what is not ours."""
        target = self._guests.get(domain.UUIDString())
        if target is None:
            return
        expected = target.expected.parameters
        for name, value in values.items():
            known = TUNABLE_NAMES.get(name)
            if known == cputune.SHARES and value in target.shares_ours:
                continue
            if known is not None and expected.get(known) == value:
                continue
            self.look(target.uuid)
            return

    def look(self, uuid: str) -> None:
        """Have a domain looked at soon. Returns at once."""
        with self._lock:
            if self._ending.is_set() or uuid in self._looking:
                return
            self._looking.add(uuid)
        self.workers.submit(uuid, lambda: self._guarded(uuid))

    # -- reconcile ---------------------------------------------------------

    def _reconcile_loop(self) -> None:
        while not self._ending.is_set():
            self._wake.wait(self._conf.reconcile_period)
            self._wake.clear()
            if self._ending.is_set():
                return
            if not self.connection.up:
                continue
            try:
                self._reconcile()
            except libvirt.libvirtError as error:
                self.connection.failed(error)
            except Exception:
                LOG.exception('Reconcile failed')

    def _reconcile(self) -> None:
        conn = self.connection.get()
        running = {
            domain.UUIDString(): domain
            for domain in conn.listAllDomains(
                libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE
            )
        }
        # Records of domains that stopped, maybe while we were not here.
        for uuid in self._journal.uuids():
            if uuid not in running and not self._host.find(uuid):
                self._restorer.forget(uuid)
        for uuid in self._others.keys() - running.keys():
            self.neighbours.forget(uuid)
        self._others = {
            uuid: seen
            for uuid, seen in self._others.items()
            if uuid in running
        }
        for uuid in (*running, *(set(self._guests) - set(running))):
            self.look(uuid)
        self._reconciled_at = time.monotonic()

    # -- one domain, in a worker -------------------------------------------

    def _guarded(self, uuid: str) -> None:
        with self._lock:
            self._looking.discard(uuid)
        try:
            self._inspect(uuid)
        except libvirt.libvirtError as error:
            self.connection.failed(error)
            if connection.is_gone(error):
                self._gone(uuid)
            else:
                LOG.debug('Domain %s: %s', uuid, error)
        except (
            journal.JournalError,
            restore.RestoreError,
            OSError,
        ) as error:
            self._refuse(uuid, str(error))
        except ValueError as error:
            self._refuse(uuid, f'its XML cannot be read: {error}')

    def _inspect(self, uuid: str) -> None:
        """Look at a domain and do what follows from what it is."""
        domain = self.connection.get().lookupByUUIDString(uuid)
        if not domain.isActive():
            self._gone(uuid)
            return
        domain_id = domain.ID()
        xml = domain.XMLDesc(0)
        seen = (domain_id, hash(xml))
        target = self._guests.get(uuid)
        if target is None and self._others.get(uuid) == seen:
            return
        info = domain_xml.parse(xml)
        if not info.ours:
            if target is not None and target.domain_id == domain_id:
                LOG.info('VM %s opted out', info.name)
                target.hands_off = 'opted out'
                target.domain = domain
                self._restore(target)
            elif mark.URI in xml or uuid in self._journal.uuids():
                self._restorer.clean(domain)
            self._forget(uuid)
            self._others[uuid] = seen
            self.neighbours.follow(uuid, domain, info.vcpus)
            return
        if info.specs.errors and (target is None or target.info != info):
            LOG.warning(
                'VM %s: treated as general: %s',
                info.name,
                '; '.join(info.specs.errors),
            )
        if target is None or target.domain_id != domain_id:
            self._adopt(domain, info, seen)
            return
        target.domain = domain
        self._follow(target, info, seen)

    def _adopt(
        self, domain: Any, info: domain_xml.DomainInfo, seen: tuple[int, int]
    ) -> None:
        """Take a VM in: put back what is left of us, then note how it is."""
        copy = mark.get(domain)
        try:
            before = self._journal.load(info.uuid)
        except journal.JournalError:
            before = None
        identity = self._host.identity(info.uuid, domain.ID())
        if before is not None and not before.identity.same_run(identity):
            # Of another run, maybe of another flavor.
            before = None
        outcome = self._restorer.clean(domain)
        if outcome is restore.Outcome.FROM_DEFINITION_NEWER:
            self._forget(info.uuid)
            self._refuse(
                info.uuid, "a newer agent's journal stands in the way"
            )
            return
        if outcome is not restore.Outcome.NOTHING:
            LOG.info('VM %s: %s', info.name, outcome)
        known = copy or before
        repin = (
            known.repin
            if known is not None
            else domain_xml.parse(
                domain.XMLDesc(0),
                domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE),
            ).repin
        )
        now = cputune.read(domain)
        allowed = frozenset().union(*now.vcpupins) & self._usable
        reader, tids = self._open(info, identity.pid)
        target = guest.Guest(
            info=info,
            domain=domain,
            domain_id=seen[0],
            identity=identity,
            original=now,
            expected=now,
            reader=reader,
            tids=tids,
            xml_hash=seen[1],
            allowed_cpus=allowed,
            repin=repin and bool(allowed) and not info.dedicated,
            sliced=self._slices,
        )
        if self._paused:
            target.hands_off = 'paused'
        with self._lock:
            if self._ending.is_set():
                return
            self._guests = {**self._guests, info.uuid: target}
            self._refused.pop(info.uuid, None)
            self._others.pop(info.uuid, None)
        self.neighbours.forget(info.uuid)
        LOG.info(
            'VM %s: managed as %s%s',
            info.name,
            info.specs.workload,
            '' if target.repin else ', never pinned',
        )

    def _open(
        self, info: domain_xml.DomainInfo, pid: int
    ) -> tuple[sampler.VmReader, tuple[int, ...]]:
        tids = self._host.vcpu_threads(pid, info.vcpus) if pid else ()
        reader = self._probes.attach(
            base.Target(
                info.uuid,
                info.name,
                pid,
                tids,
                self._host.vcpu_cgroups(pid, info.vcpus) if pid else (),
                self._host.block_cgroup(pid) if pid else None,
                info.taps,
            ),
            sync_every(info, self._conf.other_sync_ticks),
        )
        return reader, tids

    def _follow(
        self,
        target: guest.Guest,
        info: domain_xml.DomainInfo,
        seen: tuple[int, int],
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
            target.reader, target.tids = self._open(
                info, self._host.find(info.uuid)
            )
        if self._migrating(target.domain):
            if not target.hands_off:
                # Too late to put it back: libvirt takes no writes now. The
                # mark tells the other host what the VM was set to.
                LOG.info('VM %s migrates: hands off', info.name)
                target.hands_off = 'migrating'
            return
        if target.hands_off == 'migrating':
            target.hands_off = ''
        self._compare(target)

    @staticmethod
    def _migrating(domain: Any) -> bool:
        """Whether a job is sending the VM away.

        Any unbounded job counts: libvirt tells the kind of a job only in
        statistics that it must ask QEMU for.
        """
        kind = domain.jobInfo()[0]
        return bool(kind == libvirt.VIR_DOMAIN_JOB_UNBOUNDED)

    def _compare(self, target: guest.Guest) -> None:
        """Find out whether somebody else wrote to a VM."""
        now = cputune.read(target.domain)
        old = target.expected
        if target.uncertain:
            # What differs is what is left of our own failed write.
            target.uncertain = False
            target.set_expected(now)
            return
        changed = [
            name
            for name in (cputune.PERIOD, cputune.QUOTA, cputune.SHARES)
            if name not in target.released
            and now.parameters.get(name) != old.parameters.get(name)
            and not (
                name == cputune.SHARES
                and now.parameters.get(name) in target.shares_ours
            )
        ]
        if (
            cputune.PINS not in target.released
            and now.vcpupins != old.vcpupins
        ):
            changed.append(cputune.PINS)
        target.set_expected(now)
        if not target.journalled:
            # We have not written: these are its settings, whoever made them.
            target.original = now
            target.first_tune = target.in_force
            if changed:
                allowed = frozenset().union(*now.vcpupins) & self._usable
                target.allowed_cpus = allowed
            return
        if not changed:
            return
        self.foreign += len(changed)
        names = ', '.join(changed)
        if self._conf.foreign_changes == 'override':
            LOG.warning(
                'VM %s: somebody changed %s; our value is written again',
                target.name,
                names,
            )
            return
        LOG.warning(
            'VM %s: somebody changed %s; theirs from now on',
            target.name,
            names,
        )
        if not {cputune.PERIOD, cputune.QUOTA}.isdisjoint(changed):
            changed += [cputune.PERIOD, cputune.QUOTA]
        target.released |= frozenset(changed)
        self._journal.save(target.record())
        mark.put(target.domain, target.record())

    def _write_pending(self, target: guest.Guest) -> None:
        target.queued = False
        tune, target.pending = target.pending, None
        if (
            tune is None
            or target.hands_off
            or self._ending.is_set()
            or self._paused
        ):
            return
        if self._guests.get(target.uuid) is not target:
            return
        todo = target.ours_to_write(tune)
        if todo is None:
            return
        try:
            self.connection.get()
            with target.lock:
                self._ensure_journalled(target)
                for actuator in self._actuators:
                    actuator.write(target, todo, target.slice_us)
        except libvirt.libvirtError as error:
            target.uncertain = True
            self.connection.failed(error)
            if self.connection.up and not connection.is_gone(error):
                self._failed(target, str(error))
            self.look(target.uuid)
        except (journal.JournalError, OSError) as error:
            self._failed(target, str(error))
        else:
            if target.failed_in_row:
                LOG.info('VM %s: written again', target.name)
            target.succeeded()

    def _ensure_journalled(self, target: guest.Guest) -> None:
        """The record is on the disk before anything of ours is in the VM."""
        if target.journalled:
            return
        record = target.record()
        self._journal.save(record)
        # From here on a crash leaves a record, harmless without writes.
        target.journalled = True
        mark.put(target.domain, record)

    def _submit_restore(self, target: guest.Guest, why: str) -> None:
        target.hands_off = why
        self.workers.submit(target.uuid, lambda: self._restore_guarded(target))

    def _restore_guarded(self, target: guest.Guest) -> None:
        try:
            self._restore(target)
        except libvirt.libvirtError as error:
            self.connection.failed(error)
            if connection.is_gone(error):
                self._gone(target.uuid)
            else:
                LOG.error('VM %s: not restored: %s', target.name, error)
        except (
            restore.RestoreError,
            journal.JournalError,
            OSError,
        ) as error:
            LOG.error('VM %s: not restored: %s', target.name, error)

    def _restore(self, target: guest.Guest) -> None:
        """Put a VM back exactly, and forget that we ever wrote."""
        with target.lock:
            self._restore_locked(target)

    def _restore_locked(self, target: guest.Guest) -> None:
        for actuator in self._actuators:
            actuator.undo(target)
        if not target.journalled:
            return
        self.connection.get()
        left = cputune.restore(target.domain, target.original, target.released)
        if left:
            raise restore.RestoreError('; '.join(left))
        mark.remove(target.domain)
        self._journal.remove(target.uuid)
        target.journalled = False
        target.shares_ours.clear()
        if not self._ending.is_set():
            target.set_expected(cputune.read(target.domain))

    # -- bookkeeping -------------------------------------------------------

    def _failed(self, target: guest.Guest, problem: str) -> None:
        first = target.failed_in_row == 0
        if target.failed(
            problem,
            self._conf.quarantine_failures,
            self._conf.quarantine_seconds,
        ):
            LOG.warning(
                'VM %s: in quarantine for %.0f s after %d failures: %s',
                target.name,
                target.quarantined_until - time.monotonic(),
                target.failures,
                problem,
            )
        elif first:
            LOG.warning('VM %s: not written: %s', target.name, problem)

    def _late(self, uuid: str) -> None:
        """A call hangs: leave the VM alone for a while."""
        self.late_calls += 1
        target = self._guests.get(uuid)
        name = uuid if target is None else target.name
        LOG.warning(
            'VM %s: a libvirt call takes longer than %g s',
            name,
            self._conf.call_deadline,
        )
        if target is not None:
            target.failed(HANGS, 1, self._conf.quarantine_seconds)

    def _returned(self, uuid: str) -> None:
        """A call that hung has come back: the VM can be talked to again."""
        target = self._guests.get(uuid)
        if target is not None and target.problem == HANGS:
            target.quarantined_until = 0.0
            target.problem = ''

    def _refuse(self, uuid: str, reason: str) -> None:
        if self._refused.get(uuid) != reason:
            LOG.warning('VM %s: left alone: %s', uuid, reason)
            self._refused[uuid] = reason

    def _gone(self, uuid: str) -> None:
        """A domain stopped, or migrated away."""
        self._others.pop(uuid, None)
        self.neighbours.forget(uuid)
        if self._forget(uuid):
            LOG.info('VM %s: gone', uuid)
        if uuid in self._journal.uuids() and not self._host.find(uuid):
            self._restorer.forget(uuid)

    def _forget(self, uuid: str) -> bool:
        with self._lock:
            known = uuid in self._guests
            self._guests = {
                other: target
                for other, target in self._guests.items()
                if other != uuid
            }
            self._refused.pop(uuid, None)
        return known
