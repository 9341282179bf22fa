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

"""Who is on this host: our VMs, those left alone, and the unmanaged."""

import logging
import threading
from collections.abc import Collection, Mapping

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.probes import unmanaged

LOG = logging.getLogger(__name__)

Seen = tuple[int, int]
"""libvirt's number of the run, and a hash of the XML."""


class GuestRegistry:
    """Kept by libvirt's workers, read by all.

    :param unmanaged: follows the VMs that are not managed.
    """

    def __init__(self, unmanaged: unmanaged.UnmanagedVms) -> None:
        self.unmanaged = unmanaged
        self._lock = threading.Lock()
        self._guests: Mapping[str, Guest] = {}
        self._refused: dict[str, str] = {}
        # With the host's CPUs as of then, by which they are followed.
        self._unmanaged: dict[str, tuple[Seen, frozenset[int]]] = {}

    @property
    def by_uuid(self) -> Mapping[str, Guest]:
        """Our VMs by uuid; a snapshot that nobody changes."""
        return self._guests

    @property
    def refused(self) -> Mapping[str, str]:
        """VMs left alone, though they asked for us or may ask; and why."""
        return dict(self._refused)

    def name(self, uuid: str) -> str:
        """libvirt's name of one of ours, else its uuid."""
        guest = self._guests.get(uuid)
        return uuid if guest is None else guest.name

    def add(self, guest: Guest) -> None:
        """A VM is ours from now on."""
        with self._lock:
            self._guests = {**self._guests, guest.uuid: guest}
            self._refused.pop(guest.uuid, None)
            self._unmanaged.pop(guest.uuid, None)
        self.unmanaged.forget(guest.uuid)

    def forget(self, uuid: str) -> bool:
        """A VM is not ours any more.

        :returns: whether it was.
        """
        with self._lock:
            known = uuid in self._guests
            self._guests = {
                other: guest
                for other, guest in self._guests.items()
                if other != uuid
            }
            self._refused.pop(uuid, None)
        return known

    def dismiss(self, uuid: str) -> bool:
        """A run of a VM has ended; waits for what is just being written.

        :returns: whether it was ours.
        """
        guest = self._guests.get(uuid)
        known = self.forget(uuid)
        if guest is not None:
            # It may go into the next run, and has to be taken back there.
            with guest.lock:
                pass
        return known

    def refuse(self, uuid: str, reason: str) -> None:
        """A VM asked for us and is left alone."""
        if self._refused.get(uuid) != reason:
            LOG.warning('VM %s: left alone: %s', self.name(uuid), reason)
            self._refused[uuid] = reason

    def accept(self, uuid: str) -> None:
        """One of ours that could not be looked at could be now."""
        self._refused.pop(uuid, None)

    def unreadable(self, uuid: str, reason: str) -> None:
        """Not known to be ours or not, as libvirt does not say."""
        if uuid not in self._unmanaged:
            self._refused.setdefault(uuid, reason)

    def readable(self, uuid: str, reason: str) -> None:
        """What made a VM unreadable is over."""
        if self._refused.get(uuid) == reason:
            self._refused.pop(uuid, None)

    def is_unmanaged(self, uuid: str, seen: Seen) -> bool:
        """Whether a VM was found not to be ours, just as it is now."""
        return self._unmanaged.get(uuid) == (seen, self.unmanaged.usable())

    def add_unmanaged(self, uuid: str, seen: Seen) -> None:
        """A VM is not ours, and need not be looked at until it changes.

        Or CPUs of the host come or go.
        """
        self._unmanaged[uuid] = seen, self.unmanaged.usable()

    def forget_unmanaged(self, uuid: str) -> None:
        """One of the unmanaged is gone."""
        self._unmanaged.pop(uuid, None)
        self.unmanaged.forget(uuid)

    def keep_unmanaged(self, running: Collection[str]) -> None:
        """Forget the unmanaged that do not run any more, and why not ours."""
        for uuid in self._refused.keys() - set(running) - self._guests.keys():
            self._refused.pop(uuid, None)
        for uuid in self._unmanaged.keys() - set(running):
            self.unmanaged.forget(uuid)
        self._unmanaged = {
            uuid: seen
            for uuid, seen in self._unmanaged.items()
            if uuid in running
        }
