# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write guests, after their original settings are in the journal."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent.actuators import affinity, weights
from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import misdirected_writes
from nova_vhpc.agent.guests import quarantine
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import connection, cputune
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

LOCK_SECONDS = 0.05
"""Longest time that a window waits for a guest's lock, in seconds."""


class Writer:
    """Writes to guests: cputune in the executor, weights at once.

    :param actuator: writes a cputune; may be a plugin.
    :param enqueue: has a domain reconciled; returns at once.
    """

    def __init__(
        self,
        context: HostContext,
        actuator: Any,
        weights: weights.Weights,
        misdirected: misdirected_writes.MisdirectedWrites,
        quarantine: quarantine.Quarantine,
        enqueue: Callable[[str], None],
    ) -> None:
        self._context = context
        self._actuator = actuator
        self._weights = weights
        self._misdirected = misdirected
        self._quarantine = quarantine
        self._enqueue = enqueue

    def write(self, guest: Guest, tune: model.CpuTune) -> None:
        """Have a guest written soon; return at once.

        Values in force are not written. A newer cputune replaces one that
        still waits.
        """
        if (
            not self._context.permission.open
            or not guest.free_to_write
            or not self._context.connection.up
            or guest.failures.quarantined
        ):
            guest.pending = None
            return
        guest.pending = tune
        if not guest.queued:
            guest.queued = True
            self._context.executor.submit(
                guest.uuid, lambda: self._write_pending(guest)
            )

    def set_shares(self, uuid: str, shares: int) -> bool:
        """Write one weight at once, in the thread of the gang windows.

        A weight that is in the journal is written to the control group's file
        even while libvirt hangs. Any other write counts as a libvirt call,
        with the same deadline.

        :returns: whether it was written; False if the guest may not be.
        :raises libvirt.libvirtError: libvirt is not connected, or refused it.
        :raises TimeoutError: another libvirt call about the guest is not done.
        """
        guest = self._context.guests.by_uuid.get(uuid)
        if guest is None or not self._may_set_shares(guest):
            return False
        if self._set_without_lock(guest, shares):
            return True
        if self._context.executor.is_late(uuid):
            raise TimeoutError(quarantine.HANGS)
        if not guest.uses_weight_file:
            self._context.connection.get()
        if not guest.lock.acquire(timeout=LOCK_SECONDS):
            raise TimeoutError('another call about the VM is not done yet')
        try:
            # Checked again: a restore holds the guest, or ends the write
            # permission, before it takes the lock.
            if not self._may_set_shares(guest):
                return False
            with self._context.executor.watched(uuid):
                # The file ends with the run: another one is not reached.
                is_safe = guest.uses_weight_file and guest.journalled
                if not is_safe and not self._is_as_expected(guest):
                    return False
                for seen in self._weights.seen(shares):
                    self._ensure_journalled(guest, model.CpuTune(shares=seen))
                    guest.event_history.written_shares.add(seen)
                self._weights.write(guest, shares)
                is_safe = is_safe and guest.uses_weight_file
                if not is_safe and self._is_misdirected(guest):
                    return False
                guest.writes += 1
                if guest.uses_weight_file:
                    guest.lock_free_weights |= {shares}
            return True
        except libvirt.libvirtError as error:
            if not connection.has_ended(guest.domain, error):
                raise
            # The guest ended within its window, which is no failure.
            self._enqueue(uuid)
            return False
        except misdirected_writes.RunChangedError:
            self._enqueue(uuid)
            return False
        finally:
            guest.lock.release()

    def place(self, uuid: str, cpus: tuple[int, ...]) -> bool:
        """Let a guest's vCPUs run on certain CPUs, without libvirt.

        Only after a weight was written, so that the guest is journalled.

        :param cpus: CPU of each vCPU; empty for all that its pins allow.
        :returns: whether it was done; False if the guest may not be placed.
        :raises OSError: the kernel refused it.
        """
        guest = self._context.guests.by_uuid.get(uuid)
        if guest is None:
            return False
        # A restore holds the guest before it takes this lock.
        with guest.state_lock:
            if not guest.journalled or not self._may_set_shares(guest):
                return False
            if not cpus:
                affinity.release_guest(guest)
            elif len(cpus) == len(guest.tids):
                affinity.place(guest.tids, cpus)
            else:
                return False
            return True

    def _set_without_lock(self, guest: Guest, shares: int) -> bool:
        """Write a known weight to the file without the guest's lock.

        A check or restore forbids that first, see
        :meth:`.Guest.forbid_lock_free_weights`.
        """
        with guest.state_lock:
            if (
                shares not in guest.lock_free_weights
                or not guest.uses_weight_file
                or not self._may_set_shares(guest)
            ):
                return False
            if not self._weights.write_file(guest, shares):
                # The control group is gone, so the run may have ended.
                guest.lock_free_weights = frozenset()
                return False
            guest.writes += 1
            return True

    def _may_set_shares(self, guest: Guest) -> bool:
        return (
            self._context.permission.open
            and self._context.guests.is_managed(guest)
            and guest.free_to_write
            and guest.event_history.external_shares is None
        )

    def _write_pending(self, guest: Guest) -> None:
        guest.queued = False
        tune, guest.pending = guest.pending, None
        if (
            tune is None
            or not guest.free_to_write
            or not self._context.permission.open
            or not self._context.guests.is_managed(guest)
        ):
            return
        todo = guest.values_to_write(tune)
        if todo is None:
            return
        try:
            written = self._write_now(guest, todo)
        except misdirected_writes.RunChangedError:
            self._enqueue(guest.uuid)
            return
        except (libvirt.libvirtError, JournalError, OSError) as error:
            self._failed(guest, error)
            return
        if written:
            if guest.failures.in_row:
                LOG.info('VM %s: writes succeed again', guest.name)
            guest.succeeded()

    def _write_now(self, guest: Guest, todo: model.CpuTune) -> bool:
        """Write a cputune, with a record in the journal; return whether done.

        :raises libvirt.libvirtError, JournalError, OSError: the write failed.
        :raises RunChangedError: the domain was started anew.
        """
        self._context.connection.get()
        with guest.lock:
            if not (guest.free_to_write and self._context.permission.open):
                return False
            if not self._is_as_expected(guest):
                return False
            self._ensure_journalled(guest, todo)
            if todo.shares is not None:
                guest.forbid_lock_free_weights()
                # Its event may come before the call returns.
                guest.event_history.written_shares.add(todo.shares)
            guest.event_history.note_bandwidth(todo)
            return self._act(guest, todo)

    def _failed(self, guest: Guest, problem: Exception) -> None:
        if not isinstance(problem, libvirt.libvirtError):
            self._quarantine.add_failure(guest, str(problem))
            return
        guest.uncertain = True
        self._context.connection.failed(problem)
        if self._context.connection.up and not connection.has_ended(
            guest.domain, problem
        ):
            self._quarantine.add_failure(guest, str(problem))
        self._enqueue(guest.uuid)

    def _is_as_expected(self, guest: Guest) -> bool:
        """Return whether a guest may be written; otherwise enqueue it.

        The domain must not have been started again. Before the first write,
        its settings must still be the original ones, which the journal will
        hold.
        """
        if self._context.connection.runs(guest.uuid, guest.domain_id) and (
            guest.journalled
            or not cputune.differences(
                guest.original, cputune.read(guest.domain)
            )
        ):
            return True
        self._enqueue(guest.uuid)
        return False

    def _act(self, guest: Guest, todo: model.CpuTune) -> bool:
        """Have the actuator write.

        :returns: whether the writes reached the guest's run.
        """
        try:
            _write(self._actuator, guest, todo)
        except (libvirt.libvirtError, OSError):
            # Part of it may have been written nevertheless.
            with contextlib.suppress(libvirt.libvirtError):
                if self._is_misdirected(guest):
                    return False
            raise
        return not self._is_misdirected(guest)

    def _is_misdirected(self, guest: Guest) -> bool:
        """Return whether the domain was restarted during the write.

        The write is then reverted, and the new run reconciled.
        """
        if not self._misdirected.revert(guest):
            return False
        self._enqueue(guest.uuid)
        return True

    def _ensure_journalled(self, guest: Guest, todo: model.CpuTune) -> None:
        """Have the journal hold all values before they are written.

        :raises JournalError: the record was not written.
        :raises libvirt.libvirtError: the metadata copy was not written.
        :raises RunChangedError: the domain was started anew.
        """
        written = written_values.with_tune(guest.written, todo)
        if guest.has_metadata_copy and written is guest.written:
            return
        record = dataclasses.replace(guest.record(), written=written)
        self._context.journal.save(record)
        # A crash from here on leaves a record, harmless without writes.
        guest.journalled = True
        # Each time: by its sequence number, a journal that was set back to
        # an earlier state is recognized.
        self._misdirected.put_metadata(guest, record)
        guest.has_metadata_copy = True
        guest.copy_for_destination = False
        guest.written = written


def _write(actuator: Any, guest: Guest, todo: model.CpuTune) -> None:
    """Have the actuator write.

    :raises libvirt.libvirtError, OSError: the write failed. Any other error
        of a plugin becomes an OSError, so that it leads to quarantine.
    """
    try:
        actuator.write(guest, todo)
    except (libvirt.libvirtError, OSError):
        raise
    except Exception as error:
        raise OSError(
            f'actuator {type(actuator).__qualname__} failed: {error!r}'
        ) from error
