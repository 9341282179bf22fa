# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restore guests while the agent runs, and retry until it is done."""

import concurrent.futures
import dataclasses
import logging
import threading
from collections.abc import Mapping
from typing import Any

import libvirt

from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import misdirected_writes
from nova_vhpc.agent.guests.guest import Guest, Hold
from nova_vhpc.agent.libvirt import connection
from nova_vhpc.agent.lifecycle import after_crash, restore_guest

LOG = logging.getLogger(__name__)

RestoreAttempt = concurrent.futures.Future[str]
"""Attempt to restore a guest; its result is :data:`DONE`, :data:`GONE`, or the
reason of the failure."""

DONE = ''
GONE = 'it has stopped or migrated away'
RESUMED = 'it was resumed meanwhile'
ENDING = 'the agent is ending'
MIGRATES = 'it migrates or is saved, and libvirt takes no writes meanwhile'

HOLDS_WITHOUT_RESTORE = frozenset({Hold.MIGRATING})
"""Holds that do not require that a guest is restored."""


@dataclasses.dataclass(slots=True, eq=False)
class PendingRestore:
    """A guest that must be restored.

    :ivar failures: number of attempts that have failed.
    :ivar current: the attempt that waits or runs now.
    """

    guest: Guest
    failures: int = 0
    current: RestoreAttempt | None = None


class RestoreQueue:
    """Guests that must get their original settings back.

    A guest stays queued, and is retried at each resync, until it is restored,
    gone, or may be managed again.
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

    def submit(self, guest: Guest, hold: Hold) -> RestoreAttempt:
        """Hold a guest from now on, and have it restored soon.

        :returns: the first attempt; :meth:`retry` makes further ones.
        """
        with self._lock:
            return self._queue(self._add(guest, hold))

    def restore_now(self, guest: Guest, hold: Hold) -> bool:
        """Restore a guest in the caller's executor thread.

        If that fails, the guest stays queued.

        :returns: whether the guest is restored or gone, or this is a dry run.
        """
        with self._lock:
            pending = self._add(guest, hold)
        outcome = self._attempt(pending)
        return outcome in (DONE, GONE) or self._context.permission.dry_run

    def retry(self, uuid: str) -> None:
        """Have a guest restored if it is still queued."""
        with self._lock:
            pending = self._pending.get(uuid)
            if pending is None:
                return
            if not self._context.guests.is_managed(pending.guest):
                # Its run has ended, and with it all that the agent wrote.
                del self._pending[uuid]
                return
            self._queue(pending)

    def release(self, guest: Guest, *holds: Hold) -> None:
        """End holds of a guest; without any, it need not be restored."""
        with self._lock:
            guest.holds.difference_update(holds)
            if not guest.holds - HOLDS_WITHOUT_RESTORE:
                self._pending.pop(guest.uuid, None)

    def close(self) -> None:
        """Finish all attempts after the executor has ended."""
        with self._lock:
            for current in tuple(self._unfinished):
                self._finish(current, ENDING)

    def has_ended(
        self,
        uuid: str,
        error: libvirt.libvirtError,
        domain_id: int | None = None,
    ) -> bool:
        """Return whether a domain has ended, after a call about it failed.

        :param error: error of that call.
        :param domain_id: libvirt's ID of the run; None for any run.
        """
        if not connection.is_gone(error):
            return False
        try:
            # libvirt reports the same code for other reasons, too: a
            # migration, a job, a cgroup controller that is missing.
            now = self._context.connection.get().lookupByUUIDString(uuid).ID()
        except libvirt.libvirtError as other:
            return bool(other.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)
        return bool(now < 0 or domain_id not in (None, now))

    def forget_domain(self, uuid: str) -> None:
        """Forget a domain that stopped or migrated away, and its record."""
        with self._lock:
            self._pending.pop(uuid, None)
        self._context.guests.forget_unmanaged(uuid)
        name = self._context.guests.name(uuid)
        if self._context.guests.remove_ended_run(uuid):
            LOG.info('VM %s: stopped or migrated away', name)
        if uuid in self._context.journal.uuids():
            self.forget_record(uuid)

    def forget_record(self, uuid: str) -> None:
        """Remove a domain's record unless the domain runs on this host."""
        if not self._context.processes.find(uuid):
            self._crash_recovery.forget(uuid)

    def _add(self, guest: Guest, hold: Hold) -> PendingRestore:
        """Hold a guest and add it to the queue; the lock is held."""
        # Before a writer checks the holds under the guest's own lock.
        guest.holds.add(hold)
        pending = self._pending.get(guest.uuid)
        if pending is None or pending.guest is not guest:
            pending = self._pending[guest.uuid] = PendingRestore(guest)
        return pending

    def _queue(self, pending: PendingRestore) -> RestoreAttempt:
        """Submit an attempt to the executor; the lock is held."""
        if pending.current is not None:
            # No further calls must pile up behind one that hangs.
            return pending.current
        current = pending.current = RestoreAttempt()
        self._unfinished.add(current)
        if not self._context.executor.submit(
            pending.guest.uuid, lambda: self._run(pending, current)
        ):
            self._finish(current, ENDING)
        return current

    def _run(self, pending: PendingRestore, current: RestoreAttempt) -> None:
        with self._lock:
            queued = self._pending.get(pending.guest.uuid) is pending
        if queued:
            outcome = self._attempt(pending)
        elif self._context.guests.is_managed(pending.guest):
            outcome = RESUMED
        else:
            outcome = GONE
        with self._lock:
            pending.current = None
            self._finish(current, outcome)

    def _finish(self, current: RestoreAttempt, outcome: str) -> None:
        """Set an attempt's result unless it has one; the lock is held."""
        if current in self._unfinished:
            self._unfinished.discard(current)
            current.set_result(outcome)

    def _attempt(self, pending: PendingRestore) -> str:
        """Make one attempt; log the first failure, and success after it."""
        guest = pending.guest
        outcome = self._restore(guest)
        done = outcome in (DONE, GONE)
        with self._lock:
            queued = self._pending.get(guest.uuid) is pending
            if queued and done:
                del self._pending[guest.uuid]
        if done:
            if pending.failures and outcome == DONE:
                LOG.info(
                    'VM %s: original settings restored after %d failed '
                    'attempts',
                    guest.name,
                    pending.failures,
                )
            return outcome
        if queued and not pending.failures:
            # The destination's agent restores a guest that migrates.
            LOG.log(
                logging.INFO if outcome == MIGRATES else logging.ERROR,
                'VM %s (%s): restore failed, will retry: %s',
                guest.name,
                guest.hands_off,
                outcome,
            )
        pending.failures += 1
        return outcome

    def _restore(self, guest: Guest) -> str:
        if self._context.permission.dry_run:
            return self._crash_recovery.why_left(guest.uuid)
        if (
            guest.journalled
            and Hold.MIGRATING in guest.holds
            and Hold.STOPPING not in guest.holds
        ):
            # libvirt would not refuse the call at once, but let it hang.
            return MIGRATES
        if not self._context.guests.is_managed(guest):
            return GONE
        try:
            self._guest_restorer.restore(guest)
        except misdirected_writes.RunChangedError:
            self.forget_domain(guest.uuid)
            return GONE
        except Exception as error:
            LOG.debug('VM %s: restore failed', guest.name, exc_info=True)
            if isinstance(error, libvirt.libvirtError):
                self._context.connection.failed(error)
                if self.has_ended(guest.uuid, error, guest.domain_id):
                    self.forget_domain(guest.uuid)
                    return GONE
            # Part of it may be done, which is no external change.
            guest.uncertain = guest.journalled
            return str(error) or repr(error)
        return DONE


