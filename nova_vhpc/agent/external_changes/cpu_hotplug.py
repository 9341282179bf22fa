# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Host CPUs that are switched on or off, and the guests' original pins.

For a vCPU that was never pinned, libvirt reports the host's online CPUs. A
CPU that is switched on or off therefore changes pins without any write.
"""

import dataclasses
from collections.abc import Callable

from nova_vhpc.agent.external_changes import misdirected_writes
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cputune


class CpuHotplug:
    """Adapts original pins to host CPUs that were switched on or off.

    :param misdirected: writes metadata copies, if the run has not changed.
    :param online: returns the host's CPUs that are online.
    :ivar online: the same function.
    """

    def __init__(
        self,
        journal: store.Journal,
        misdirected: misdirected_writes.MisdirectedWrites,
        online: Callable[[], frozenset[int]],
    ) -> None:
        self._journal = journal
        self._misdirected = misdirected
        self.online = online

    def follow(
        self, guest: Guest, now: cputune.Cputune, save: bool = True
    ) -> None:
        """Adapt a guest's original and expected pins.

        A vCPU that was never pinned originally has the pins that it has now.
        A vCPU that the agent pinned could originally have used new CPUs, too.

        :param now: cputune in force.
        :param save: whether the journal needs the new original pins; not if
            the guest is restored next.
        :raises RunChangedError: the domain was started again meanwhile.
        """
        moved = {
            vcpu: pin
            for vcpu, (pin, before) in enumerate(
                zip(now.vcpupins, guest.expected.vcpupins, strict=False)
            )
            if pin != before
        }
        online = self.new_online_cpus(guest)
        if not (moved or online):
            return
        unpinned = cputune.unpinned(guest.domain)
        moved = {vcpu: moved[vcpu] for vcpu in unpinned & moved.keys()}
        if moved:
            online = next(iter(moved.values()))
        elif not (online and unpinned.isdisjoint(range(guest.info.vcpus))):
            # Either the pins were changed externally, or ``now`` was read
            # before the CPUs came and unpinned vCPUs do not show them yet.
            return
        pins = guest.original.vcpupins
        wider = {
            vcpu: pin | online
            for vcpu, pin in enumerate(pins)
            if vcpu not in unpinned and _uses_all(guest) and not online <= pin
        }
        original = dataclasses.replace(
            guest.original,
            vcpupins=tuple(
                wider.get(vcpu) or moved.get(vcpu, pin)
                for vcpu, pin in enumerate(pins)
            ),
            host_cpus=now.host_cpus,
        )
        if guest.journalled and save:
            record = dataclasses.replace(guest.record(), original=original)
            self._journal.save(record)
            self._misdirected.put_metadata(guest, record)
        guest.set_original(original)
        guest.online = online
        guest.note_written(pins=moved)
        guest.set_allowed_cpus(original.cpus)

    def new_online_cpus(self, guest: Guest) -> frozenset[int]:
        """Return the online CPUs if some were switched on; otherwise none."""
        if not (guest.journalled and _uses_all(guest)):
            return frozenset()
        online = self.online()
        return frozenset() if online <= guest.online else online


def _uses_all(guest: Guest) -> bool:
    """Return whether a guest could originally use all CPUs of the host."""
    return guest.info.cpuset is None and guest.is_floating
