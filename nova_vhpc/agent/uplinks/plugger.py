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


"""Plugs NICs of guests into the bridges of claimed uplinks.

Nova's claim on an uplink does not choose the bridge that os-vif plugs a NIC
into. With ``[vhpc_agent] bind_uplinks`` the agent reads the server's claims
from Placement and moves the NIC by libvirt's live device update. The move is
journalled before, restored at the end, and repeated after a restart of the
domain. :mod:`binder` decides when.
"""

import dataclasses
import json
import threading
from collections.abc import Mapping
from typing import Any

import libvirt

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.linux import qemu_process

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """NICs that the agent moved in one run of a domain.

    :ivar uuid: UUID of the domain.
    :ivar identity: the run of the domain.
    :ivar moved: bridge before and after the move, by MAC address.
    """

    uuid: str
    identity: qemu_process.Identity
    moved: Mapping[str, tuple[str, str]]


class BindingJournal(store.Journal):
    """Stores bindings on disk, as durably as the cputune records."""

    def __init__(self, state_path: str) -> None:
        super().__init__(state_path)
        self.path = self.path.with_name('bindings')

    def save_binding(self, binding: Binding) -> None:
        """Write a binding to disk, atomically.

        :raises JournalError: it was not written.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = json.dumps({'version': 1, **dataclasses.asdict(binding)})
            self._write(self._file(binding.uuid), text + '\n')
        except OSError as error:
            raise JournalError(
                f'cannot journal the NICs of {binding.uuid} in {self.path}: '
                f'{error.strerror}; they are not moved'
            ) from None

    def load_binding(self, uuid: str) -> Binding | None:
        """Return the binding of a domain; None without one.

        :raises JournalError: the file cannot be read, or is invalid.
        """
        path = self._file(uuid)
        try:
            data = json.loads(path.read_text())
            if data['version'] != 1:
                raise ValueError(f'version {data["version"]}')
            return Binding(
                str(data['uuid']),
                qemu_process.Identity(**data['identity']),
                {m: (str(b), str(a)) for m, (b, a) in data['moved'].items()},
            )
        except FileNotFoundError:
            return None
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise JournalError(f'{path}: {error!r}') from None


class Plugger:
    """Moves and restores the NICs of single domains.

    :param journal: bindings in force.
    :param processes: the QEMU processes of this host.
    :cvar dry_run: whether nothing is moved.
    """

    dry_run = False

    def __init__(
        self, journal: BindingJournal, processes: qemu_process.Processes
    ) -> None:
        self._journal = journal
        self._processes = processes

    def bind(
        self, domain: Any, bridges: tuple[str, ...], uplink_nic: int | None
    ) -> int:
        """Move a domain's NICs to the bridges of its claims.

        :param bridges: bridges of the claimed uplinks.
        :param uplink_nic: index of the first NIC to move, from 0; None for
            the last NICs.
        :returns: number of NICs that were moved.
        :raises UnsupportedError, JournalError: nothing was moved.
        :raises libvirt.libvirtError: libvirt refused a move; the moves
            before it are journalled.
        """
        nics = {nic.mac: nic for nic in interfaces.read(domain.XMLDesc(0))}
        moves = interfaces.choose(tuple(nics.values()), bridges, uplink_nic)
        updates = {
            mac: nics[mac].plugged_into(bridge)
            for mac, bridge in moves.items()
        }
        if not updates:
            return 0
        uuid = domain.UUIDString()
        identity = self._processes.identity(uuid, domain.ID())
        record = self._journal.load_binding(uuid)
        moved = _moved(domain, record, identity)
        for mac, bridge in moves.items():
            before = moved.get(mac, (nics[mac].bridge or '', ''))[0]
            moved[mac] = (before, bridge)
        self._journal.save_binding(Binding(uuid, identity, moved))
        for xml in updates.values():
            domain.updateDeviceFlags(xml, LIVE)
        return len(updates)

    def restore(self, domain: Any) -> int:
        """Move a domain's NICs back to their original bridges.

        A NIC that an external change has moved again stays where it is.

        :returns: number of NICs that were restored.
        :raises JournalError, libvirt.libvirtError: it failed; the record is
            kept.
        """
        uuid = domain.UUIDString()
        record = self._journal.load_binding(uuid)
        if record is None:
            return 0
        restored = 0
        moved = _moved(
            domain, record, self._processes.identity(uuid, domain.ID())
        )
        for nic in interfaces.read(domain.XMLDesc(0)):
            before, after = moved.get(nic.mac, ('', ''))
            if after and nic.bridge == after and before != after:
                domain.updateDeviceFlags(nic.plugged_into(before), LIVE)
                restored += 1
        self._journal.remove(uuid)
        return restored

    def uuids(self) -> frozenset[str]:
        """Return the UUIDs of domains that have a record."""
        return frozenset(self._journal.uuids())

    def forget(self, uuid: str) -> None:
        """Remove the record of a domain unless it runs on this host.

        :raises JournalError: the record could not be removed.
        """
        if not self._processes.find(uuid):
            self._journal.remove(uuid)

    def restore_all(self, conn: Any) -> dict[str, str]:
        """Restore all domains that have a record, each in its own thread.

        A domain that hangs delays the answer, but no other domain.

        :param conn: libvirt's connection.
        :returns: reasons for failures, by UUID; these records are kept.
        """
        failures: dict[str, str] = {}

        def restore_one(uuid: str) -> None:
            try:
                if self._processes.find(uuid):
                    self.restore(conn.lookupByUUIDString(uuid))
                else:
                    self._journal.remove(uuid)
            except Exception as error:
                # Whatever happens to one domain, the others are restored.
                failures[uuid] = str(error) or repr(error)

        threads = [
            threading.Thread(target=restore_one, args=(uuid,), daemon=True)
            for uuid in self._journal.uuids()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failures


def _moved(
    domain: Any, record: Binding | None, identity: qemu_process.Identity
) -> dict[str, tuple[str, str]]:
    """Return which NICs the agent has moved in a run of a domain.

    A libvirt call identifies a domain by its UUID only. A call that waits
    while the domain is destroyed and started again is carried out on the new
    run. So if the record is of another run, a NIC counts as moved if it is
    where the agent wanted it, while the definition has its original bridge.

    :returns: bridge before and after the move, by MAC address.
    :raises libvirt.libvirtError: the domain's XML cannot be read.
    """
    if record is None:
        return {}
    if record.identity.same_run(identity):
        return dict(record.moved)
    live, defined = (
        {nic.mac: nic.bridge for nic in interfaces.read(domain.XMLDesc(flags))}
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    return {
        mac: (before, after)
        for mac, (before, after) in record.moved.items()
        if (defined.get(mac), live.get(mac)) == (before, after)
    }


def make_plugger(conf: Any) -> Plugger:
    """Return a plugger with this host's journal and processes."""
    return Plugger(
        BindingJournal(conf.vhpc_agent.state_path),
        qemu_process.make_processes(conf),
    )
