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

"""CPUs of the host that come and go, and what VMs had before us."""

import dataclasses
from collections.abc import Callable

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.libvirt import cputune


class CpuHotplug:
    """Follows CPUs of the host that come or go, which is no external change.

    :param journal: the original settings on the disk.
    :param online: returns the host's CPUs that are online.
    :ivar online: the same function.
    """

    def __init__(
        self,
        journal: store.Journal,
        online: Callable[[], frozenset[int]],
    ) -> None:
        self._journal = journal
        self.online = online

    def follow(
        self, guest: Guest, now: cputune.Cputune, stays: bool = True
    ) -> None:
        """CPUs of the host came or went: that was nobody's doing.

        Where nothing says what a vCPU may use, that is how it was before us.
        What we have pinned could have used those that came, too.

        :param stays: it is not put back next, so the journal has to know.
        """
        moved = {
            vcpu: pin
            for vcpu, (pin, before) in enumerate(
                zip(now.vcpupins, guest.expected.vcpupins, strict=False)
            )
            if pin != before
        }
        online = self.came(guest)
        if not (moved or online):
            return
        unpinned = cputune.unpinned(guest.domain)
        moved = {vcpu: moved[vcpu] for vcpu in unpinned & moved.keys()}
        if moved:
            online = next(iter(moved.values()))
        elif not (online and unpinned.isdisjoint(range(guest.info.vcpus))):
            # Of those that follow the host it was not read yet.
            return
        known = guest.original.vcpupins
        wider = {
            vcpu: pin | online
            for vcpu, pin in enumerate(known)
            if vcpu not in unpinned and _uses_all(guest) and not online <= pin
        }
        original = dataclasses.replace(
            guest.original,
            vcpupins=tuple(
                wider.get(vcpu) or moved.get(vcpu, pin)
                for vcpu, pin in enumerate(known)
            ),
            host_cpus=now.host_cpus,
        )
        if guest.journalled and stays:
            record = dataclasses.replace(guest.record(), original=original)
            self._journal.save(record)
            domain_metadata.put(guest.domain, record)
        guest.original, guest.online = original, online
        guest.note_written(pins=moved)
        guest.original_tune = original.tune(guest.info.vcpus)
        guest.allow(original.cpus)

    def came(self, guest: Guest) -> frozenset[int]:
        """CPUs that are online, if some are that were not."""
        if not (guest.journalled and _uses_all(guest)):
            return frozenset()
        online = self.online()
        return frozenset() if online <= guest.online else online


def _uses_all(guest: Guest) -> bool:
    """Whether it could use all CPUs of the host, before us."""
    return guest.info.cpuset is None and guest.floats
