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

"""Writes that came into another run of a VM than the one they were meant for.

libvirt's calls name the domain only. One that waits while the VM is destroyed
and started anew, as by a hard reboot, is carried out on the new run, and would
be taken for what the VM had before us. So the run is looked at after each
write, too, and what went astray is taken back. Nobody reads it before: who
takes the new run in waits for the lock of the old one.
"""

import contextlib
from typing import Any

import libvirt

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import domain_metadata, store, written_values
from nova_vhpc.agent.libvirt import connection, cputune
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process


class RunChangedError(Exception):
    """A VM was started anew: what was read or written there is another's."""


class MisdirectedWrites:
    """Detects writes that reached another run, and reverts them.

    :param connection: the connection to libvirt.
    :param processes: says where the control groups are.
    """

    def __init__(
        self,
        connection: connection.Connection,
        processes: qemu_process.Processes,
    ) -> None:
        self._connection = connection
        self._processes = processes

    def revert(self, guest: Guest, restored: bool = False) -> bool:
        """Look whether a write met its run. With the VM's lock held.

        :param restored: whether original settings were written, too.
        :returns: whether it did not.
        :raises libvirt.libvirtError: it cannot be told, or was refused.
        """
        if self._connection.runs(guest.uuid, guest.domain_id):
            return False
        # Where it was found may be the other run's. A window that writes there
        # without the lock would look for it anew.
        guest.stop_free_weights()
        guest.weight = None
        domain = self._connection.get().lookupByUUIDString(guest.uuid)
        if domain.ID() >= 0 and not _marked(domain):
            written = guest.written
            if restored:
                written = written_values.with_original(written, guest.original)
                written = written_values.with_values(
                    written, _external_bandwidth(guest)
                )
            # Who takes it in tries again, while there is a record.
            with contextlib.suppress(recovery.RestoreError):
                recovery.revert(domain, written, self._processes.cgroup)
        return True

    def put_metadata(self, guest: Guest, record: store.JournalRecord) -> None:
        """Write a metadata copy, and remove it if it reached another run.

        The adoption of that run would restore it to what this one was; without
        a copy of its own there is none of ours.

        :raises RunChangedError: the domain was started anew.
        :raises libvirt.libvirtError: libvirt refused it.
        """
        domain_metadata.put(guest.domain, record)
        if not self._connection.runs(guest.uuid, guest.domain_id):
            with contextlib.suppress(libvirt.libvirtError):
                domain_metadata.remove(guest.domain)
            raise RunChangedError


def _external_bandwidth(guest: Guest) -> dict[str, written_values.Value]:
    """Return the external one of period and quota; one call writes both."""
    now = written_values.values(guest.expected)
    both = {cputune.PERIOD, cputune.QUOTA} & guest.external
    return {name: now[name] for name in both if name in now}


def _marked(domain: Any) -> bool:
    """Whether who takes it in will put it back from a copy in its XML."""
    try:
        return domain_metadata.get(domain) is not None
    except store.JournalError:
        return True
