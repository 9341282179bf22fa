# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The guest manager: connects the parts that manage this host's guests."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    misdirected_writes,
    policy,
)
from nova_vhpc.agent.guests import quarantine, registry
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import connection, executor
from nova_vhpc.agent.lifecycle import (
    adoption,
    after_crash,
    events,
    reconcile,
    restore_guest,
    restore_queue,
    resync,
    writer,
)
from nova_vhpc.agent.probes import sampler, unmanaged
from nova_vhpc.agent.restore import recovery
from nova_vhpc.control import model
from nova_vhpc.linux import cpus, qemu_process

LOG = logging.getLogger(__name__)

STOP_DEADLINE_S = 1.0
"""Deadline of a libvirt call while the agent stops, in seconds; a thread that
libvirt holds longer is replaced, so that the other guests are restored."""

FIRST_RETRY_S = 0.1
"""First pause between attempts to restore a guest while the agent stops, in
seconds; it doubles up to :data:`LONGEST_RETRY_S`."""

LONGEST_RETRY_S = 0.5


class GuestManager:
    """Adopts, follows, writes and restores the managed guests.

    :param conf: with ``[vhpc_agent]``.
    :param actuator: writes a cputune; may be a plugin.
    :param usable: returns the CPUs that guests may be pinned to.
    :ivar unmanaged: follows the VMs that are not managed.
    :ivar connection: the connection to libvirt.
    :ivar executor: the threads that call libvirt.
    """

    def __init__(
        self,
        conf: Any,
        journal: store.Journal,
        processes: qemu_process.Processes,
        sampler: sampler.Sampler,
        actuator: Any,
        usable: Callable[[], frozenset[int]],
        forget_shares: Callable[[str], None],
    ) -> None:
        options = conf.vhpc_agent
        self.unmanaged = unmanaged.UnmanagedVms(processes, usable)
        guests = registry.GuestRegistry(self.unmanaged)
        permission = registry.WritePermission(bool(options.dry_run))
        self._quarantine = quarantine.Quarantine(options, guests)
        self.executor = executor.DomainExecutor(
            options.workers,
            lambda: (
                STOP_DEADLINE_S
                if permission.ending.is_set()
                else options.call_deadline
            ),
            self._quarantine.call_is_late,
            self._quarantine.calls_returned,
            lambda: connection_wakeup.wake(),
        )
        self.connection = connection.Connection(
            options.libvirt_uri,
            self._on_connected,
            options.reconnect_max_seconds,
        )
        connection_wakeup = connection.ConnectionWakeup(
            self.connection.get, self.executor.slow
        )
        self._context = context = HostContext(
            guests,
            permission,
            self.connection,
            self.executor,
            journal,
            processes,
        )
        misdirected = misdirected_writes.MisdirectedWrites(
            self.connection, processes
        )
        hotplug = cpu_hotplug.CpuHotplug(
            journal, misdirected, lambda: cpus.online_cpus(options.sys_root)
        )
        self._policy = policy.ExternalChangePolicy(
            context, options, hotplug, misdirected, forget_shares
        )
        self._crash_recovery = after_crash.CrashRecovery(
            recovery.Restorer(journal, processes), permission
        )
        self._restore_queue = restore_queue.RestoreQueue(
            context,
            restore_guest.GuestRestorer(context, self._policy, misdirected),
            self._crash_recovery,
        )
        self._reconciler = reconcile.Reconciler(
            context,
            adoption.Adoption(
                context,
                options,
                self._crash_recovery,
                sampler,
                hotplug,
                forget_shares,
            ),
            self._policy,
            self._restore_queue,
            self._crash_recovery,
        )
        self._events = events.Events(guests, self.enqueue)
        self._resync = resync.Resync(
            context, options, self._restore_queue, self.enqueue
        )
        self._writer = writer.Writer(
            context,
            actuator,
            weights.Weights(options, processes),
            misdirected,
            self._quarantine,
            self.enqueue,
        )

    @property
    def guests(self) -> Mapping[str, Guest]:
        """Managed guests by UUID; a snapshot that does not change."""
        return self._context.guests.by_uuid

    @property
    def refused(self) -> Mapping[str, str]:
        """Why VMs that opted in, or may have, are not managed; by UUID."""
        return self._context.guests.refused

    @property
    def dry_run(self) -> bool:
        """Whether nothing is ever written."""
        return self._context.permission.dry_run

    @property
    def paused(self) -> bool:
        """Whether an operator has paused the agent."""
        return self._context.permission.paused

    @property
    def external_changes(self) -> int:
        """Number of values that were changed externally, so far."""
        return self._policy.count

    @property
    def handed_back(self) -> int:
        """Number of servers handed back after external changes, so far."""
        return self._policy.handed_back

    @property
    def late_calls(self) -> int:
        """Number of libvirt calls beyond their deadline, so far."""
        return self._quarantine.late_calls

    def enqueue(self, uuid: str) -> None:
        """Have a domain reconciled soon; returns at once."""
        self._reconciler.enqueue(uuid)

    def resync(self) -> None:
        """Have every domain reconciled soon; returns at once."""
        self._resync.wake()

    def write(self, guest: Guest, tune: model.CpuTune) -> None:
        """Have a guest written soon, see :meth:`.Writer.write`."""
        self._writer.write(guest, tune)

    def set_shares(self, uuid: str, shares: int) -> bool:
        """Write a weight at once, see :meth:`.Writer.set_shares`."""
        return self._writer.set_shares(uuid, shares)

    def place(self, uuid: str, cpus: tuple[int, ...]) -> bool:
        """Let vCPUs run on certain CPUs, see :meth:`.Writer.place`."""
        return self._writer.place(uuid, cpus)

    def note_window(self, uuids: Iterable[str], seconds: float) -> None:
        """Add the length of a gang window to the guests that it favoured."""
        for uuid in uuids:
            guest = self.guests.get(uuid)
            if guest is not None:
                guest.window_s += seconds

    def start(self) -> None:
        """Connect to libvirt, and begin to resync."""
        self.connection.start()
        self._resync.start()

    def _on_connected(self, conn: Any) -> None:
        """Listen to a new connection's events, then reconcile all domains."""
        self._events.listen(conn)
        self._resync.wake()

    def pause(self) -> Mapping[str, restore_queue.RestoreAttempt]:
        """Restore all guests and write nothing until :meth:`resume`.

        :returns: the first attempt to restore each guest, by UUID.
        """
        self._context.permission.paused = True
        return {
            uuid: self._restore_queue.submit(guest, Hold.PAUSED)
            for uuid, guest in self.guests.items()
        }

    def resume(self) -> None:
        """Manage guests again after :meth:`pause` or :meth:`restore_one`."""
        self._context.permission.paused = False
        self._context.permission.restored.clear()
        for guest in self.guests.values():
            self._restore_queue.release(guest, Hold.PAUSED, Hold.RESTORED)

    def resume_one(self, uuid: str) -> str | None:
        """Manage one server again that was handed back, or restored.

        :returns: empty if it is, why it is not, or None if it is unknown.
        """
        guest = self.guests.get(uuid)
        if guest is None:
            return self.refused.get(uuid)
        if self.paused:
            return 'the agent is paused; resume it as a whole first'
        problem = self._policy.resume(guest)
        if not problem:
            self._context.permission.restored.discard(uuid)
            self._restore_queue.release(guest, Hold.EXTERNAL, Hold.RESTORED)
            self.enqueue(uuid)
            LOG.info('VM %s: resumed, managed again', guest.name)
        return problem

    def restore_one(self, uuid: str) -> restore_queue.RestoreAttempt | None:
        """Restore one guest and do not write it until :meth:`resume`.

        :returns: the first attempt to restore it; None if it is not managed.
        """
        guest = self.guests.get(uuid)
        if guest is None:
            return None
        # Also for the server's next run, which is adopted as a new guest.
        self._context.permission.restored.add(uuid)
        return self._restore_queue.submit(guest, Hold.RESTORED)

    def restore_before_migration(self, uuids: frozenset[str]) -> None:
        """Restore guests before Nova migrates them.

        Guests whose server does not migrate any more are managed again.

        :param uuids: UUIDs of the servers that migrate now according to Nova.
        """
        permission = self._context.permission
        before, permission.leaving = permission.leaving, uuids
        for uuid in uuids:
            # At each call: a guest may be adopted later than Nova reports it.
            guest = self.guests.get(uuid)
            if guest is not None and Hold.LEAVING not in guest.holds:
                if guest.journalled:
                    LOG.info('VM %s: restoring before it migrates', guest.name)
                self._restore_queue.submit(guest, Hold.LEAVING)
        for uuid in before - uuids:
            guest = self.guests.get(uuid)
            if guest is not None:
                self._restore_queue.release(guest, Hold.LEAVING)

    def stop(self, timeout_s: float) -> bool:
        """Restore all guests; the connection stays until :meth:`close`.

        So are domains that an earlier agent has left, and that this one has
        not adopted yet: libvirt may not even be connected.

        :param timeout_s: longest time for that, in seconds.
        :returns: False if some domain could not be restored in time; its
            record is kept for ``--restore``.
        """
        # First: a writer that waits for a guest's lock checks this then.
        self._context.permission.ending.set()
        self._resync.wake()
        if self.dry_run:
            self.executor.close()
            self._restore_queue.close()
            return True
        todo = tuple(self.guests.values())
        end = time.monotonic() + timeout_s
        for guest in todo:
            # Also a guest without a record: it may just be written, which
            # is known only under its lock.
            self._restore_queue.submit(guest, Hold.STOPPING)
        last_look = after_crash.LastLook(self._context, self._crash_recovery)
        pause_s = FIRST_RETRY_S
        while True:
            last_look.submit()
            # A call that hangs must not delay the retry of other guests.
            retry_at = min(end, time.monotonic() + pause_s)
            drained = self._drain(retry_at)
            unrestored = [guest for guest in todo if self._is_left(guest)]
            is_done = (
                drained
                and not unrestored
                and not last_look.left
                # Without libvirt, all that was found before counts.
                and (last_look.listed or self._has_looked)
            )
            if is_done or retry_at == end:
                break
            time.sleep(max(0.0, retry_at - time.monotonic()))
            pause_s = min(2 * pause_s, LONGEST_RETRY_S)
            for guest in unrestored:
                self._restore_queue.retry(guest.uuid)
        self.executor.close()
        self._restore_queue.close()
        names = self._crash_recovery.unrestored() | last_look.left
        names |= {guest.uuid: guest.name for guest in unrestored}
        for uuid, name in names.items():
            LOG.warning(
                'VM %s (%s): not restored in time; its record is kept',
                name,
                uuid,
            )
        return drained and not names

    @property
    def _has_looked(self) -> bool:
        """Whether libvirt is away, and all its domains were known before."""
        return not self.connection.up and self._resync.has_listed

    def close(self) -> None:
        """Close the connection to libvirt."""
        self.connection.stop()

    def _is_left(self, guest: Guest) -> bool:
        """Return whether a guest is not restored and its run has not ended."""
        return self._context.guests.is_managed(guest) and (
            guest.journalled
            or (
                # A copy for the destination migrates with the guest.
                guest.copy_for_destination
                and Hold.MIGRATING not in guest.holds
            )
        )

    def _drain(self, end: float) -> bool:
        """Wait until ``end`` for all calls; return whether all are done."""
        while time.monotonic() < end:
            # Replaces threads that hang, so that other guests are restored.
            self.executor.watch()
            if self.executor.drain(min(0.1, max(0.0, end - time.monotonic()))):
                return True
        return False
