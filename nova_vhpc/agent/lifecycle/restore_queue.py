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

"""Putting our VMs back while the agent runs, and forgetting the gone.

A VM that must be put back is owed: it stays on a list, and is tried again
at each reconcile, until it is put back, gone, or ours to write once more. When
the agent ends there is none; it is tried again as long as there is time.
"""

import concurrent.futures
import logging
import threading
from collections.abc import Iterable
from typing import Any

import libvirt

from nova_vhpc.agent.external_changes import misdirected_writes, policy
from nova_vhpc.agent.guests import guest, registry, write_permission
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import connection, executor
from nova_vhpc.agent.lifecycle import after_crash, restore_guest
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)

RestoreAttempt = concurrent.futures.Future[str]
"""Of putting a VM back: ``DONE``, ``GONE``, or why it failed."""

DONE = ''
GONE = 'it is gone'
RESUMED = 'it was resumed meanwhile'
ENDING = 'the agent is ending'
MIGRATES = 'it migrates or is saved, and libvirt takes no writes meanwhile'

NOT_FOR_US = frozenset({guest.Hold.MIGRATING})
"""Holds that do not ask for a VM to be put back."""


class PendingRestore:
    """One VM that must be put back.

    :ivar problem: why it failed the last time.
    :ivar current: the try that waits or runs now.
    """

    def __init__(self, target: guest.Guest) -> None:
        self.target = target
        self.problem = ''
        self.current: RestoreAttempt | None = None


