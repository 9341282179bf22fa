# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which ports' encap IPs the agent may have written, on the disk."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.agent.journal import record, store


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
