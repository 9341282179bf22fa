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

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import domain_metadata, store
from nova_vhpc.agent.libvirt import cputune


class SwitchedCpus:
    """Tells them from changes that somebody made to a VM.

    :param records: the journal.
    :param online: gives the CPUs of the host that are.
    :ivar online: the same.
    """

    def __init__(
        self,
        records: store.Journal,
        online: Callable[[], frozenset[int]],
    ) -> None:
        self._journal = records
        self.online = online

    def follow(
        self, target: guest.Guest, now: cputune.Cputune, stays: bool = True
    ) -> None:
        """CPUs of the host came or went: that was nobody's doing.

        Where nothing says what a vCPU may use, that is how it was before us.
        What we have pinned could have used those that came, too.

        :param stays: it is not put back next, so the journal has to know.
        """
        moved = {
            vcpu: pin
            for vcpu, (pin, before) in enumerate(
                zip(now.vcpupins, target.expected.vcpupins, strict=False)
            )
            if pin != before
        }
        online = self.came(target)
        if not (moved or online):
            return
        unpinned = cputune.unpinned(target.domain)
        moved = {vcpu: moved[vcpu] for vcpu in unpinned & moved.keys()}
        if moved:
            online = next(iter(moved.values()))
        elif not (online and unpinned.isdisjoint(range(target.info.vcpus))):
            # Of those that follow the host it was not read yet.
            return
        known = target.original.vcpupins
        wider = {
            vcpu: pin | online
            for vcpu, pin in enumerate(known)
            if vcpu not in unpinned and _uses_all(target) and not online <= pin
        }
        original = dataclasses.replace(
            target.original,
            vcpupins=tuple(
                wider.get(vcpu) or moved.get(vcpu, pin)
                for vcpu, pin in enumerate(known)
            ),
            host_cpus=now.host_cpus,
        )
        if target.journalled and stays:
            record = dataclasses.replace(target.record(), original=original)
            self._journal.save(record)
            domain_metadata.put(target.domain, record)
        target.original, target.online = original, online
        target.note_written(pins=moved)
        target.first_tune = original.tune(target.info.vcpus)
        target.allow(original.cpus)

    def came(self, target: guest.Guest) -> frozenset[int]:
        """CPUs that are online, if some are that were not."""
        if not (target.journalled and _uses_all(target)):
            return frozenset()
        online = self.online()
        return frozenset() if online <= target.online else online


def _uses_all(target: guest.Guest) -> bool:
    """Whether it could use all CPUs of the host, before us."""
    return target.info.cpuset is None and target.floats
