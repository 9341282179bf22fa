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

"""Writing what was decided, after the original stands in the journal."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Any

import libvirt

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.context import HostContext
from nova_vhpc.agent.external_changes import misdirected_writes
from nova_vhpc.agent.guests import quarantine
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import domain_metadata, written_values
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import connection, cputune
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

LOCK_SECONDS = 0.05
"""How long a window waits for another call about the same VM."""


class Writer:
    """Writes to guests: cputune in the executor, weights at once.

    :param context: the agent's collaborators.
    :param actuators: write what was decided, in order.
    :param weights: writes the weights of gang windows.
    :param misdirected: reverts what was written to another run.
    :param quarantine: counts refused writes.
    :param enqueue: has a domain reconciled; returns at once.
    """

    def __init__(
        self,
        context: HostContext,
        actuators: Iterable[Any],
        weights: weights.Weights,
        misdirected: misdirected_writes.MisdirectedWrites,
        quarantine: quarantine.Quarantine,
        enqueue: Callable[[str], None],
    ) -> None:
        self._context = context
        self._actuators = tuple(actuators)
        self._weights = weights
        self._misdirected = misdirected
        self._quarantine = quarantine
        self._enqueue = enqueue

    def write(
        self,
        guest: Guest,
        tune: model.CpuTune,
        slice_us: int | None = None,
    ) -> None:
        """Have a VM written soon; what is already in force is left out.

        Returns at once; a newer wish replaces one that still waits.
        """
        if (
            not self._context.permission.open
            or guest.hands_off
            or not self._context.connection.up
            or guest.failures.quarantined
        ):
            guest.pending = None
            return
        guest.pending = tune
        guest.slice_us = slice_us
        if not guest.queued:
            guest.queued = True
            self._context.executor.submit(
                guest.uuid, lambda: self._write_pending(guest)
            )

    def set_shares(self, uuid: str, shares: int) -> bool:
        """Write one weight at once; for the windows' own threads.

        Its time is watched as that of the workers' calls. One that is in the
        journal goes into the control group's file whatever libvirt does.

        :returns: whether it was written; False for a VM that is left alone.
        :raises libvirt.libvirtError: it is refused, or may not be.
        :raises TimeoutError: another call about the VM takes its time.
        """
        guest = self._context.guests.by_uuid.get(uuid)
        if guest is None or not self._may_weigh(guest):
            return False
        if self._set_freely(guest, shares):
            return True
        if self._context.executor.is_late(uuid):
            raise TimeoutError(quarantine.HANGS)
        if not guest.uses_weight_file:
            self._context.connection.get()
        if not guest.lock.acquire(timeout=LOCK_SECONDS):
            raise TimeoutError('another call about the VM takes its time')
        try:
            # Asked again: it may have been taken away since, and whoever
            # puts VMs back closes the gate first.
            if not self._may_weigh(guest):
                return False
            with self._context.executor.watched(uuid):
                # A run's file goes with it: no other run can be meant.
                sure = guest.uses_weight_file and guest.journalled
                if not sure and not self._as_known(guest):
                    return False
                self._ensure_journalled(guest, model.CpuTune(shares=shares))
                guest.event_history.written_shares.add(shares)
                self._weights.write(guest, shares)
                sure = sure and guest.uses_weight_file
                if not sure and self._is_misdirected(guest):
                    return False
                guest.writes += 1
                if guest.uses_weight_file:
                    guest.lock_free_weights |= {shares}
            return True
        except libvirt.libvirtError as error:
            if not connection.has_ended(guest.domain, error):
                raise
            # In its window; that is no failure to be told of.
            self._enqueue(uuid)
            return False
        finally:
            guest.lock.release()

    def _set_freely(self, guest: Guest, shares: int) -> bool:
        """Write into the file, if that needs no look at the VM before.

        Whoever must not be written under takes this right away first.
        """
        with guest.state_lock:
            if (
                shares not in guest.lock_free_weights
                or not guest.uses_weight_file
                or not self._may_weigh(guest)
            ):
                return False
            if not self._weights.write_file(guest, shares):
                # Its group is gone: libvirt knows more.
                guest.lock_free_weights = frozenset()
                return False
            guest.writes += 1
            return True

    def _may_weigh(self, guest: Guest) -> bool:
        return (
            self._context.permission.open
            and self._context.guests.by_uuid.get(guest.uuid) is guest
            and guest.free_to_write
            and guest.event_history.external_shares is None
        )

    def _write_pending(self, guest: Guest) -> None:
        guest.queued = False
        tune, guest.pending = guest.pending, None
        if (
            tune is None
            or guest.hands_off
            or not self._context.permission.open
        ):
            return
        if self._context.guests.by_uuid.get(guest.uuid) is not guest:
            return
        todo = guest.values_to_write(tune)
        if todo is None:
            return
        try:
            written = self._write_now(guest, todo)
        except (libvirt.libvirtError, JournalError, OSError) as error:
            self._failed(guest, error)
            return
        if written:
            if guest.failures.in_row:
                LOG.info('VM %s: written again', guest.name)
            guest.succeeded()

    def _write_now(self, guest: Guest, todo: model.CpuTune) -> bool:
        """Whether all of it was written.

        :raises libvirt.libvirtError, JournalError, OSError: it was not.
        """
        self._context.connection.get()
        with guest.lock:
            if not (guest.free_to_write and self._context.permission.open):
                return False
            if not self._as_known(guest):
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

    def _as_known(self, guest: Guest) -> bool:
        """Whether a VM is as we last saw it.

        If not it is looked at: what was decided is for what it was, and
        what it is now must stand in the journal. One that was restarted
        meanwhile has none of ours in it, and no record.
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
        """Write all of it.

        :returns: whether it went to the run that it is meant for.
        """
        try:
            for actuator in self._actuators:
                _write(actuator, guest, todo)
        except (libvirt.libvirtError, OSError):
            # Part of it may have been written, or put back, all the same.
            with contextlib.suppress(libvirt.libvirtError):
                if self._is_misdirected(guest):
                    return False
            raise
        return not self._is_misdirected(guest)

    def _is_misdirected(self, guest: Guest) -> bool:
        """Whether a VM was restarted while it was written."""
        if not self._misdirected.revert(guest):
            return False
        self._enqueue(guest.uuid)
        return True

    def _ensure_journalled(self, guest: Guest, todo: model.CpuTune) -> None:
        """The record is on the disk before anything of ours is in the VM."""
        known = written_values.with_tune(guest.written, todo)
        if guest.has_metadata_copy and known is guest.written:
            return
        record = dataclasses.replace(guest.record(), written=known)
        self._context.journal.save(record)
        guest.written = known
        # From here on a crash leaves a record, harmless without writes.
        guest.journalled = True
        if not guest.has_metadata_copy:
            domain_metadata.put(guest.domain, record)
            guest.has_metadata_copy = True
            guest.copy_for_destination = False


def _write(actuator: Any, guest: Guest, todo: model.CpuTune) -> None:
    """Have one actuator write.

    :raises libvirt.libvirtError, OSError: it was not written. Whatever else a
        plugin raises counts so, too, or it would be tried in each tick.
    """
    try:
        actuator.write(guest, todo, guest.slice_us)
    except (libvirt.libvirtError, OSError):
        raise
    except Exception as error:
        raise OSError(
            f'actuator {type(actuator).__qualname__} failed: {error!r}'
        ) from error