class RestoreQueue:
    """Takes back all that we wrote to a VM.

    :param vms: our VMs.
    :param allowed: whether the agent is ending, or writes nothing at all.
    :param link: to libvirt.
    :param pool: the threads that call libvirt.
    :param records: the journal.
    :param host: reads the QEMU processes.
    :param actuators: what has written.
    :param changes: finds what others wrote.
    """

    def __init__(
        self,
        vms: registry.GuestRegistry,
        allowed: write_permission.WritePermission,
        link: connection.Connection,
        pool: executor.DomainExecutor,
        records: store.Journal,
        host: qemu_process.Processes,
        actuators: Iterable[Any],
        changes: policy.ExternalChangePolicy,
    ) -> None:
        self._roster = vms
        self._gate = allowed
        self._connection = link
        self._workers = pool
        self._journal = records
        self._host = host
        self._reversal = restore_guest.GuestRestorer(
            allowed,
            link,
            records,
            actuators,
            changes,
            host,
        )
        self._lock = threading.Lock()
        self._owed: dict[str, PendingRestore] = {}
        self._open: set[RestoreAttempt] = set()
        self.leftovers = after_crash.CrashRecovery(
            recovery.Restorer(records, host), allowed
        )

    def submit(self, target: guest.Guest, why: guest.Hold) -> RestoreAttempt:
        """Have a VM put back soon, and left alone from now on.

        :returns: of the first try; :meth:`retry` makes the others.
        """
        with self._lock:
            return self._queue(self._owe(target, why))

    def now(self, target: guest.Guest, why: guest.Hold) -> bool:
        """Put a VM back here and now, in a worker; else it stays owed.

        :returns: whether nothing is left that we could do.
        """
        with self._lock:
            owed = self._owe(target, why)
        answer = self._attempt(owed)
        return answer in (DONE, GONE) or self._gate.dry_run

    def retry(self, uuid: str) -> None:
        """Have a VM put back that could not be; in vain for all others."""
        with self._lock:
            owed = self._owed.get(uuid)
            if owed is None:
                return
            if self._roster.guests.get(uuid) is not owed.target:
                # Its run has ended, and with it all that we wrote.
                del self._owed[uuid]
                return
            self._queue(owed)

    def release(self, target: guest.Guest, *why: guest.Hold) -> None:
        """Reasons to leave a VM alone have ended; it may be ours again."""
        with self._lock:
            target.holds.difference_update(why)
            if not target.holds - NOT_FOR_US:
                self._owed.pop(target.uuid, None)

    def end(self) -> None:
        """No worker runs any more: nobody is to wait for what is open."""
        with self._lock:
            for current in tuple(self._open):
                self._answer(current, ENDING)

    def is_gone(
        self, uuid: str, error: libvirt.libvirtError, run: int | None = None
    ) -> bool:
        """Whether a domain has ended, now that a call about it failed.

        :param run: libvirt's number of the run; None for any.
        """
        if not connection.is_gone(error):
            return False
        try:
            # Calls are invalid for other reasons, too: a migration, a job, a
            # cgroup controller that is not there.
            now = self._connection.get().lookupByUUIDString(uuid).ID()
        except libvirt.libvirtError as other:
            return bool(other.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)
        return bool(now < 0 or run not in (None, now))

    def gone(self, uuid: str) -> None:
        """A domain stopped, or migrated away."""
        with self._lock:
            self._owed.pop(uuid, None)
        self._roster.forget_other(uuid)
        name = self._roster.name(uuid)
        if self._roster.dismiss(uuid):
            LOG.info('VM %s: gone', name)
        if uuid in self._journal.uuids():
            self.forget_record(uuid)

    def forget_record(self, uuid: str) -> None:
        """A domain that does not run here needs its record no more."""
        if not self._host.find(uuid):
            self.leftovers.forget(uuid)

    def leaves_any(self) -> bool:
        """Whether a VM that runs is still in the journal.

        As one that an agent before this has left when it crashed, and that
        this one has not come round to. What a newer one's record is about was
        put back without it.
        """
        boot_id = self._host.boot_id()
        for uuid in self._journal.uuids():
            try:
                record = self._journal.load(uuid)
            except store.NewerVersion:
                continue
            except store.JournalError:
                record = None
            if record is not None:
                run = record.identity
                # Hundreds may be of VMs that have ended; to look for each
                # takes longer.
                if run.boot_id != boot_id or (
                    run.pid
                    and self._host.start_ticks(run.pid) != run.start_ticks
                ):
                    continue
            if self._host.find(uuid):
                return True
        return False

    def _owe(self, target: guest.Guest, why: guest.Hold) -> PendingRestore:
        """Enter a VM in the list; the lock is held."""
        # In force before anybody looks at the VM under its own lock.
        target.holds.add(why)
        owed = self._owed.get(target.uuid)
        if owed is None or owed.target is not target:
            owed = self._owed[target.uuid] = PendingRestore(target)
        return owed

    def _queue(self, owed: PendingRestore) -> RestoreAttempt:
        """Have a worker try; the lock is held."""
        if owed.current is not None:
            # A call that hangs must not have more pile up behind it.
            return owed.current
        current = owed.current = RestoreAttempt()
        self._open.add(current)
        if not self._workers.submit(
            owed.target.uuid, lambda: self._run(owed, current)
        ):
            self._answer(current, ENDING)
        return current

    def _run(self, owed: PendingRestore, current: RestoreAttempt) -> None:
        with self._lock:
            wanted = self._owed.get(owed.target.uuid) is owed
        if wanted:
            answer = self._attempt(owed)
        else:
            here = self._roster.guests.get(owed.target.uuid) is owed.target
            answer = RESUMED if here else GONE
        with self._lock:
            owed.current = None
            self._answer(current, answer)

    def _answer(self, current: RestoreAttempt, answer: str) -> None:
        """End a try, if it has not ended yet; the lock is held."""
        if current in self._open:
            self._open.discard(current)
            current.set_result(answer)

    def _attempt(self, owed: PendingRestore) -> str:
        """Try once; says so in the log when that is news."""
        target = owed.target
        answer = self._try(target)
        before, owed.problem = owed.problem, answer
        with self._lock:
            wanted = self._owed.get(target.uuid) is owed
            if wanted and answer in (DONE, GONE):
                del self._owed[target.uuid]
        if answer in (DONE, GONE):
            if before and answer == DONE:
                LOG.info('VM %s: put back at last', target.name)
        elif wanted and not before:
            # Who migrates is the other host's agent's to put back.
            LOG.log(
                logging.INFO if answer == MIGRATES else logging.ERROR,
                'VM %s (%s): not put back, tried again: %s',
                target.name,
                target.hands_off,
                answer,
            )
        return answer

    def _try(self, target: guest.Guest) -> str:
        if self._gate.dry_run:
            return self.leftovers.why_left(target.uuid)
        if (
            target.journalled
            and guest.Hold.MIGRATING in target.holds
            and guest.Hold.STOPPING not in target.holds
        ):
            # The call would not be refused at once, but hang for long.
            return MIGRATES
        if self._roster.guests.get(target.uuid) is not target:
            return GONE
        try:
            self._reversal.put_back(target)
        except misdirected_writes.RunChangedError:
            self.gone(target.uuid)
            return GONE
        except Exception as error:
            LOG.debug('VM %s: not put back', target.name, exc_info=True)
            if isinstance(error, libvirt.libvirtError):
                self._connection.failed(error)
                if self.is_gone(target.uuid, error, target.domain_id):
                    self.gone(target.uuid)
                    return GONE
            # Half of it may be done; that was not somebody else.
            target.uncertain = target.journalled
            return str(error) or repr(error)
        return DONE
