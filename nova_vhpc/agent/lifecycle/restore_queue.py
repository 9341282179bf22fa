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

A VM that must be put back is pending: it stays on a list, and is tried again
at each reconcile, until it is put back, gone, or ours to write once more. When
the agent ends there is none; it is tried again as long as there is time.
"""

import concurrent.futures
import logging
import threading
from collections.abc import Mapping
from typing import Any

import libvirt

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import misdirected_writes
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.journal.record import JournalError, NewerVersion
from nova_vhpc.agent.libvirt import connection
from nova_vhpc.agent.lifecycle import after_crash, restore_guest

LOG = logging.getLogger(__name__)

RestoreAttempt = concurrent.futures.Future[str]
"""Of putting a VM back: ``DONE``, ``GONE``, or why it failed."""

DONE = ''
GONE = 'it is gone'
RESUMED = 'it was resumed meanwhile'
ENDING = 'the agent is ending'
MIGRATES = 'it migrates or is saved, and libvirt takes no writes meanwhile'

NOT_FOR_US = frozenset({Hold.MIGRATING})
"""Holds that do not ask for a VM to be put back."""


class PendingRestore:
    """One VM that must be put back.

    :ivar problem: why it failed the last time.
    :ivar current: the try that waits or runs now.
    """

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.problem = ''
        self.current: RestoreAttempt | None = None


class RestoreQueue:
    """Guests that must get their original settings back.

    A guest stays queued, and is retried at each resync, until it is restored,
    gone, or may be managed again.

    :param context: the agent's collaborators.
    :param guest_restorer: restores one guest.
    :param crash_recovery: restores what an agent that crashed has left.
    """

    def __init__(
        self,
        context: HostContext,
        guest_restorer: restore_guest.GuestRestorer,
        crash_recovery: after_crash.CrashRecovery,
    ) -> None:
        self._context = context
        self._guest_restorer = guest_restorer
        self._crash_recovery = crash_recovery
        self._lock = threading.Lock()
        self._pending: dict[str, PendingRestore] = {}
        self._unfinished: set[RestoreAttempt] = set()

    def submit(self, guest: Guest, why: Hold) -> RestoreAttempt:
        """Have a VM put back soon, and left alone from now on.

        :returns: of the first try; :meth:`retry` makes the others.
        """
        with self._lock:
            return self._queue(self._add(guest, why))

    def now(self, guest: Guest, why: Hold) -> bool:
        """Put a VM back here and now, in a worker; else it stays pending.

        :returns: whether nothing is left that we could do.
        """
        with self._lock:
            pending = self._add(guest, why)
        answer = self._attempt(pending)
        return answer in (DONE, GONE) or self._context.permission.dry_run

    def retry(self, uuid: str) -> None:
        """Have a VM put back that could not be; in vain for all others."""
        with self._lock:
            pending = self._pending.get(uuid)
            if pending is None:
                return
            if self._context.guests.by_uuid.get(uuid) is not pending.guest:
                # Its run has ended, and with it all that we wrote.
                del self._pending[uuid]
                return
            self._queue(pending)

    def release(self, guest: Guest, *why: Hold) -> None:
        """Reasons to leave a VM alone have ended; it may be ours again."""
        with self._lock:
            guest.holds.difference_update(why)
            if not guest.holds - NOT_FOR_US:
                self._pending.pop(guest.uuid, None)

    def end(self) -> None:
        """No worker runs any more: nobody is to wait for what is open."""
        with self._lock:
            for current in tuple(self._unfinished):
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
            now = self._context.connection.get().lookupByUUIDString(uuid).ID()
        except libvirt.libvirtError as other:
            return bool(other.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)
        return bool(now < 0 or run not in (None, now))

    def gone(self, uuid: str) -> None:
        """A domain stopped, or migrated away."""
        with self._lock:
            self._pending.pop(uuid, None)
        self._context.guests.forget_unmanaged(uuid)
        name = self._context.guests.name(uuid)
        if self._context.guests.remove_ended_run(uuid):
            LOG.info('VM %s: gone', name)
        if uuid in self._context.journal.uuids():
            self.forget_record(uuid)

    def forget_record(self, uuid: str) -> None:
        """A domain that does not run here needs its record no more."""
        if not self._context.processes.find(uuid):
            self._crash_recovery.forget(uuid)

    def any_unrestored(self) -> bool:
        """Whether a VM that runs is still in the journal.

        As one that an agent before this has left when it crashed, and that
        this one has not come round to. What a newer one's record is about was
        put back without it.
        """
        processes = self._context.processes
        boot_id = processes.boot_id()
        for uuid in self._context.journal.uuids():
            try:
                record = self._context.journal.load(uuid)
            except NewerVersion:
                continue
            except JournalError:
                record = None
            if record is not None:
                if record.is_handed_back:
                    continue
                run = record.identity
                # Hundreds may be of VMs that have ended; to look for each
                # takes longer.
                if run.boot_id != boot_id or (
                    run.pid
                    and processes.start_ticks(run.pid) != run.start_ticks
                ):
                    continue
            if self._context.processes.find(uuid):
                return True
        return False

    def _add(self, guest: Guest, why: Hold) -> PendingRestore:
        """Enter a VM in the list; the lock is held."""
        # In force before anybody looks at the VM under its own lock.
        guest.holds.add(why)
        pending = self._pending.get(guest.uuid)
        if pending is None or pending.guest is not guest:
            pending = self._pending[guest.uuid] = PendingRestore(guest)
        return pending

    def _queue(self, pending: PendingRestore) -> RestoreAttempt:
        """Have a worker try; the lock is held."""
        if pending.current is not None:
            # A call that hangs must not have more pile up behind it.
            return pending.current
        current = pending.current = RestoreAttempt()
        self._unfinished.add(current)
        if not self._context.executor.submit(
            pending.guest.uuid, lambda: self._run(pending, current)
        ):
            self._answer(current, ENDING)
        return current

    def _run(self, pending: PendingRestore, current: RestoreAttempt) -> None:
        with self._lock:
            wanted = self._pending.get(pending.guest.uuid) is pending
        if wanted:
            answer = self._attempt(pending)
        else:
            here = (
                self._context.guests.by_uuid.get(pending.guest.uuid)
                is pending.guest
            )
            answer = RESUMED if here else GONE
        with self._lock:
            pending.current = None
            self._answer(current, answer)

    def _answer(self, current: RestoreAttempt, answer: str) -> None:
        """End a try, if it has not ended yet; the lock is held."""
        if current in self._unfinished:
            self._unfinished.discard(current)
            current.set_result(answer)

    def _attempt(self, pending: PendingRestore) -> str:
        """Try once; says so in the log when that is news."""
        guest = pending.guest
        answer = self._try(guest)
        before, pending.problem = pending.problem, answer
        with self._lock:
            wanted = self._pending.get(guest.uuid) is pending
            if wanted and answer in (DONE, GONE):
                del self._pending[guest.uuid]
        if answer in (DONE, GONE):
            if before and answer == DONE:
                LOG.info('VM %s: put back at last', guest.name)
        elif wanted and not before:
            # Who migrates is the other host's agent's to put back.
            LOG.log(
                logging.INFO if answer == MIGRATES else logging.ERROR,
                'VM %s (%s): not put back, tried again: %s',
                guest.name,
                guest.hands_off,
                answer,
            )
        return answer

    def _try(self, guest: Guest) -> str:
        if self._context.permission.dry_run:
            return self._crash_recovery.why_left(guest.uuid)
        if (
            guest.journalled
            and Hold.MIGRATING in guest.holds
            and Hold.STOPPING not in guest.holds
        ):
            # The call would not be refused at once, but hang for long.
            return MIGRATES
        if self._context.guests.by_uuid.get(guest.uuid) is not guest:
            return GONE
        try:
            self._guest_restorer.restore(guest)
        except misdirected_writes.RunChangedError:
            self.gone(guest.uuid)
            return GONE
        except Exception as error:
            LOG.debug('VM %s: not put back', guest.name, exc_info=True)
            if isinstance(error, libvirt.libvirtError):
                self._context.connection.failed(error)
                if self.is_gone(guest.uuid, error, guest.domain_id):
                    self.gone(guest.uuid)
                    return GONE
            # Half of it may be done; that was not somebody else.
            guest.uncertain = guest.journalled
            return str(error) or repr(error)
        return DONE


def report(
    attempts: Mapping[str, RestoreAttempt], wait_s: float
) -> dict[str, Any]:
    """Wait for the first attempts to restore servers; return the outcome.

    :param attempts: by the server's UUID.
    :param wait_s: longest time to wait for all of them, in seconds. A server
        that is not restored by then is reported as failed, and tried again.
    :returns: in values that JSON takes: ``restored`` UUIDs, ``failed`` with
        the reason by UUID, and ``unknown`` UUIDs that do not run here.
    """
    done = concurrent.futures.wait(attempts.values(), wait_s).done
    answers = {
        uuid: attempt.result()
        if attempt in done
        else f'not done within {wait_s:g} s; it is still tried'
        for uuid, attempt in sorted(attempts.items())
    }
    return {
        'restored': [u for u, text in answers.items() if text == DONE],
        'failed': {
            uuid: text
            for uuid, text in answers.items()
            if text not in (DONE, GONE)
        },
        'unknown': [u for u, text in answers.items() if text == GONE],
    }


def report_refused(server: str, reason: str | None) -> dict[str, Any]:
    """Return the same for a server that is not managed.

    :param reason: why it is not; None if the server is unknown.
    """
    return {
        'restored': [],
        'failed': {} if reason is None else {server: f'left alone: {reason}'},
        'unknown': [server] if reason is None else [],
    }


def report_resumed(server: str, reason: str | None) -> dict[str, Any]:
    """Return the outcome of resuming one server, in values that JSON takes.

    :param reason: why it is not resumed; empty if it is, None if the server
        is unknown.
    """
    return {
        'resumed': [server] if reason == '' else [],
        'failed': {server: reason} if reason else {},
        'unknown': [server] if reason is None else [],
    }
