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
from nova_vhpc.agent.external_changes import misdirected_writes
from nova_vhpc.agent.guests import (
    guest,
    quarantine,
    registry,
    write_permission,
)
from nova_vhpc.agent.journal import domain_metadata, store, written_values
from nova_vhpc.agent.libvirt import connection, cputune, executor
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

LOCK_SECONDS = 0.05
"""How long a window waits for another call about the same VM."""


class Writer:
    """Writes to our VMs: cputune by workers, weights at once.

    :param vms: our VMs.
    :param allowed: whether anything may be written.
    :param link: to libvirt.
    :param pool: the threads that call libvirt.
    :param records: the journal.
    :param actuators: write what was decided, in order.
    :param weighing: writes the weights of windows.
    :param astray: takes back what went into another run.
    :param troubles: counts what is refused.
    :param look: has a domain looked at.
    """

    def __init__(
        self,
        vms: registry.GuestRegistry,
        allowed: write_permission.WritePermission,
        link: connection.Connection,
        pool: executor.DomainExecutor,
        records: store.Journal,
        actuators: Iterable[Any],
        weighing: weights.Weights,
        astray: misdirected_writes.MisdirectedWrites,
        troubles: quarantine.Quarantine,
        look: Callable[[str], None],
    ) -> None:
        self._roster = vms
        self._gate = allowed
        self._connection = link
        self._workers = pool
        self._journal = records
        self._actuators = tuple(actuators)
        self._weights = weighing
        self._strays = astray
        self._quarantine = troubles
        self._look = look

    def write(
        self,
        target: guest.Guest,
        tune: model.CpuTune,
        slice_us: int | None = None,
    ) -> None:
        """Have a VM written soon; what is already in force is left out.

        Returns at once; a newer wish replaces one that still waits.
        """
        if (
            not self._gate.open
            or target.hands_off
            or not self._connection.up
            or target.failures.quarantined
        ):
            target.pending = None
            return
        target.pending = tune
        target.slice_us = slice_us
        if not target.queued:
            target.queued = True
            self._workers.submit(
                target.uuid, lambda: self._write_pending(target)
            )

    def set_shares(self, uuid: str, shares: int) -> bool:
        """Write one weight at once; for the windows' own threads.

        Its time is watched as that of the workers' calls. One that is in the
        journal goes into the control group's file whatever libvirt does.

        :returns: whether it was written; False for a VM that is left alone.
        :raises libvirt.libvirtError: it is refused, or may not be.
        :raises TimeoutError: another call about the VM takes its time.
        """
        target = self._roster.guests.get(uuid)
        if target is None or not self._may_weigh(target):
            return False
        if self._set_freely(target, shares):
            return True
        if self._workers.is_late(uuid):
            raise TimeoutError(quarantine.HANGS)
        if not target.weighs_by_file:
            self._connection.get()
        if not target.lock.acquire(timeout=LOCK_SECONDS):
            raise TimeoutError('another call about the VM takes its time')
        try:
            # Asked again: it may have been taken away since, and whoever
            # puts VMs back closes the gate first.
            if not self._may_weigh(target):
                return False
            with self._workers.watched(uuid):
                # A run's file goes with it: no other run can be meant.
                sure = target.weighs_by_file and target.journalled
                if not sure and not self._as_known(target):
                    return False
                self._ensure_journalled(target, model.CpuTune(shares=shares))
                target.echoes.shares_ours.add(shares)
                self._weights.write(target, shares)
                sure = sure and target.weighs_by_file
                if not sure and self._went_astray(target):
                    return False
                target.writes += 1
                if target.weighs_by_file:
                    target.free_weights |= {shares}
            return True
        except libvirt.libvirtError as error:
            if not connection.has_ended(target.domain, error):
                raise
            # In its window; that is no failure to be told of.
            self._look(uuid)
            return False
        finally:
            target.lock.release()

    def _set_freely(self, target: guest.Guest, shares: int) -> bool:
        """Write into the file, if that needs no look at the VM before.

        Whoever must not be written under takes this right away first.
        """
        with target.weighing:
            if (
                shares not in target.free_weights
                or not target.weighs_by_file
                or not self._may_weigh(target)
            ):
                return False
            if not self._weights.write_file(target, shares):
                # Its group is gone: libvirt knows more.
                target.free_weights = frozenset()
                return False
            target.writes += 1
            return True

    def _may_weigh(self, target: guest.Guest) -> bool:
        return (
            self._gate.open
            and self._roster.guests.get(target.uuid) is target
            and target.free_to_write
            and cputune.SHARES not in target.released
            and target.echoes.shares_theirs is None
        )

    def _write_pending(self, target: guest.Guest) -> None:
        target.queued = False
        tune, target.pending = target.pending, None
        if tune is None or target.hands_off or not self._gate.open:
            return
        if self._roster.guests.get(target.uuid) is not target:
            return
        todo = target.ours_to_write(tune)
        if todo is None:
            return
        try:
            written = self._write_now(target, todo)
        except (libvirt.libvirtError, store.JournalError, OSError) as error:
            self._failed(target, error)
            return
        if written:
            if target.failures.in_row:
                LOG.info('VM %s: written again', target.name)
            target.succeeded()

    def _write_now(self, target: guest.Guest, todo: model.CpuTune) -> bool:
        """Whether all of it was written.

        :raises libvirt.libvirtError, JournalError, OSError: it was not.
        """
        self._connection.get()
        with target.lock:
            if not (target.free_to_write and self._gate.open):
                return False
            if not self._as_known(target):
                return False
            self._ensure_journalled(target, todo)
            if todo.shares is not None:
                target.stop_free_weights()
                # Its event may come before the call returns.
                target.echoes.shares_ours.add(todo.shares)
            target.echoes.note_bandwidth(todo)
            return self._act(target, todo)

    def _failed(self, target: guest.Guest, problem: Exception) -> None:
        if not isinstance(problem, libvirt.libvirtError):
            self._quarantine.failed(target, str(problem))
            return
        target.uncertain = True
        self._connection.failed(problem)
        if self._connection.up and not connection.has_ended(
            target.domain, problem
        ):
            self._quarantine.failed(target, str(problem))
        self._look(target.uuid)

    def _as_known(self, target: guest.Guest) -> bool:
        """Whether a VM is as we last saw it.

        If not it is looked at: what was decided is for what it was, and
        what it is now must stand in the journal. One that was restarted
        meanwhile has none of ours in it, and no record.
        """
        if self._connection.runs(target.uuid, target.domain_id) and (
            target.journalled
            or not cputune.differences(
                target.original, cputune.read(target.domain), target.released
            )
        ):
            return True
        self._look(target.uuid)
        return False

    def _act(self, target: guest.Guest, todo: model.CpuTune) -> bool:
        """Write all of it.

        :returns: whether it went to the run that it is meant for.
        """
        try:
            for actuator in self._actuators:
                _write(actuator, target, todo)
        except (libvirt.libvirtError, OSError):
            # Part of it may have been written, or put back, all the same.
            with contextlib.suppress(libvirt.libvirtError):
                if self._went_astray(target):
                    return False
            raise
        return not self._went_astray(target)

    def _went_astray(self, target: guest.Guest) -> bool:
        """Whether a VM was restarted while it was written."""
        if not self._strays.take_back(target):
            return False
        self._look(target.uuid)
        return True

    def _ensure_journalled(
        self, target: guest.Guest, todo: model.CpuTune
    ) -> None:
        """The record is on the disk before anything of ours is in the VM."""
        known = written_values.with_tune(target.written, todo)
        if target.marked and known is target.written:
            return
        record = dataclasses.replace(target.record(), written=known)
        self._journal.save(record)
        target.written = known
        # From here on a crash leaves a record, harmless without writes.
        target.journalled = True
        if not target.marked:
            domain_metadata.put(target.domain, record)
            target.marked = True
            target.settled = False


def _write(actuator: Any, target: guest.Guest, todo: model.CpuTune) -> None:
    """Have one actuator write.

    :raises libvirt.libvirtError, OSError: it was not written. Whatever else a
        plugin raises counts so, too, or it would be tried in each tick.
    """
    try:
        actuator.write(target, todo, target.slice_us)
    except (libvirt.libvirtError, OSError):
        raise
    except Exception as error:
        raise OSError(
            f'actuator {type(actuator).__qualname__} failed: {error!r}'
        ) from error
