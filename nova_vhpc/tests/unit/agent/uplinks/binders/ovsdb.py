# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""An ovsdb in memory, with the interface of the agent's connection."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping

from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import port_networks, steering
from nova_vhpc.agent.uplinks.binders import base as binder_base
from nova_vhpc.topology import links, open_vswitch

ENCAP_IPS = '10.1.0.1,10.2.0.1,10.3.0.1'


def steering_of(
    database: 'MemoryOvsdb',
    binders: binder_base.BinderSet,
    sysfs: str = '/sys',
) -> steering.Steering:
    """Return the steering of a host with this ovsdb."""
    return steering.Steering(
        binders,
        'h1',
        database.read,
        port_networks.PortNetworks(database.read, database.dump_flows),
        links.Links(pathlib.Path(sysfs)),
    )


class MemoryOvsdb:
    """Holds the ports of ``br-int``, and writes keys as ovsdb-server does.

    All ports are on one tenant network of OVN, unless said otherwise.

    :ivar connected: whether the server answers.
    :ivar before_write: called just before each write.
    :ivar answers: whether the answer to a write arrives.
    :ivar recorded: what Neutron's agent has written at each port.
    :ivar bridges: further bridges; see :meth:`set_bridges`.
    :ivar flows: what ``ovs-ofctl`` prints; by default, what ovn-controller
        makes of the ports. None if it cannot be run.
    :ivar follows: whether ovn-controller takes encap IPs over.
    """

    def __init__(self, encap_ips: str = ENCAP_IPS) -> None:
        self.connected = True
        self.answers = True
        self.flows: str | None = ''
        self.follows = True
        self.before_write: Callable[[], None] = lambda: None
        self.external_ids = {'ovn-remote': 'tcp:192.0.2.1:6642'}
        if encap_ips:
            self.external_ids['ovn-encap-ip'] = encap_ips
        self.rows: dict[str, open_vswitch.Interface] = {}
        self.recorded: Mapping[str, str] = {}
        self.bridges: tuple[open_vswitch.Bridge, ...] = ()
        self._numbers = itertools.count(1)
        self._state: open_vswitch.OpenVswitch | None = None

    # -- the interface of the connection -----------------------------------

    def read(self) -> open_vswitch.OpenVswitch | None:
        if self._state is None:
            ports = tuple(
                open_vswitch.Port(row.name, (row,), other_config=self.recorded)
                for row in self.rows.values()
            )
            self._state = open_vswitch.OpenVswitch(
                self.external_ids,
                (open_vswitch.Bridge('br-int', ports), *self.bridges),
            )
        return self._state

    def add_listener(self, changed: Callable[[], None]) -> None:
        pass

    def set_external_id(
        self, interface: str, key: str, value: str | None, expected: str | None
    ) -> bool:
        if not self.connected:
            raise connection.OvsdbError('ovsdb-server is away')
        self.before_write()
        row = self.rows.get(interface)
        if row is None or row.external_ids.get(key) != expected:
            return False
        self.set_by_hand(interface, key, value)
        if not self.answers:
            raise connection.OvsdbError('no answer')
        return True

    def dump_flows(self, bridge: open_vswitch.Bridge) -> str:
        if self.flows is None:
            raise port_networks.FlowsError('ovs-ofctl is not installed')
        return self.flows or ''.join(map(self._flow, self.rows.values()))

    def _flow(self, row: open_vswitch.Interface) -> str:
        """Return what ovn-controller makes of a port."""
        encap_ip = row.external_ids.get('encap-ip', '')
        encap_ips = sorted(
            self.external_ids.get('ovn-encap-ip', '').split(',')
        )
        number = 0
        if self.follows and encap_ip in encap_ips:
            number = encap_ips.index(encap_ip)
        return (
            f' priority=100,in_port={row.ofport} actions='
            'load:0x1->OXM_OF_METADATA[],'
            f'load:{number:#x}->NXM_NX_REG13[16..31],resubmit(,8)\n'
        )

    # -- what others do ----------------------------------------------------

    def plug(self, uuid: str, mac: str, **more: str) -> str:
        """Add a port as os-vif does; return the UUID of its row."""
        return self.add(
            open_vswitch.Interface(
                f'tap{mac[-2:]}',
                external_ids={
                    'vm-uuid': uuid,
                    'attached-mac': mac,
                    'iface-id': f'port of {mac}',
                    **{key.replace('_', '-'): v for key, v in more.items()},
                },
            )
        )

    def add(self, interface: open_vswitch.Interface) -> str:
        """Add an interface; return the UUID of its row."""
        number = next(self._numbers)
        row = f'row{number}'
        self.rows[row] = dataclasses.replace(
            interface, uuid=row, ofport=number
        )
        self._state = None
        return row

    def set_bridges(self, *bridges: open_vswitch.Bridge) -> None:
        """Replace all further bridges."""
        self.bridges = bridges
        self._state = None

    def record(self, **other_config: str) -> None:
        """Write ``other_config`` of all ports, as Neutron's agent does."""
        self.recorded = other_config
        self._state = None

    def unplug(self, row: str) -> None:
        del self.rows[row]
        self._state = None

    def set_by_hand(self, row: str, key: str, value: str | None) -> None:
        external_ids = dict(self.rows[row].external_ids)
        external_ids.pop(key, None)
        if value is not None:
            external_ids[key] = value
        self.rows[row] = dataclasses.replace(
            self.rows[row], external_ids=external_ids
        )
        self._state = None

    def tunnel(self, **options: str) -> None:
        """Add a tunnel as ovn-controller does."""
        self.add(
            open_vswitch.Interface(
                'ovn-h2-0',
                type='geneve',
                options={'remote_ip': '10.1.0.2', **options},
            )
        )

    def encap_ip(self, row: str) -> str | None:
        return self.rows[row].external_ids.get('encap-ip')

    def contents(self) -> Mapping[str, Mapping[str, str]]:
        """Return the keys of all rows, to be compared."""
        return {row: dict(one.external_ids) for row, one in self.rows.items()}
