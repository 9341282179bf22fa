# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write and restore the encap IPs of ports, journalled before."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.uplinks.binders.encap_ip_journal import (
    EncapIpJournal,
    GuestRecord,
    PortRecord,
)
from nova_vhpc.topology import open_vswitch

KEY = 'encap-ip'
"""Key in ``external_ids`` of a row of the table Interface."""


class Change(NamedTuple):
    """An encap IP that a port is to have.

    :ivar mac: MAC address of the guest's NIC.
    :ivar port: the port's row, as last read.
    """

    mac: str
    port: open_vswitch.Interface
    encap_ip: str

    @property
    def present(self) -> str | None:
        """The encap IP that the port has; None without one."""
        return self.port.external_ids.get(KEY)

    @property
    def is_due(self) -> bool:
        """Whether the port has another encap IP."""
        return self.present != self.encap_ip


class EncapIpWriter:
    """Writes and restores encap IPs. The caller lets one thread in at a time.

    :param ovsdb: connection to the database of this host's Open vSwitch.
    :param journal: encap IPs before the first write.
    :param host: name of the host, for messages.
    """

    def __init__(
        self,
        ovsdb: ovsdb_connection.Ovsdb,
        journal: EncapIpJournal,
        host: str,
    ) -> None:
        self._ovsdb = ovsdb
        self._journal = journal
        self._host = host
        # Encap IPs that this agent has written, by UUID of the row.
        self._written: dict[str, str] = {}

    def load(self, uuid: str) -> GuestRecord:
        """Return the record of a guest, which may be empty.

        :raises JournalError: the record cannot be used.
        """
        try:
            record = self._journal.load(uuid)
        except JournalError as error:
            raise type(error)(
                f'{error}; the encap IPs of {uuid} are left alone. Look at '
                f'"ovs-vsctl find Interface external_ids:vm-uuid={uuid}", '
                f'remove {KEY} if no operator has set it, then the record'
            ) from None
        return record or GuestRecord(uuid)

    def external(
        self, record: GuestRecord, ports: Iterable[open_vswitch.Interface]
    ) -> open_vswitch.Interface | None:
        """Return a port whose encap IP an external change has set, or None."""
        for port in ports:
            known = record.port(port.uuid)
            if known is not None and self._is_external(known, port):
                return port
        return None

    def _is_external(
        self, known: PortRecord, port: open_vswitch.Interface
    ) -> bool:
        present = port.external_ids.get(KEY)
        written = self._written.get(port.uuid)
        if known.external:
            return True
        if written is not None:
            return present != written
        # An earlier agent may have crashed before or after its write.
        return not known.may_be_agents(present)

    def hand_back(
        self, record: GuestRecord, port: open_vswitch.Interface
    ) -> None:
        """Journal an external change, and restore the guest's other ports.

        :raises JournalError, OvsdbError: it failed, or is done in part.
        """
        known = record.port(port.uuid)
        if known is not None and not known.external:
            marked = dataclasses.replace(known, external=True)
            self._journal.save(record.with_ports([marked]))
            self.restore(record.uuid)

    def write(self, record: GuestRecord, changes: Sequence[Change]) -> None:
        """Journal encap IPs, then write them.

        :raises JournalError: nothing was written.
        :raises OvsdbError: a write failed, or the port has changed meanwhile.
        """
        rows = self._rows()
        for row in self._written.keys() - rows.keys():
            del self._written[row]
        kept = GuestRecord(
            record.uuid, tuple(p for p in record.ports if p.row in rows)
        )
        ports = []
        for change in changes:
            known = kept.port(change.port.uuid) or PortRecord(
                change.port.uuid, change.port.name, change.present
            )
            ports.append(known.with_written(change.encap_ip))
        self._journal.save(kept.with_ports(ports))
        for change in changes:
            row = change.port.uuid
            # If the answer is lost, it is unknown what is in force.
            self._written.pop(row, None)
            self._set(
                row, change.port.name, change.encap_ip, expected=change.present
            )
            self._written[row] = change.encap_ip

    def restore(self, uuid: str) -> int:
        """Restore the encap IPs of a guest's ports that are still there.

        A port that an external change has set is left alone, and stays in
        the record: the next agent must not write it either.

        :returns: number of ports that were restored.
        :raises JournalError, OvsdbError: it failed; the record is kept.
        """
        record = self.load(uuid)
        try:
            rows = self._rows()
        except ovsdb_connection.OvsdbError as error:
            due = {port.name for port in record.ports if not port.external}
            if not due:
                return 0
            names = ', '.join(sorted(due))
            raise ovsdb_connection.OvsdbError(
                f'{error}; the encap IPs of {names} are left'
            ) from None
        restored = 0
        external = []
        for port in record.ports:
            row = rows.get(port.row)
            if row is None:
                continue
            present = row.external_ids.get(KEY)
            if port.external or not port.may_be_agents(present):
                external.append(dataclasses.replace(port, external=True))
            elif present != port.before:
                self._set(port.row, port.name, port.before, expected=present)
                restored += 1
        for port in record.ports:
            self._written.pop(port.row, None)
        if external:
            self._journal.save(GuestRecord(uuid, tuple(external)))
        else:
            self._journal.remove(uuid)
        return restored

    def _rows(self) -> dict[str, open_vswitch.Interface]:
        """Return the rows of the table Interface, by their UUIDs.

        :raises OvsdbError: the database does not answer now.
        """
        state = self._ovsdb.read()
        if state is None or not self._ovsdb.connected:
            raise ovsdb_connection.OvsdbError(
                f'Open vSwitch of host {self._host} does not answer'
            )
        return {interface.uuid: interface for interface in state.interfaces}

    def _set(
        self, row: str, name: str, encap_ip: str | None, expected: str | None
    ) -> None:
        """Set or remove the encap IP of a port.

        :param name: name of the port, for the message.
        :param expected: the encap IP that it has now.
        :raises OvsdbError: it failed, or the port has changed meanwhile.
        """
        if not self._ovsdb.set_external_id(
            row, KEY, encap_ip, expected=expected
        ):
            raise ovsdb_connection.OvsdbError(
                f'port {name} of host {self._host} has changed or gone '
                'meanwhile'
            )
