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

"""VMs that fail, or whose calls hang, are left alone for a while."""

import logging
import time
from typing import Any

from nova_vhpc.agent.guests import registry
from nova_vhpc.agent.guests.guest import Guest

LOG = logging.getLogger(__name__)

HANGS = 'a libvirt call hangs'


class Quarantine:
    """Counts failures, and says when a VM has had enough of them.

    :param options: ``[vhpc_agent]``.
    :param guests: the managed guests.
    """

    def __init__(self, options: Any, guests: registry.GuestRegistry) -> None:
        self._options = options
        self._guests = guests
        self._hanging: set[str] = set()
        self.late_calls = 0

    def failed(self, guest: Guest, problem: str) -> None:
        """A write to a VM was refused."""
        first = guest.failures.in_row == 0
        if guest.failures.add(
            problem,
            self._options.quarantine_failures,
            self._options.quarantine_seconds,
        ):
            LOG.warning(
                'VM %s: in quarantine for %.0f s after %d failures: %s',
                guest.name,
                guest.failures.quarantined_until - time.monotonic(),
                guest.failures.count,
                problem,
            )
        elif first:
            LOG.warning('VM %s: not written: %s', guest.name, problem)

    def late(self, uuid: str) -> None:
        """A call hangs: leave the VM alone for a while."""
        self.late_calls += 1
        if uuid not in self._hanging:
            # A window's waits for the same as a worker's.
            self._hanging.add(uuid)
            LOG.warning(
                'VM %s: a libvirt call takes longer than %g s',
                self._guests.name(uuid),
                self._options.call_deadline,
            )
        guest = self._guests.by_uuid.get(uuid)
        if guest is not None:
            guest.failures.add(HANGS, 1, self._options.quarantine_seconds)
        else:
            self._guests.unreadable(uuid, HANGS)

    def returned(self, uuid: str) -> None:
        """The last call that hung has come back: the VM can be talked to."""
        self._hanging.discard(uuid)
        self._guests.readable(uuid, HANGS)
        guest = self._guests.by_uuid.get(uuid)
        if guest is not None and guest.failures.problem == HANGS:
            guest.failures.quarantined_until = 0.0
            guest.failures.problem = ''
