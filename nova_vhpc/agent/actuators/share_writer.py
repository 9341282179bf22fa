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


"""Keep many VMs' ``cpu_shares`` as wanted, whatever libvirt does.

Whoever wants shares says so and never waits. Helper threads write, one call
per VM at a time; a value that comes meanwhile is written when the call
returns. So a VM that hangs holds one thread, and gets the newest value last.
"""

import collections
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping

LOG = logging.getLogger(__name__)

HELPERS = 4
"""libvirtd serves five calls of one client at a time by default."""

MOST_HELPERS = 32
"""With those that stand in for the ones that hanging calls hold."""

TOLD_FAILURES = 2
"""In a row. One is mostly another call about the VM that takes its time."""

HELD_S = 0.25
"""A call that takes longer holds its thread: another one stands in."""


BACK_OFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Pause before the next try after 1, 2, ... failures in a row, in seconds."""


@dataclasses.dataclass(slots=True, eq=False)
class PendingShares:
    """The ``cpu_shares`` that one guest must get, and the state of the write.

    Guarded by the lock of the :class:`ShareWriter`.

    :ivar value: newest value that was set.
    :ivar in_force: value written last; None if that is not known.
    :ivar leaving: forget the guest once ``value`` is in force.
    :ivar queued: a write is queued.
    :ivar since_s: monotonic time at which the write in progress began, in
        seconds; None without one.
    :ivar failures: failed writes in a row.
    :ivar not_before_s: monotonic time before which no write is tried, in
        seconds; later after each failure in a row.
    """

    uuid: str
    value: int
    in_force: int | None = None
    leaving: bool = False
    queued: bool = False
    since_s: float | None = None
    failures: int = 0
    not_before_s: float = 0.0

    @property
    def due(self) -> bool:
        """Whether a write must be queued now."""
        return (
            self.in_force != self.value
            and not self.queued
            and self.since_s is None
            and time.monotonic() >= self.not_before_s
        )

    def succeeded(self, value: int | None) -> None:
        """Note that ``value`` was written; None if the guest is left alone."""
        self.failures = 0
        self.not_before_s = 0.0
        self.in_force = value

    def failed(self) -> None:
        """Note a failed write: which value is in force is unknown now."""
        back_off_s = BACK_OFF_S[min(self.failures, len(BACK_OFF_S) - 1)]
        self.failures += 1
        self.not_before_s = time.monotonic() + back_off_s
        self.in_force = None


class ShareWriter:
    """Writes the newest value for each VM; tries again what fails.

    :param set_shares: called with (VM uuid, ``cpu_shares``) for several
        VMs at a time, never twice for the same; may raise anything, and
        may take its time. It returns whether the shares were written: a VM
        may have to be left alone for a while.
    """

    def __init__(self, set_shares: Callable[[str, int], bool]) -> None:
        self.writes = 0
        self.failures = 0
        self._set_shares = set_shares
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._vms: dict[str, PendingShares] = {}
        self._ready: collections.deque[PendingShares] = collections.deque()
        self._running: set[PendingShares] = set()
        self._failing: set[PendingShares] = set()
        self._batch: set[PendingShares] = set()
        self._done: Callable[[], None] | None = None
        self._threads = 0
        self._short = False
        self._closed = False

    def want(
        self,
        shares: Mapping[str, int],
        done: Callable[[], None] | None = None,
    ) -> None:
        """Have these shares written, all at the same time. Returns at once.

        One after the other, nobody or two would be favoured for as long as
        a call takes: several milliseconds on a busy host.

        :param done: called when all of it was tried, by the last one to
            write; not for a VM whose earlier call has not returned, and not
            if something else is wanted before.
        """
        with self._lock:
            for uuid, value in shares.items():
                vm = self._vms.setdefault(uuid, PendingShares(uuid, value))
                vm.value = value
                vm.leaving = False
                self._queue(vm)
            self._batch = set(self._ready)
            self._done = done if self._batch else None
            self._start_helpers()
            nothing = not self._batch
        if nothing and done is not None:
            done()

    def leave(self, shares_after: Mapping[str, int]) -> None:
        """Give these VMs their last shares, and forget them then."""
        with self._lock:
            for uuid, value in shares_after.items():
                vm = self._vms.get(uuid)
                if vm is None:
                    continue
                vm.value = value
                vm.leaving = True
                # Favoured or starved it must not stay: no back-off now.
                vm.not_before_s = 0.0
                self._queue(vm)
                if not vm.queued and vm.since_s is None:
                    self._forget(vm)
            self._start_helpers()

    def tend(self) -> float | None:
        """Have other threads stand in for those that are held.

        :returns: seconds until it should be called again, if nothing else
            is wanted; None if nothing waits.
        """
        with self._lock:
            self._retry()
            self._start_helpers()
            return HELD_S if self._ready or self._failing else None

    def forget_written(self, uuid: str) -> None:
        """What is in force in a VM is not known any more."""
        with self._lock:
            vm = self._vms.get(uuid)
            if vm is not None:
                vm.in_force = None

    def failing(self) -> frozenset[str]:
        """VMs whose last call failed, or does not return."""
        with self._lock:
            return frozenset(vm.uuid for vm in self._failing | self._held())

    def close(self, timeout_s: float) -> bool:
        """Let the threads end when all that is wanted was tried once more.

        :returns: whether all VMs were left with their last shares; False,
            too, if that was not done in time.
        """
        end_s = time.monotonic() + timeout_s
        with self._lock:
            self._closed = True
            self._work.notify_all()
            while self._ready or self._running:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._idle.wait(min(left_s, HELD_S))
                self._start_helpers()
            return not self._vms

    # -- with the lock held -------------------------------------------------

    def _queue(self, vm: PendingShares) -> None:
        if vm.due:
            vm.queued = True
            self._ready.append(vm)
            self._work.notify()

    def _forget(self, vm: PendingShares) -> None:
        self._vms.pop(vm.uuid, None)
        self._failing.discard(vm)

    def _held(self) -> set[PendingShares]:
        """VMs whose call holds a thread for long."""
        limit = time.monotonic() - HELD_S
        return {vm for vm in self._running if (vm.since_s or limit) < limit}

    def _start_helpers(self) -> None:
        """Have enough threads. Daemons: a hanging one must not keep us."""
        if not self._ready:
            return
        wanted = min(HELPERS, len(self._vms)) + len(self._held())
        problem = ''
        if wanted > MOST_HELPERS:
            problem = f'calls hold {MOST_HELPERS} threads'
        while self._threads < min(wanted, MOST_HELPERS):
            thread = threading.Thread(
                target=self._help, name='gang-shares', daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                problem = str(error)
                break
            self._threads += 1
        if problem and not self._short:
            LOG.error(
                'Too few threads to write cpu_shares, windows may stop: %s',
                problem,
            )
        self._short = bool(problem)

    def _retry(self) -> float | None:
        """Queue what failed and is due; seconds until the next is."""
        now_s = time.monotonic()
        due_s: list[float] = []
        for vm in self._failing:
            if vm.since_s is None and not vm.queued:
                self._queue(vm)
                due_s.append(max(0.0, vm.not_before_s - now_s))
        return min(due_s, default=None)

    def _take(self) -> PendingShares | None:
        """Wait for a VM to write to; None for a thread that is to end."""
        while True:
            pause_s = self._retry()
            if self._ready:
                return self._ready.popleft()
            if self._closed or self._threads > HELPERS + len(self._held()):
                # Counted here, or several would end for the same reason.
                self._threads -= 1
                return None
            self._work.wait(pause_s)

    # -- in the helper threads ----------------------------------------------

    def _help(self) -> None:
        while True:
            with self._lock:
                vm = self._take()
                if vm is None:
                    return
                vm.queued = False
                vm.since_s = time.monotonic()
                self._running.add(vm)
                value = vm.value
            self._write(vm, value)

    def _write(self, vm: PendingShares, value: int) -> None:
        error: Exception | None = None
        written = False
        try:
            written = self._set_shares(vm.uuid, value)
        except Exception as caught:
            error = caught
        with self._lock:
            self._running.discard(vm)
            vm.since_s = None
            self.writes += 1
            if error is not None:
                self._failed(vm, value, error)
            else:
                self._succeeded(vm, value, written)
            self._batch.discard(vm)
            done = None
            if not self._batch:
                done, self._done = self._done, None
            if not self._ready and not self._running:
                self._idle.notify_all()
        if done is not None:
            done()

    def _succeeded(self, vm: PendingShares, value: int, written: bool) -> None:
        if vm.failures >= TOLD_FAILURES:
            LOG.info('VM %s: cpu_shares are written again', vm.uuid)
        # Who is left alone now may be ours at the next border.
        vm.succeeded(value if written else None)
        self._failing.discard(vm)
        if vm.value != value:
            self._queue(vm)
        elif vm.leaving:
            self._forget(vm)

    def _failed(self, vm: PendingShares, value: int, error: Exception) -> None:
        vm.failed()
        if vm.failures == TOLD_FAILURES:
            LOG.warning(
                'VM %s: cpu_shares %d could not be written, its windows are '
                'skipped until it works again: %s',
                vm.uuid,
                value,
                error,
            )
        self.failures += 1
        self._failing.add(vm)
