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


"""Binds by plugging NICs into the claimed uplinks' Linux bridges.

The NIC is moved by libvirt's live device update. The move is journalled
before, restored at the end, and repeated after a restart of the domain.
:mod:`binder` decides when.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import libvirt

from nova_vhpc.agent.journal.record import (
    JournalError,
    NewerVersion,
    Unreadable,
)
from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.uplinks import bindings, claims
from nova_vhpc.linux import qemu_process

LOG = logging.getLogger(__name__)

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE


class Plugger:
    """Moves and restores the NICs of single domains.

    :param journal: bindings in force.
    :param processes: the QEMU processes of this host.
    """

    name = 'linux_bridge'

    def __init__(
        self,
        journal: bindings.BindingJournal,
        processes: qemu_process.Processes,
    ) -> None:
        self._journal = journal
        self._processes = processes

    def start(self, wake: Callable[[], None]) -> None:
        """Do nothing: a bridge that a NIC is moved from is not watched."""

    def serves(self, uuid: str, nics: Sequence[interfaces.Nic]) -> bool:
        """Return whether a NIC is on a Linux bridge."""
        return any(nic.bridge for nic in nics)

    def plan(
        self,
        domain: Any,
        uplinks: Sequence[claims.ClaimedUplink],
        uplink_nic: int | None,
    ) -> Mapping[str, str]:
        """Return the bridges that NICs would be moved to, by MAC address.

        :param uplinks: the uplinks that the server has claimed.
        :param uplink_nic: index of the first NIC to move, from 0; None for
            the last NICs.
        :raises UnsupportedError: a NIC cannot be moved.
        """
        nics = {nic.mac: nic for nic in interfaces.read(domain.XMLDesc(0))}
        moves = interfaces.choose(
            tuple(nics.values()), [one.bridge for one in uplinks], uplink_nic
        )
        for mac, bridge in moves.items():
            nics[mac].plugged_into(bridge)
        return moves

    def bind(
        self,
        domain: Any,
        uplinks: Sequence[claims.ClaimedUplink],
        uplink_nic: int | None,
    ) -> int:
        """Move a domain's NICs to the bridges of its claims.

        :param uplinks: the uplinks that the server has claimed.
        :param uplink_nic: index of the first NIC to move, from 0; None for
            the last NICs.
        :returns: number of NICs that were moved.
        :raises UnsupportedError, JournalError: nothing was moved.
        :raises libvirt.libvirtError: libvirt refused a move; the moves
            before it are journalled.
        """
        uuid = domain.UUIDString()
        identity = self._processes.identity(uuid, domain.ID())
        moved, _ = self._moved(domain, identity)
        nics = {nic.mac: nic for nic in interfaces.read(domain.XMLDesc(0))}
        moves = interfaces.choose(
            tuple(nics.values()), [one.bridge for one in uplinks], uplink_nic
        )
        updates = {
            mac: nics[mac].plugged_into(bridge)
            for mac, bridge in moves.items()
        }
        if not updates:
            return 0
        for mac, bridge in moves.items():
            before = moved.get(mac, (nics[mac].bridge or '', ''))[0]
            moved[mac] = (before, bridge)
        self._journal.save(bindings.Binding(uuid, identity, moved))
        for xml in updates.values():
            domain.updateDeviceFlags(xml, LIVE)
        return len(updates)

    def intact(self, uuid: str) -> bool:
        """Return True: a NIC that others have moved stays where it is."""
        return True

    def in_force(self, uuid: str) -> Mapping[str, str]:
        """Return the bridges that NICs were moved to, by MAC address."""
        try:
            binding = self._journal.load(uuid)
        except JournalError:
            return {}
        moved = binding.moved if binding is not None else {}
        return {mac: bridge for mac, (_, bridge) in moved.items()}

    def restore(self, domain: Any) -> int:
        """Move a domain's NICs back to their original bridges.

        A NIC that an external change has moved again stays where it is.

        :returns: number of NICs that were restored.
        :raises JournalError, libvirt.libvirtError: it failed; the record is
            kept.
        """
        uuid = domain.UUIDString()
        moved, problem = self._moved(
            domain, self._processes.identity(uuid, domain.ID())
        )
        restored = 0
        for nic in interfaces.read(domain.XMLDesc(0)) if moved else ():
            before, after = moved.get(nic.mac, ('', ''))
            if after and nic.bridge == after and before != after:
                domain.updateDeviceFlags(nic.plugged_into(before), LIVE)
                restored += 1
        if problem is None:
            self._journal.remove(uuid)
        else:
            LOG.warning(
                '%s; %d NICs of VM %s are plugged as its definition says, '
                'the record is kept as %s',
                problem,
                restored,
                domain.name(),
                self._journal.set_aside(uuid),
            )
        return restored

    def _moved(
        self, domain: Any, identity: qemu_process.Identity
    ) -> tuple[dict[str, tuple[str, str]], JournalError | None]:
        """Return which NICs the agent has moved in this run of a domain.

        With a damaged record, these are all NICs whose bridge is not that of
        the definition, which no agent changes.

        :param identity: this run of the domain.
        :returns: bridge before and after the move, by MAC address; and why
            the record is damaged, or None.
        :raises JournalError: the record cannot be used, and nothing else
            tells the original bridges.
        :raises libvirt.libvirtError: the domain's XML cannot be read.
        """
        try:
            binding = self._journal.load(domain.UUIDString())
        except (NewerVersion, Unreadable):
            raise
        except JournalError as error:
            if not domain.isPersistent():
                # libvirt reports its live XML as the definition.
                raise
            return _moved_since_definition(domain), error
        if binding is None:
            return {}, None
        if binding.identity.same_run(identity):
            return dict(binding.moved), None
        # A libvirt call names the domain only. One that waits while the
        # domain is started anew is carried out on the new run. So a NIC
        # counts as moved if it is where the agent wanted it, while the
        # definition has its original bridge.
        return {
            mac: bridges
            for mac, bridges in _moved_since_definition(domain).items()
            if binding.moved.get(mac) == bridges
        }, None

    def uuids(self) -> frozenset[str]:
        """Return the UUIDs of domains that have a record."""
        return frozenset(self._journal.uuids())

    def forget(self, uuid: str) -> None:
        """Remove the record of a domain unless it runs on this host.

        :raises JournalError: the record could not be removed.
        """
        if not self._processes.find(uuid):
            self._journal.remove(uuid)

    def restore_all(self, connection: Callable[[], Any]) -> dict[str, str]:
        """Restore all domains that have a record, each in its own thread.

        A domain that hangs delays the answer, but no other domain.

        :param connection: returns libvirt's connection.
        :returns: reasons for failures, by UUID; these records are kept.
        :raises libvirt.libvirtError: libvirt is away.
        """
        conn = connection()
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


def _moved_since_definition(domain: Any) -> dict[str, tuple[str, str]]:
    """Return the NICs whose bridge is not that of the persistent definition.

    :returns: bridge in the definition and in the live XML, by MAC address.
    :raises libvirt.libvirtError: the domain's XML cannot be read.
    """
    live, defined = (
        {nic.mac: nic.bridge for nic in interfaces.read(domain.XMLDesc(flags))}
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)
    )
    return {
        mac: (defined[mac] or '', bridge)
        for mac, bridge in live.items()
        if bridge and defined.get(mac) and bridge != defined[mac]
    }


def make_plugger(
    conf: Any, ovsdb: ovsdb_connection.Ovsdb | None = None
) -> Plugger:
    """Return a plugger with this host's journal and processes.

    :param ovsdb: not needed.
    """
    return Plugger(
        bindings.BindingJournal(conf.vhpc_agent.state_path),
        qemu_process.make_processes(conf),
    )
