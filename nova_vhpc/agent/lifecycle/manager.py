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
from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    misdirected_writes,
    policy,
)
from nova_vhpc.agent.guests import (
    guest,
    quarantine,
    registry,
    write_permission,
)
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import connection, executor, wakeup
from nova_vhpc.agent.lifecycle import (
    adoption,
    events,
    reconcile,
    restore_queue,
    resync,
    writer,
)
from nova_vhpc.agent.probes import sampler, unmanaged
from nova_vhpc.linux import cpus, qemu_process

LOG = logging.getLogger(__name__)

ENDING_DEADLINE_S = 1.0
"""After which another thread stands in for one that libvirt holds, when all
VMs are to be put back within a few seconds."""

FIRST_RETRY_S = 0.1
"""First pause before VMs that could not be put back at the end are tried
again; each further one is twice as long, up to :data:`LONGEST_RETRY_S`."""

LONGEST_RETRY_S = 0.5


class GuestManager:
    """Finds, follows, writes and restores the opted-in VMs.

    :param conf: with ``[vhpc_agent]``.
    :param records: the journal.
    :param host: reads the QEMU processes.
    :param probes: opens the VMs' probes.
    :param actuators: write what was decided, in order.
    :param usable: gives the CPUs that VMs may be pinned to.
    """

    def __init__(
        self,
        conf: Any,
        records: store.Journal,
        host: qemu_process.Processes,
        probes: sampler.Sampler,
        actuators: Iterable[Any],
        usable: Callable[[], frozenset[int]],
    ) -> None:
        options = conf.vhpc_agent
        actuators = tuple(actuators)
        self.neighbours = unmanaged.UnmanagedVms(host, usable)
        self._roster = vms = registry.GuestRegistry(self.neighbours)
        self._gate = allowed = write_permission.WritePermission(
            bool(options.dry_run)
        )
        self._quarantine = quarantine.Quarantine(options, vms)
        self.workers = pool = executor.DomainExecutor(
            options.workers,
            lambda: (
                ENDING_DEADLINE_S
                if allowed.ending.is_set()
                else options.call_deadline
            ),
            self._quarantine.late,
            self._quarantine.returned,
            lambda: nudged.wake(),
        )
        self.connection = link = connection.Connection(
            options.libvirt_uri,
            self._up,
            options.reconnect_max_seconds,
        )
        nudged = wakeup.ConnectionWakeup(link.get, pool.slow)
        self._foreign = policy.ExternalChangePolicy(
            options,
            records,
            cpu_hotplug.SwitchedCpus(
                records, lambda: cpus.online_cpus(options.sys_root)
            ),
        )
        astray = misdirected_writes.MisdirectedWrites(link, host)
        self._foreign.still_runs = link.runs
        self._foreign.took_back = lambda target: astray.take_back(
            target, put_back=True
        )
        self._foreign.cpuset = lambda target: host.cpuset(target.identity.pid)
        self._undo = restore_queue.RestoreQueue(
            vms,
            allowed,
            link,
            pool,
            records,
            host,
            actuators,
            self._foreign,
        )
        self._inspector = reconcile.Reconciler(
            vms,
            allowed,
            link,
            pool,
            records,
            host,
            adoption.Adoption(
                options,
                vms,
                allowed,
                records,
                self._undo.leftovers,
                host,
                probes,
                self._foreign,
                any(
                    isinstance(one, kernel_slice.KernelSliceActuator)
                    for one in actuators
                ),
            ),
            self._foreign,
            self._undo,
        )
        self.look = self._inspector.look
        self._events = events.Events(vms, self.look)
        self._reconciler = resync.Resync(
            options, vms, allowed, link, records, self._undo, self.look
        )
        self._writer = writer.Writer(
            vms,
            allowed,
            link,
            pool,
            records,
            actuators,
            weights.Weights(options, host),
            astray,
            self._quarantine,
            self.look,
        )
        self.reconcile = self._reconciler.wake
        self.write = self._writer.write
        self.set_shares = self._writer.set_shares

    @property
    def guests(self) -> Mapping[str, guest.Guest]:
        """Our VMs by uuid; a snapshot that nobody changes."""
        return self._roster.guests

    @property
    def refused(self) -> Mapping[str, str]:
        """VMs left alone, though they asked for us or may ask; and why."""
        return self._roster.refused

    @property
    def dry_run(self) -> bool:
        """Whether nothing is ever written."""
        return self._gate.dry_run

    @property
    def paused(self) -> bool:
        """Whether nothing is written on an operator's word."""
        return self._gate.paused

    @property
    def foreign(self) -> int:
        """Values that somebody else changed, so far."""
        return self._foreign.count

    @property
    def late_calls(self) -> int:
        """Calls beyond their deadline, so far."""
        return self._quarantine.late_calls

    def tell_of_shares(self, tell: Callable[[str], None]) -> None:
        """Have somebody told of VMs whose shares are to be written again."""
        self._foreign.on_shares = tell

    def start(self) -> None:
        """Begin to connect and to follow."""
        self.connection.start()
        self._reconciler.start()

    def _up(self, conn: Any) -> None:
        """A new connection: listen first, then look at all."""
        self._events.listen(conn)
        self._reconciler.wake()

    def pause(self) -> Mapping[str, restore_queue.RestoreAttempt]:
        """Put all back and write nothing until :meth:`resume`.

        :returns: by uuid, the first try to put a VM back.
        """
        self._gate.paused = True
        return {
            uuid: self._undo.submit(target, guest.Hold.PAUSED)
            for uuid, target in self.guests.items()
        }

    def resume(self) -> None:
        """Go on after :meth:`pause`, or after a restore of one VM."""
        self._gate.paused = False
        self._gate.restored.clear()
        for target in self.guests.values():
            self._undo.release(target, guest.Hold.PAUSED, guest.Hold.RESTORED)

    def restore_one(self, uuid: str) -> restore_queue.RestoreAttempt | None:
        """Put one VM back and leave it alone until :meth:`resume`.

        :returns: the first try to put it back; None if it is not ours.
        """
        target = self.guests.get(uuid)
        if target is None:
            return None
        # Also when it is started anew, and so found as another one.
        self._gate.restored.add(uuid)
        return self._undo.submit(target, guest.Hold.RESTORED)

    def let_leave(self, uuids: frozenset[str]) -> None:
        """Put VMs back before Nova migrates them; go on with those that stay.

        :param uuids: servers that Nova says are migrating; called each tick.
        """
        before, self._gate.leaving = self._gate.leaving, uuids
        if not uuids and not before:
            return
        for uuid in uuids:
            # Each time: a VM may be found after Nova has said so.
            target = self.guests.get(uuid)
            if target is not None and guest.Hold.LEAVING not in target.holds:
                if target.journalled:
                    LOG.info('VM %s: put back before it migrates', target.name)
                self._undo.submit(target, guest.Hold.LEAVING)
        for uuid in before - uuids:
            target = self.guests.get(uuid)
            if target is not None:
                self._undo.release(target, guest.Hold.LEAVING)

    def stop(self, timeout_s: float) -> bool:
        """Put all back; the connection stays until :meth:`close`.

        :returns: False if some VM could not be put back in time; its
            journal is kept for ``--restore``.
        """
        # Before any VM is looked at: who waits for its lock then sees it.
        self._gate.ending.set()
        self._reconciler.wake()
        if self.dry_run:
            self.workers.close()
            self._undo.end()
            return True
        todo = tuple(self.guests.values())
        end = time.monotonic() + timeout_s
        for target in todo:
            # Also where nothing stands in the journal yet: only under the
            # VM's lock can be told whether it is just being written.
            self._undo.submit(target, guest.Hold.STOPPING)
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
            for target in left:
                self._undo.retry(target.uuid)
        self.workers.close()
        self._undo.end()
        # Not only those found: an agent before this may have left others.
        return done and not left and not self._undo.leaves_any()

    def close(self) -> None:
        """Let go of libvirt."""
        self.connection.stop()

    def _left(self, todo: Iterable[guest.Guest]) -> list[guest.Guest]:
        """Those that are not put back, and whose run has not ended.

        Also one of which only the copy in its XML is left.
        """
        return [
            target
            for target in todo
            if self.guests.get(target.uuid) is target
            and (
                target.journalled
                or (
                    target.settled
                    # It goes along, for the other host.
                    and guest.Hold.MIGRATING not in target.holds
                )
            )
        ]

    def _drain(self, end: float) -> bool:
        """Wait until ``end`` for all calls; False if some are not done."""
        while time.monotonic() < end:
            # One VM's hanging call must not keep a thread from the others.
            self.workers.watch()
            if self.workers.drain(min(0.1, max(0.0, end - time.monotonic()))):
                return True
        return False