def report_restored(
    attempts: Mapping[str, RestoreAttempt], wait_s: float
) -> dict[str, Any]:
    """Wait for the first attempts to restore servers; return the outcome.

    :param attempts: first attempt to restore each server, by its UUID.
    :param wait_s: longest time to wait for all of them, in seconds. A server
        that is not restored by then is reported as failed, and retried.
    :returns: ``restored`` UUIDs, ``failed`` with the reason by UUID, and
        ``unknown`` UUIDs of servers that do not run on this host.
    """
    done = concurrent.futures.wait(attempts.values(), wait_s).done
    outcomes = {
        uuid: attempt.result()
        if attempt in done
        else f'not done within {wait_s:g} s; it will be retried'
        for uuid, attempt in sorted(attempts.items())
    }
    return {
        'restored': [
            uuid for uuid, outcome in outcomes.items() if outcome == DONE
        ],
        'failed': {
            uuid: outcome
            for uuid, outcome in outcomes.items()
            if outcome not in (DONE, GONE)
        },
        'unknown': [
            uuid for uuid, outcome in outcomes.items() if outcome == GONE
        ],
    }


def report_refused(server: str, reason: str | None) -> dict[str, Any]:
    """Return the outcome of restoring a server that is not managed.

    :param reason: why it is not managed; None if it is unknown.
    """
    return {
        'restored': [],
        'failed': {} if reason is None else {server: f'left alone: {reason}'},
        'unknown': [server] if reason is None else [],
    }


def report_resumed(server: str, reason: str | None) -> dict[str, Any]:
    """Return the outcome of resuming one server.

    :param reason: why it is not resumed; empty if it is, None if the server
        is unknown.
    """
    return {
        'resumed': [server] if reason == '' else [],
        'failed': {server: reason} if reason else {},
        'unknown': [server] if reason is None else [],
    }
