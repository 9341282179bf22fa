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

"""The VMs of this host: puts the parts that follow and write them together.

``roster`` knows them; ``events`` and ``reconciler`` say which one to look
at; ``inspector`` looks, with ``adoption`` for the new ones and ``foreign``
for what others wrote; ``writer`` writes and ``undo`` puts back, as far as
``gate`` and ``quarantine`` let them; ``strays`` takes back what met another
run.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nova_vhpc.agent.actuators import kernel_slice, weights
from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    misdirected_writes,
    policy,
)
from nova_vhpc.agent.guests import quarantine, registry, write_permission
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import connection, executor, wakeup
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
"""After which another thread stands in for one that libvirt holds, when all
VMs are to be put back within a few seconds."""

FIRST_RETRY_S = 0.1
"""First pause before VMs that could not be put back at the end are tried
again; each further one is twice as long, up to :data:`LONGEST_RETRY_S`."""

LONGEST_RETRY_S = 0.5


class GuestManager:
    """Adopts, follows, writes and restores the managed guests.

    :param conf: with ``[vhpc_agent]``.
    :param journal: the original settings on the disk.
    :param processes: the host's QEMU processes.
    :param sampler: opens the guests' probes.
    :param actuators: write what was decided, in order.
    :param usable: returns the CPUs that guests may be pinned to.
    :param share_observer: plays the gang windows.
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
        actuators: Iterable[Any],
        usable: Callable[[], frozenset[int]],
        share_observer: policy.ShareObserver,
    ) -> None:
        options = conf.vhpc_agent
        actuators = tuple(actuators)
        self.unmanaged = unmanaged.UnmanagedVms(processes, usable)
        guests = registry.GuestRegistry(self.unmanaged)
        permission = write_permission.WritePermission(bool(options.dry_run))
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
        connection_wakeup = wakeup.ConnectionWakeup(
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
        hotplug = cpu_hotplug.CpuHotplug(
            journal, lambda: cpus.online_cpus(options.sys_root)
        )
        misdirected = misdirected_writes.MisdirectedWrites(
            self.connection, processes
        )
        self._policy = policy.ExternalChangePolicy(
            context, options, hotplug, misdirected, share_observer
        )
        crash_recovery = after_crash.CrashRecovery(
            recovery.Restorer(journal, processes), permission
        )
        self._restore_queue = restore_queue.RestoreQueue(
            context,
            restore_guest.GuestRestorer(
                context, actuators, self._policy, misdirected
            ),
            crash_recovery,
        )
        self._reconciler = reconcile.Reconciler(
            context,
            adoption.Adoption(
                context,
                options,
                crash_recovery,
                sampler,
                hotplug,
                share_observer,
                any(
                    isinstance(actuator, kernel_slice.KernelSliceActuator)
                    for actuator in actuators
                ),
            ),
            self._policy,
            self._restore_queue,
            crash_recovery,
        )
        self._events = events.Events(guests, self.enqueue)
        self._resync = resync.Resync(
            context, options, self._restore_queue, self.enqueue
        )
        self._writer = writer.Writer(
            context,
            actuators,
            weights.Weights(options, processes),
            misdirected,
            self._quarantine,
            self.enqueue,
        )

    @property
    def guests(self) -> Mapping[str, Guest]:
        """Our VMs by uuid; a snapshot that nobody changes."""
        return self._context.guests.by_uuid

    @property
    def refused(self) -> Mapping[str, str]:
        """VMs left alone, though they asked for us or may ask; and why."""
        return self._context.guests.refused

    @property
    def dry_run(self) -> bool:
        """Whether nothing is ever written."""
        return self._context.permission.dry_run

    @property
    def paused(self) -> bool:
        """Whether nothing is written on an operator's word."""
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
        """Calls beyond their deadline, so far."""
        return self._quarantine.late_calls

    def enqueue(self, uuid: str) -> None:
        """Have a domain reconciled soon; returns at once."""
        self._reconciler.enqueue(uuid)

    def resync(self) -> None:
        """Have every domain reconciled soon; returns at once."""
        self._resync.wake()

    def write(
        self,
        guest: Guest,
        tune: model.CpuTune,
        slice_us: int | None = None,
    ) -> None:
        """Have a guest written soon, see :meth:`.Writer.write`."""
        self._writer.write(guest, tune, slice_us)

    def set_shares(self, uuid: str, shares: int) -> bool:
        """Write a weight at once, see :meth:`.Writer.set_shares`."""
        return self._writer.set_shares(uuid, shares)

    def start(self) -> None:
        """Begin to connect and to follow."""
        self.connection.start()
        self._resync.start()

    def _on_connected(self, conn: Any) -> None:
        """A new connection: listen first, then look at all."""
        self._events.listen(conn)
        self._resync.wake()

    def pause(self) -> Mapping[str, restore_queue.RestoreAttempt]:
        """Put all back and write nothing until :meth:`resume`.

        :returns: by uuid, the first try to put a VM back.
        """
        self._context.permission.paused = True
        return {
            uuid: self._restore_queue.submit(guest, Hold.PAUSED)
            for uuid, guest in self.guests.items()
        }

    def resume(self) -> None:
        """Go on after :meth:`pause`, or after a restore of one VM."""
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
        """Put one VM back and leave it alone until :meth:`resume`.

        :returns: the first try to put it back; None if it is not ours.
        """
        guest = self.guests.get(uuid)
        if guest is None:
            return None
        # Also when it is started anew, and so found as another one.
        self._context.permission.restored.add(uuid)
        return self._restore_queue.submit(guest, Hold.RESTORED)

    def restore_before_migration(self, uuids: frozenset[str]) -> None:
        """Put VMs back before Nova migrates them; go on with those that stay.

        :param uuids: servers that Nova says are migrating; called each tick.
        """
        before, self._context.permission.leaving = (
            self._context.permission.leaving,
            uuids,
        )
        if not uuids and not before:
            return
        for uuid in uuids:
            # Each time: a VM may be found after Nova has said so.
            guest = self.guests.get(uuid)
            if guest is not None and Hold.LEAVING not in guest.holds:
                if guest.journalled:
                    LOG.info('VM %s: put back before it migrates', guest.name)
                self._restore_queue.submit(guest, Hold.LEAVING)
        for uuid in before - uuids:
            guest = self.guests.get(uuid)
            if guest is not None:
                self._restore_queue.release(guest, Hold.LEAVING)

    def stop(self, timeout_s: float) -> bool:
        """Put all back; the connection stays until :meth:`close`.

        :returns: False if some VM could not be put back in time; its
            journal is kept for ``--restore``.
        """
        # Before any VM is looked at: who waits for its lock then sees it.
        self._context.permission.ending.set()
        self._resync.wake()
        if self.dry_run:
            self.executor.close()
            self._restore_queue.end()
            return True
        todo = tuple(self.guests.values())
        end = time.monotonic() + timeout_s
        for guest in todo:
            # Also where nothing stands in the journal yet: only under the
            # VM's lock can be told whether it is just being written.
            self._restore_queue.submit(guest, Hold.STOPPING)
        pause_s = FIRST_RETRY_S
        while True:
            # One that hangs must not keep others from being tried again.
            again = min(end, time.monotonic() + pause_s)
            done = self._drain(again)
            left = self._left(todo)
            if (done and not left) or again == end:
                break
            time.sleep(max(0.0, again - time.monotonic()))
            pause_s = min(2 * pause_s, LONGEST_RETRY_S)
            for guest in left:
                self._restore_queue.retry(guest.uuid)
        self.executor.close()
        self._restore_queue.end()
        # Not only those found: an agent before this may have left others.
        return done and not left and not self._restore_queue.any_unrestored()

    def close(self) -> None:
        """Let go of libvirt."""
        self.connection.stop()

    def _left(self, todo: Iterable[Guest]) -> list[Guest]:
        """Those that are not put back, and whose run has not ended.

        Also one of which only the copy in its XML is left.
        """
        return [
            guest
            for guest in todo
            if self.guests.get(guest.uuid) is guest
            and (
                guest.journalled
                or (
                    guest.copy_for_destination
                    # It goes along, for the other host.
                    and Hold.MIGRATING not in guest.holds
                )
            )
        ]

    def _drain(self, end: float) -> bool:
        """Wait until ``end`` for all calls; False if some are not done."""
        while time.monotonic() < end:
            # One VM's hanging call must not keep a thread from the others.
            self.executor.watch()
            if self.executor.drain(min(0.1, max(0.0, end - time.monotonic()))):
                return True
        return False
