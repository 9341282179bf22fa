# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The guests of this host, and whether they may be written now."""

import logging
import threading
from collections.abc import Collection, Mapping

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.probes import unmanaged

LOG = logging.getLogger(__name__)

DomainVersion = tuple[int, int]
"""libvirt's ID of a domain's run, and a hash of the live XML."""


class GuestRegistry:
    """Knows all guests; changed by the executor's threads, read by all.

    :param unmanaged: follows the VMs that are not managed.
    """

    def __init__(self, unmanaged: unmanaged.UnmanagedVms) -> None:
        self.unmanaged = unmanaged
        self._lock = threading.Lock()
        self._guests: Mapping[str, Guest] = {}
        self._refused: dict[str, str] = {}
        # With the host's usable CPUs of that time, on which following an
        # unmanaged VM depends.
        self._unmanaged: dict[str, tuple[DomainVersion, frozenset[int]]] = {}

    @property
    def by_uuid(self) -> Mapping[str, Guest]:
        """Managed guests by UUID; a snapshot that does not change."""
        return self._guests

    @property
    def refused(self) -> Mapping[str, str]:
        """Why VMs that opted in, or may have, are not managed; by UUID."""
        return dict(self._refused)

    def name(self, uuid: str) -> str:
        """Return libvirt's name of a guest; the UUID of any other VM."""
        guest = self._guests.get(uuid)
        return uuid if guest is None else guest.name

    def is_managed(self, guest: Guest) -> bool:
        """Return whether this run of a guest is managed still."""
        return self._guests.get(guest.uuid) is guest

    def add(self, guest: Guest) -> None:
        """Manage a guest from now on."""
        with self._lock:
            self._guests = {**self._guests, guest.uuid: guest}
            self._refused.pop(guest.uuid, None)
            self._unmanaged.pop(guest.uuid, None)
        self.unmanaged.forget(guest.uuid)

    def forget(self, uuid: str) -> bool:
        """Stop managing a guest.

        :returns: whether it was managed.
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

    def remove_ended_run(self, uuid: str) -> bool:
        """Forget a guest whose run has ended, after its last write.

        :returns: whether it was managed.
        """
        guest = self._guests.get(uuid)
        known = self.forget(uuid)
        if guest is not None:
            # A call may reach the next run and must be reverted there first.
            with guest.lock:
                pass
        return known

    def refuse(self, uuid: str, reason: str) -> None:
        """Do not manage a VM that opted in; log a new reason."""
        if self._refused.get(uuid) != reason:
            LOG.warning('VM %s: left alone: %s', self.name(uuid), reason)
            self._refused[uuid] = reason

    def refuse_unknown(self, uuid: str, reason: str) -> None:
        """Do not manage a VM of which it is unknown whether it opted in."""
        if uuid not in self._unmanaged:
            self._refused.setdefault(uuid, reason)

    def end_refusal(self, uuid: str, reason: str | None = None) -> None:
        """Forget why a VM was refused.

        :param reason: the reason that has ended; None for any.
        """
        if reason in (None, self._refused.get(uuid)):
            self._refused.pop(uuid, None)

    def is_unmanaged(self, uuid: str, version: DomainVersion) -> bool:
        """Return whether this version of a domain was found not to opt in."""
        return self._unmanaged.get(uuid) == (version, self.unmanaged.usable())

    def unmanaged_uuids(self) -> frozenset[str]:
        """Return the UUIDs of domains that were found not to opt in."""
        return frozenset(self._unmanaged)

    def add_unmanaged(self, uuid: str, version: DomainVersion) -> None:
        """Record that a domain does not opt in.

        It is not parsed again until the domain or the host's CPUs change.
        """
        self._unmanaged[uuid] = version, self.unmanaged.usable()

    def forget_unmanaged(self, uuid: str) -> None:
        """Forget an unmanaged VM that has stopped."""
        self._unmanaged.pop(uuid, None)
        self.unmanaged.forget(uuid)

    def forget_stopped(self, running: Collection[str]) -> None:
        """Forget unmanaged and refused VMs that do not run any more.

        :param running: UUIDs of all running domains.
        """
        for uuid in self._refused.keys() - set(running) - self._guests.keys():
            self._refused.pop(uuid, None)
        for uuid in self._unmanaged.keys() - set(running):
            self.forget_unmanaged(uuid)


class WritePermission:
    """Whether the agent may write at all, and which servers it may not write.

    :ivar dry_run: whether nothing is ever written.
    :ivar paused: whether an operator has paused the agent.
    :ivar ending: set when the agent stops; guests are then only restored.
    :ivar restored: UUIDs of servers that an operator had restored; they are
        not written until ``resume``.
    :ivar leaving: UUIDs of servers that are migrating according to Nova.
    """

    def __init__(self, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.paused = False
        self.ending = threading.Event()
        self.restored: set[str] = set()
        self.leaving: frozenset[str] = frozenset()

    @property
    def open(self) -> bool:
        """Whether guests may be written: no dry run, pause or shutdown."""
        return not (self.dry_run or self.paused or self.ending.is_set())
