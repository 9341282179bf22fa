# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write ``cpu_shares`` and CPUs of many guests without waiting for libvirt.

At most one write per guest runs at a time. A value that is set meanwhile is
written when that write returns, so a guest whose write hangs holds one thread
and gets only the newest value afterwards.
"""

import contextlib
import dataclasses
import enum
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping

from nova_vhpc.agent.libvirt import executor

LOG = logging.getLogger(__name__)

HELPERS = 4
"""Number of writer threads. libvirtd serves five calls of one client at a
time by default."""

MOST_HELPERS = 32
"""Largest number of writer threads, with those that replace hanging ones."""

LOGGED_FAILURES = 2
"""Failures in a row from which a warning is logged. A single failure mostly
means that another call about the guest takes long."""

HELD_S = 0.25
"""Duration of a write, in seconds, from which an extra thread is started."""

BACK_OFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Pause before the next try after 1, 2, ... failures in a row, in seconds."""


class State(enum.Enum):
    """Where the next write of a guest stands."""

    IDLE = enum.auto()
    QUEUED = enum.auto()
    RUNNING = enum.auto()


@dataclasses.dataclass(slots=True, eq=False)
class PendingShares:
    """The ``cpu_shares`` that one guest must get, and the state of the write.

    Guarded by the lock of the :class:`ShareWriter`.

    :ivar value: newest value that was set.
    :ivar in_force: value written last; None if that is not known.
    :ivar cpus: CPU of each vCPU; empty for all that its pins allow, None if
        the guest was never placed.
    :ivar cpus_in_force: the same as written last; None if that is not known.
    :ivar leaving: forget the guest once ``value`` is in force.
    :ivar awaited: whether the batch ends only after the queued write.
    :ivar since_s: monotonic time at which the last write began, in seconds.
    :ivar failures: failed writes in a row.
    :ivar not_before_s: monotonic time before which no write is tried, in
        seconds; later after each failure in a row.
    """

    uuid: str
    value: int
    in_force: int | None = None
    cpus: tuple[int, ...] | None = None
    cpus_in_force: tuple[int, ...] | None = None
    leaving: bool = False
    state: State = State.IDLE
    awaited: bool = False
    since_s: float = 0.0
    failures: int = 0
    not_before_s: float = 0.0

    @property
    def due(self) -> bool:
        """Whether a write must be queued now."""
        return (
            (self.in_force != self.value or self.cpus_in_force != self.cpus)
            and self.state is State.IDLE
            and time.monotonic() >= self.not_before_s
        )

    @property
    def held(self) -> bool:
        """Whether its write takes longer than ``HELD_S``."""
        return (
            self.state is State.RUNNING
            and time.monotonic() - self.since_s > HELD_S
        )

    def succeeded(
        self, value: int | None, cpus: tuple[int, ...] | None
    ) -> None:
        """Note what was written; None if the guest is left alone."""
        self.failures = 0
        self.not_before_s = 0.0
        self.in_force = value
        self.cpus_in_force = cpus

    def failed(self) -> None:
        """Note a failed write: which value is in force is unknown now."""
        back_off_s = BACK_OFF_S[min(self.failures, len(BACK_OFF_S) - 1)]
        self.failures += 1
        self.not_before_s = time.monotonic() + back_off_s
        self.in_force = None
        self.cpus_in_force = None


