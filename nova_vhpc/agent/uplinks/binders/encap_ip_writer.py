# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write and restore the encap IPs of ports, journalled before."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nova_vhpc.agent.journal import record, store
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.topology import open_vswitch

KEY = 'encap-ip'
"""Key in ``external_ids`` of a row of the table Interface."""


@dataclasses.dataclass(frozen=True, slots=True)
class PortRecord:
    """The encap IP of one port of Open vSwitch before the first write.

    :ivar row: UUID of the port's row in the table Interface. A port that is
        plugged again has another row.
    :ivar name: name of the port, for messages.
    :ivar before: encap IP before the first write; None without one.
    :ivar written: encap IPs that the agent may have written.
    :ivar external: an external change has set another encap IP: the port is
        not written again.
    """

    row: str
    name: str
    before: str | None
    written: frozenset[str] = frozenset()
    external: bool = False

    def may_be_agents(self, encap_ip: str | None) -> bool:
        """Return whether an encap IP is original or may be the agent's."""
        return encap_ip == self.before or encap_ip in self.written

    def with_written(self, encap_ip: str) -> 'PortRecord':
        """Return the record with one more encap IP that may be written."""
        return dataclasses.replace(
            self, written=self.written | {encap_ip}, external=False
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return {**dataclasses.asdict(self), 'written': sorted(self.written)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> 'PortRecord':
        """Return the record that :meth:`to_dict` gave as JSON.

        :raises KeyError, TypeError, ValueError: the data is no such record.
        """
        before, written = data['before'], data['written']
        if not isinstance(written, list):
            raise TypeError(f'written is {written!r}')
        return cls(
            _text(data['row']),
            _text(data['name']),
            None if before is None else _text(before),
            frozenset(map(_text, written)),
            bool(data['external']),
        )


def _text(value: Any) -> str:
    """Return a value that must be a text.

    Another one would be written to ovsdb as what an operator has set.

    :raises ValueError: it is none, or ovsdb could not hold it.
    """
    if not isinstance(value, str):
        raise ValueError(f'{value!r} is no text')
    value.encode()
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class GuestRecord:
    """The ports of one guest that the agent may have written to.

    :ivar uuid: UUID of the guest.
    """

    uuid: str
    ports: tuple[PortRecord, ...] = ()

    def port(self, row: str) -> PortRecord | None:
        """Return the record of a port; None if there is none.

        :param row: UUID of the port's row.
        """
        return next((port for port in self.ports if port.row == row), None)

    def with_ports(self, ports: Iterable[PortRecord]) -> 'GuestRecord':
        """Return the record with ports replaced or added, by their rows."""
        by_row = {port.row: port for port in (*self.ports, *ports)}
        return dataclasses.replace(self, ports=tuple(by_row.values()))

    def to_json(self) -> str:
        """Return the record as a versioned JSON document."""
        return record.encode(
            {
                'uuid': self.uuid,
                'ports': [port.to_dict() for port in self.ports],
            }
        )

    @classmethod
    def from_json(cls, text: str, source: str) -> 'GuestRecord':
        """Parse the output of :meth:`to_json`.

        :param source: where the text was read, for the error message.
        :raises NewerVersion: a newer agent wrote the record.
        :raises JournalError: the text is damaged, altered or no record.
        """
        with record.reading(text, source) as data:
            return cls(
                _text(data['uuid']),
                tuple(PortRecord.from_dict(port) for port in data['ports']),
            )


class EncapIpJournal(store.RecordFiles[GuestRecord]):
    """The encap IPs that the agent changed on this host.

    :param state_path: ``[vhpc_agent]state_path``.
    """

    def __init__(self, state_path: str) -> None:
        super().__init__(
            pathlib.Path(state_path, 'encap-ips'),
            GuestRecord.from_json,
            lambda guest: f'the encap IPs of {guest.uuid}',
            'they are not changed',
        )


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
            guest = self._journal.load(uuid)
        except record.JournalError as error:
            raise type(error)(
                f'{error}; the encap IPs of {uuid} are left alone. Look at '
                f'"ovs-vsctl find Interface external_ids:vm-uuid={uuid}", '
                f'remove {KEY} if no operator has set it, then the record'
            ) from None
        return guest or GuestRecord(uuid)

    def external(
        self, guest: GuestRecord, ports: Iterable[open_vswitch.Interface]
    ) -> open_vswitch.Interface | None:
        """Return a port whose encap IP an external change has set, or None."""
        for port in ports:
            known = guest.port(port.uuid)
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
        self, guest: GuestRecord, port: open_vswitch.Interface
    ) -> None:
        """Journal an external change, and restore the guest's other ports.

        :raises JournalError, OvsdbError: it failed, or is done in part.
        """
        known = guest.port(port.uuid)
        if known is not None and not known.external:
            marked = dataclasses.replace(known, external=True)
            self._journal.save(guest.with_ports([marked]))
            self.restore(guest.uuid)

    def write(self, guest: GuestRecord, changes: Sequence[Change]) -> None:
        """Journal encap IPs, then write them.

        :raises JournalError: nothing was written.
        :raises OvsdbError: a write failed, or the port has changed meanwhile.
        """
        rows = self._rows()
        for row in self._written.keys() - rows.keys():
            del self._written[row]
        kept = GuestRecord(
            guest.uuid, tuple(p for p in guest.ports if p.row in rows)
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
        guest = self.load(uuid)
        try:
            rows = self._rows()
        except ovsdb_connection.OvsdbError as error:
            due = {port.name for port in guest.ports if not port.external}
            if not due:
                return 0
            names = ', '.join(sorted(due))
            raise ovsdb_connection.OvsdbError(
                f'{error}; the encap IPs of {names} are left'
            ) from None
        restored = 0
        external = []
        for port in guest.ports:
            row = rows.get(port.row)
            if row is None:
                continue
            present = row.external_ids.get(KEY)
            if port.external or not port.may_be_agents(present):
                external.append(dataclasses.replace(port, external=True))
            elif present != port.before:
                self._set(port.row, port.name, port.before, expected=present)
                restored += 1
        for port in guest.ports:
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
