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

"""Putting our VMs back while the agent runs, and forgetting the gone."""

import logging
from collections.abc import Iterable
from typing import Any

import libvirt

from nova_vhpc.agent import (
    connection,
    cputune,
    gate,
    guest,
    journal,
    mark,
    processes,
    restore,
    roster,
    workers,
)

LOG = logging.getLogger(__name__)


class Undo:
    """Takes back all that we wrote to a VM.

    :param vms: our VMs.
    :param allowed: whether the agent is ending.
    :param link: to libvirt.
    :param pool: the threads that call libvirt.
    :param records: the journal.
    :param host: reads the QEMU processes.
    :param actuators: what has written.
    """

    def __init__(
        self,
        vms: roster.Roster,
        allowed: gate.Gate,
        link: connection.Connection,
        pool: workers.Workers,
        records: journal.Journal,
        host: processes.Processes,
        actuators: Iterable[Any],
    ) -> None:
        self._roster = vms
        self._gate = allowed
        self._connection = link
        self._workers = pool
        self._journal = records
        self._host = host
        self._actuators = tuple(actuators)
        self.restorer = restore.Restorer(records, host)

    def submit(self, target: guest.Guest, why: str) -> None:
        """Have a VM put back soon, and left alone from now on."""
        target.hands_off = why
        self._workers.submit(target.uuid, lambda: self._guarded(target))

    def put_back(self, target: guest.Guest) -> None:
        """Put a VM back exactly, and forget that we ever wrote.

        :raises restore.RestoreError: it is not exactly what it was.
        :raises libvirt.libvirtError, JournalError, OSError: likewise.
        """
        with target.lock:
            self._put_back_locked(target)

    def gone(self, uuid: str) -> None:
        """A domain stopped, or migrated away."""
        self._roster.forget_other(uuid)
        if self._roster.forget(uuid):
            LOG.info('VM %s: gone', uuid)
        if uuid in self._journal.uuids():
            self.forget_record(uuid)

    def forget_record(self, uuid: str) -> None:
        """A domain that does not run here needs its record no more."""
        if not self._host.find(uuid):
            self.restorer.forget(uuid)

    def _guarded(self, target: guest.Guest) -> None:
        try:
            self.put_back(target)
        except libvirt.libvirtError as error:
            self._connection.failed(error)
            if connection.is_gone(error):
                self.gone(target.uuid)
            else:
                LOG.error('VM %s: not restored: %s', target.name, error)
        except (
            restore.RestoreError,
            journal.JournalError,
            OSError,
        ) as error:
            LOG.error('VM %s: not restored: %s', target.name, error)

    def _put_back_locked(self, target: guest.Guest) -> None:
        for actuator in self._actuators:
            actuator.undo(target)
        if not target.journalled:
            return
        self._connection.get()
        left = cputune.restore(target.domain, target.original, target.released)
        if left:
            raise restore.RestoreError('; '.join(left))
        mark.remove(target.domain)
        self._journal.remove(target.uuid)
        target.journalled = False
        target.shares_ours.clear()
        if not self._gate.ending.is_set():
            target.set_expected(cputune.read(target.domain))
