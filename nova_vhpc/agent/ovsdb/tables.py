# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The tables and columns of ovsdb that the agent reads."""

import uuid
from collections.abc import Mapping
from typing import Any

from nova_vhpc.topology import open_vswitch

_MAP = {
    'type': {'key': 'string', 'value': 'string', 'min': 0, 'max': 'unlimited'}
}
_STRING = {'type': 'string'}
_OPTIONAL_STRING = {'type': {'key': 'string', 'min': 0, 'max': 1}}
_STRINGS = {'type': {'key': 'string', 'min': 0, 'max': 'unlimited'}}
_OPTIONAL_INTEGER = {'type': {'key': 'integer', 'min': 0, 'max': 1}}


def _rows(table: str) -> dict[str, Any]:
    return {
        'type': {
            'key': {'type': 'uuid', 'refTable': table},
            'min': 0,
            'max': 'unlimited',
        }
    }


SCHEMA: Mapping[str, Any] = {
    'name': 'Open_vSwitch',
    'version': '7.0.0',
    'tables': {
        'Open_vSwitch': {
            'columns': {'bridges': _rows('Bridge'), 'external_ids': _MAP}
        },
        'Bridge': {
            'columns': {
                'name': _STRING,
                'ports': _rows('Port'),
                'protocols': _STRINGS,
            }
        },
        'Port': {
            'columns': {
                'name': _STRING,
                'interfaces': _rows('Interface'),
                'bond_mode': _OPTIONAL_STRING,
                'lacp': _OPTIONAL_STRING,
                'other_config': _MAP,
                'tag': _OPTIONAL_INTEGER,
                'vlan_mode': _OPTIONAL_STRING,
            }
        },
        'Interface': {
            'columns': {
                'name': _STRING,
                'type': _STRING,
                'external_ids': _MAP,
                'options': _MAP,
                'admin_state': _OPTIONAL_STRING,
                'link_state': _OPTIONAL_STRING,
                'link_speed': _OPTIONAL_INTEGER,
                'link_resets': _OPTIONAL_INTEGER,
                'ofport': _OPTIONAL_INTEGER,
            }
        },
    },
}
"""The part of the database's schema that is replicated.

Written down, not fetched: a fetch blocks as long as the server hangs, and all
of these columns are in Open vSwitch 2.5 and later.
"""


class Reader:
    """Turns the rows of a replica into plain values.

    The values of ports are kept until their rows change: a host of 500 ports
    would take 40 ms after each change.
    """

    def __init__(self) -> None:
        self._ports: dict[uuid.UUID, open_vswitch.Port] = {}
        self._port_of: dict[uuid.UUID, uuid.UUID] = {}

    def forget(self, table: str, row: uuid.UUID) -> None:
        """Read a row again: it changed."""
        if table == 'Port':
            self._ports.pop(row, None)
        elif table == 'Interface' and row in self._port_of:
            self._ports.pop(self._port_of.pop(row), None)

    def forget_all(self) -> None:
        """Read all rows again."""
        self._ports.clear()
        self._port_of.clear()

    def read(self, tables: Mapping[str, Any]) -> open_vswitch.OpenVswitch:
        """Return the contents of a replica.

        :param tables: tables of an ``ovs.db.idl.Idl`` that has
            :data:`SCHEMA`.
        """
        for root in tables['Open_vSwitch'].rows.values():
            return open_vswitch.OpenVswitch(
                dict(root.external_ids),
                tuple(
                    sorted(map(self._bridge, root.bridges), key=_name),
                ),
            )
        return open_vswitch.OpenVswitch()

    def _bridge(self, row: Any) -> open_vswitch.Bridge:
        return open_vswitch.Bridge(
            row.name,
            tuple(sorted(map(self._port, row.ports), key=_name)),
            tuple(sorted(row.protocols)),
        )

    def _port(self, row: Any) -> open_vswitch.Port:
        port = self._ports.get(row.uuid)
        if port is None:
            members = row.interfaces
            port = open_vswitch.Port(
                row.name,
                tuple(sorted(map(_interface, members), key=_name)),
                bond_mode=_optional(row.bond_mode) or '',
                lacp=_optional(row.lacp) or '',
                other_config=dict(row.other_config),
                tag=_optional(row.tag),
                vlan_mode=_optional(row.vlan_mode) or '',
            )
            self._ports[row.uuid] = port
            for member in members:
                self._port_of[member.uuid] = row.uuid
        return port


def _interface(row: Any) -> open_vswitch.Interface:
    bits_per_s = _optional(row.link_speed)
    return open_vswitch.Interface(
        row.name,
        str(row.uuid),
        row.type,
        dict(row.external_ids),
        dict(row.options),
        link_up=_optional(row.link_state) == 'up'
        and _optional(row.admin_state) == 'up',
        mbps=bits_per_s // 1_000_000 if bits_per_s else None,
        link_resets=_optional(row.link_resets) or 0,
        ofport=_optional(row.ofport),
    )


def _name(
    part: open_vswitch.Bridge | open_vswitch.Port | open_vswitch.Interface,
) -> str:
    return part.name


def _optional(values: Any) -> Any:
    """Return an optional column's value, None if it is not set."""
    return values[0] if values else None