class ShareWriter:
    """Writes the newest value of each guest; retries failed writes.

    The writes run in an executor of their own: gang windows change every few
    ten milliseconds and must not queue behind other libvirt calls.

    :param set_shares: called with (guest UUID, ``cpu_shares``), in parallel
        for different guests, never for the same; may raise any exception and
        may block. Returns whether the shares were written: False if the
        guest must be left alone for a while.
    :param place: called after it with (guest UUID, CPUs) if the guest is to
        run on other CPUs; may raise any exception. Returns whether it did.
    :ivar writes: number of calls of ``set_shares``.
    :ivar failures: number of these calls that raised.
    """

    def __init__(
        self,
        set_shares: Callable[[str, int], bool],
        place: Callable[[str, tuple[int, ...]], bool],
    ) -> None:
        self.writes = 0
        self.failures = 0
        self._set_shares = set_shares
        self._place = place
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._vms: dict[str, PendingShares] = {}
        self._done: Callable[[], None] | None = None
        self._executor: executor.DomainExecutor | None = None
        self._exhausted = False

    def submit(
        self,
        shares: Mapping[str, int],
        cpus: Mapping[str, tuple[int, ...]],
        done: Callable[[], None] | None = None,
    ) -> None:
        """Write these shares, all at the same time. Return at once.

        One write after the other would favour no guest, or two at a time,
        for the duration of a call: several milliseconds on a busy host.

        :param shares: ``cpu_shares`` by guest UUID.
        :param cpus: CPU of each vCPU by guest UUID; empty for all that its
            pins allow. Other guests stay where they are.
        :param done: called in the thread of the last write once each queued
            write was tried. A guest whose earlier write has not returned is
            not waited for. Not called if :meth:`submit` is called again
            before that.
        """
        with self._lock:
            for uuid, value in shares.items():
                vm = self._vms.setdefault(uuid, PendingShares(uuid, value))
                vm.value = value
                vm.cpus = cpus.get(uuid, vm.cpus)
                vm.leaving = False
                self._queue(vm)
            for vm in self._vms.values():
                vm.awaited = vm.state is State.QUEUED
            nothing = not self._awaits()
            self._done = None if nothing else done
            self._watch()
        if nothing and done is not None:
            done()

    def leave(self, shares_after: Mapping[str, int]) -> None:
        """Write the last shares of these guests, then forget the guests."""
        with self._lock:
            for uuid, value in shares_after.items():
                vm = self._vms.get(uuid)
                if vm is None:
                    continue
                vm.value = value
                if vm.cpus is not None:
                    vm.cpus = ()
                vm.leaving = True
                # No back-off: the guest must not stay favoured or starved.
                vm.not_before_s = 0.0
                self._queue(vm)
                if vm.state is State.IDLE:
                    del self._vms[uuid]
            self._watch()

    def maintain(self) -> float | None:
        """Retry failed writes and replace threads that hang.

        :returns: time until the next call is needed, in seconds, if
            :meth:`submit` is not called before; None if nothing is pending.
        """
        with self._lock:
            failing = [vm for vm in self._vms.values() if vm.failures]
            for vm in failing:
                self._queue(vm)
            self._watch()
            return HELD_S if failing or self._has(State.QUEUED) else None

    def forget_written(self, uuid: str) -> None:
        """Write the shares of this guest again even if they are the same."""
        with self._lock:
            vm = self._vms.get(uuid)
            if vm is not None:
                vm.in_force = None
                vm.cpus_in_force = None

    def failing(self) -> frozenset[str]:
        """Return the guests whose last write failed or does not return."""
        with self._lock:
            return frozenset(
                vm.uuid for vm in self._vms.values() if vm.failures or vm.held
            )

    def close(self, timeout_s: float) -> bool:
        """End the threads once all queued writes were tried.

        :param timeout_s: longest time to wait, in seconds.
        :returns: whether all guests got their last shares in time.
        """
        end_s = time.monotonic() + timeout_s
        with self._lock:
            while self._has(State.QUEUED, State.RUNNING):
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._idle.wait(min(left_s, HELD_S))
                self._watch()
            if self._executor is not None:
                self._executor.close()
            return not self._vms

    # -- with the lock held -------------------------------------------------

    def _queue(self, vm: PendingShares) -> None:
        if not vm.due:
            return
        if self._executor is None:
            # Made here, because an agent without gangs needs no such threads.
            self._executor = executor.DomainExecutor(
                HELPERS,
                lambda: HELD_S,
                max_late=MOST_HELPERS - HELPERS,
                thread_name='gang-shares',
            )
        if self._executor.submit(vm.uuid, functools.partial(self._run, vm)):
            vm.state = State.QUEUED

    def _has(self, *states: State) -> bool:
        """Return whether the write of any guest is in one of these states."""
        return any(vm.state in states for vm in self._vms.values())

    def _awaits(self) -> bool:
        """Return whether the batch has writes that were not tried yet."""
        return any(vm.awaited for vm in self._vms.values())

    def _watch(self) -> None:
        """Replace threads that hang, as long as writes are queued."""
        if self._executor is None or not self._has(State.QUEUED):
            return
        self._executor.watch()
        exhausted = self._executor.exhausted
        if exhausted and not self._exhausted:
            LOG.error(
                'Too few threads to write cpu_shares, gang windows may stop: '
                '%d calls hang, at most %d threads write',
                sum(vm.held for vm in self._vms.values()),
                MOST_HELPERS,
            )
        self._exhausted = exhausted

    def _retry_later(self, vm: PendingShares) -> None:
        """Retry after the guest's back-off, not at the next border."""
        timer = threading.Timer(
            vm.not_before_s - time.monotonic(), self.maintain
        )
        timer.daemon = True
        # If no thread can be started, the next border retries.
        with contextlib.suppress(RuntimeError):
            timer.start()

    # -- in the executor's threads ------------------------------------------

    def _run(self, vm: PendingShares) -> None:
        with self._lock:
            vm.state = State.RUNNING
            vm.since_s = time.monotonic()
            value, cpus = vm.value, vm.cpus
            moved_to = None if vm.cpus_in_force == cpus else cpus
        self._write(vm, value, cpus, moved_to)

    def _write(
        self,
        vm: PendingShares,
        value: int,
        cpus: tuple[int, ...] | None,
        moved_to: tuple[int, ...] | None,
    ) -> None:
        error: Exception | None = None
        written = False
        try:
            written = self._set_shares(vm.uuid, value)
            if written and moved_to is not None:
                written = self._place(vm.uuid, moved_to)
        except Exception as caught:
            error = caught
        with self._lock:
            vm.state = State.IDLE
            vm.awaited = False
            self.writes += 1
            if error is not None:
                self._failed(vm, value, error)
            else:
                self._succeeded(vm, value, cpus, written)
            done = None
            if not self._awaits():
                done, self._done = self._done, None
            if not self._has(State.QUEUED, State.RUNNING):
                self._idle.notify_all()
        if done is not None:
            done()

    def _succeeded(
        self,
        vm: PendingShares,
        value: int,
        cpus: tuple[int, ...] | None,
        written: bool,
    ) -> None:
        if vm.failures >= LOGGED_FAILURES:
            LOG.info('VM %s: cpu_shares are written again', vm.uuid)
        # A guest that is left alone now may be written at the next border.
        vm.succeeded(value if written else None, cpus if written else None)
        if vm.value != value or vm.cpus != cpus:
            self._queue(vm)
        elif vm.leaving:
            self._vms.pop(vm.uuid, None)

    def _failed(self, vm: PendingShares, value: int, error: Exception) -> None:
        vm.failed()
        if vm.failures == LOGGED_FAILURES:
            LOG.warning(
                'VM %s: cpu_shares %d could not be written, its windows are '
                'skipped until it works again: %s',
                vm.uuid,
                value,
                error,
            )
        self.failures += 1
        self._retry_later(vm)
