# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A compute host with Open vSwitch and ovn-controller."""

import pathlib
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from nova_vhpc_lab.ovn import programs
from nova_vhpc_lab.testbed.patience import PATIENCE_S

if TYPE_CHECKING:
    from nova_vhpc_lab.ovn.lab import Lab

RAIL = '198.18.{rail}.{host}'
"""Encap IP of an uplink. The addresses are for benchmarks; no LAN has them."""

MANAGEMENT = '198.18.255.{host}'
"""Address of a host that is on none of its uplinks."""

_DATAPATH = 'ovs-netdev'


class Host:
    """A compute host with Open vSwitch and ovn-controller.

    :param number: last byte of its addresses.
    :param hostname: name by which Nova and Neutron know it, if not ``name``.
    """

    def __init__(
        self,
        lab: 'Lab',
        name: str,
        number: int,
        namespace: bool,
        hostname: str = '',
    ) -> None:
        self.name = name
        self.hostname = hostname or name
        self.encap_ips: list[str] = []
        self._lab = lab
        self._number = number
        self.place = lab.place(name, namespace)
        self._taps: set[str] = set()
        self._bridges: list[str] = []
        self._more: list[str] = []

    @property
    def socket(self) -> str:
        """Connection to the host's ovsdb."""
        return f'unix:{self.place.path}/db.sock'

    def nic(self, word: str) -> str:
        """Return the name of a NIC; unique in the test's own namespace."""
        return word if self.place.namespace else f'{self._lab.tag}{word}'

    def bridge(self, word: str) -> str:
        """Return the name of a bridge, likewise."""
        return f'br-{self.nic(word)}'

    def start(self, uplinks: int, central: str) -> None:
        """Start the daemons and connect the uplinks."""
        database = str(self.place.path / 'conf.db')
        schema = str(programs.SCHEMAS / 'openvswitch/vswitch.ovsschema')
        self.place.run('ovsdb-tool', 'create', database, schema)
        self.start_ovsdb()
        # ovs-vswitchd makes it, and leaves it behind.
        if not (pathlib.Path('/sys/class/net') / _DATAPATH).exists():
            self._bridges.append(_DATAPATH)
        self.start_vswitchd()
        self.vsctl('--no-wait', 'init')
        self._lab.connect(self, 'm', 'sw-m')
        address = MANAGEMENT.format(host=self._number)
        self.place.ip(f'addr add {address}/24 dev {self.nic("m")}')
        for rail in range(uplinks):
            self._add_uplink(rail)
        self.set_external_ids(
            system_id=self.name,
            hostname=self.hostname,
            ovn_remote=f'tcp:{central}:6642',
            ovn_encap_type='geneve',
            ovn_bridge=self.bridge('int'),
            ovn_bridge_datapath_type='netdev',
            ovn_encap_ip=','.join(self.encap_ips),
            ovn_encap_ip_default=self.encap_ips[0],
        )
        self._add_bridge(self.bridge('int'))
        self.start_controller()
        wait_for(lambda: self.name in self._lab.sbctl('show'), 'the chassis')

    def start_ovsdb(self) -> None:
        """Start ovsdb-server."""
        self.place.start(
            'ovsdb-server',
            str(self.place.path / 'conf.db'),
            f'--remote=punix:{self.place.path}/db.sock',
        )

    def start_vswitchd(self) -> None:
        """Start ovs-vswitchd."""
        self.place.start('ovs-vswitchd', self.socket)

    def restart_vswitchd(self) -> None:
        """Kill ovs-vswitchd, and start it again.

        With datapaths in user space, the bridges' own interfaces end with it,
        so their addresses are set again. The kernel's stay.
        """
        self.place.kill('ovs-vswitchd')
        self.start_vswitchd()
        for rail in range(len(self.encap_ips)):
            self._set_encap_ip(rail)

    def start_controller(self) -> None:
        """Start ovn-controller."""
        self.place.start('ovn-controller', self.socket)

    def vsctl(self, *arguments: str) -> str:
        """Run ``ovs-vsctl``."""
        return self.place.run('ovs-vsctl', f'--db={self.socket}', *arguments)

    def set_external_ids(self, **values: str) -> None:
        """Set keys of the table ``Open_vSwitch``, with ``-`` for ``_``."""
        self.vsctl(
            'set',
            'Open_vSwitch',
            '.',
            *(
                f'external_ids:{key.replace("_", "-")}="{value}"'
                for key, value in values.items()
            ),
        )

    def _add_bridge(self, name: str, *more: str) -> None:
        self._bridges.append(name)
        if self.place.namespace is None:
            self.place.remove_at_end('link', name)
        mode = 'secure' if name == self.bridge('int') else 'standalone'
        self.vsctl(
            *f'add-br {name} -- set bridge {name}'.split(),
            *('datapath_type=netdev', f'fail_mode={mode}', *more),
        )

    def add_bond(
        self, bridge: str, members: int, physnet: str, *columns: str
    ) -> list[str]:
        """Add a bridge with a bond, all on one switch of the fabric.

        :param physnet: physical network that is mapped to the bridge.
        :param columns: columns of the bond's row in the table Port.
        :returns: names of the members.
        """
        words = [f'b{number}' for number in range(members)]
        for word in words:
            self._lab.connect(self, word, f'sw-{physnet}')
        nics = [self.nic(word) for word in words]
        self._more += nics
        name = self.bridge(bridge)
        self._add_bridge(name)
        self.vsctl('add-bond', name, self.bond, *nics, *columns)
        self.set_external_ids(ovn_bridge_mappings=f'{physnet}:{name}')
        return nics

    @property
    def bond(self) -> str:
        """Name of the bond."""
        return self.nic('bond0')

    def appctl(self, *arguments: str) -> str:
        """Run ``ovs-appctl`` for ovs-vswitchd."""
        socket = str(self.place.path / 'ovs-vswitchd.ctl')
        return self.place.run('ovs-appctl', '-t', socket, *arguments)

    def _add_uplink(self, rail: int) -> None:
        nic = f'n{rail}'
        self._lab.connect(self, nic, f'sw-{rail}')
        bridge = self.bridge(nic)
        self._add_bridge(bridge, '--', 'add-port', bridge, self.nic(nic))
        self.encap_ips.append(RAIL.format(rail=rail, host=self._number))
        self._set_encap_ip(rail)

    def _set_encap_ip(self, rail: int) -> None:
        """Give the bridge of an uplink its encap IP."""
        bridge = self.bridge(f'n{rail}')
        quiet(self.place, bridge)
        self.place.ip(f'addr replace {self.encap_ips[rail]}/24 dev {bridge}')
        self.place.ip(f'link set dev {bridge} up')

    # -- guests ------------------------------------------------------------

    def make_tap(self, tap: str) -> None:
        """Make a tap, as Nova does before a guest starts."""
        self._taps.add(tap)
        self.place.ip(f'tuntap add dev {tap} mode tap')
        quiet(self.place, tap)
        self.place.ip(f'link set dev {tap} up')

    def make_guest(self, tap: str, mac: str, address: str) -> programs.Place:
        """Make a guest that is a namespace; return it.

        :param tap: name of the port, on the host's side.
        :param address: the guest's IP address.
        """
        guest = self._lab.place(tap, namespace=True)
        self._lab.addCleanup(guest.end, [])
        peer = f'peer name eth0 netns {guest.namespace}'
        self.place.ip(f'link add {tap} type veth {peer}')
        guest.ip(f'link set eth0 address {mac}')
        guest.ip(f'addr add {address}/24 dev eth0')
        for place, name in ((self.place, tap), (guest, 'eth0')):
            quiet(place, name)
            place.ip(f'link set dev {name} up')
            place.run('ethtool', '-K', name, 'tx', 'off')
        return guest

    def plug(self, tap: str, server: str, port: str, mac: str) -> None:
        """Add a guest's port as os-vif does: the row is a new one."""
        bridge = self.bridge('int')
        self.vsctl(
            *f'--may-exist add-port {bridge} {tap} -- set Interface'.split(),
            tap,
            f'external_ids:iface-id={port}',
            f'external_ids:attached-mac="{mac}"',
            f'external_ids:vm-uuid={server}',
            'external_ids:iface-status=active',
        )

    def unplug(self, tap: str) -> None:
        """Remove a guest's port as os-vif does."""
        self.vsctl('--if-exists', 'del-port', self.bridge('int'), tap)

    def external_ids(self, tap: str) -> dict[str, str]:
        """Return the ``external_ids`` of a guest's port.

        Without those by which ovn-controller says when it wired the port.
        """
        text = self.vsctl('get', 'Interface', tap, 'external_ids')
        pairs = re.findall(r'([a-z-]+)="?([^",}]*)"?', text)
        return {
            key: value
            for key, value in pairs
            if not key.startswith('ovn-installed')
        }

    def is_wired(self, tap: str) -> bool:
        """Return whether ovn-controller has wired a guest's port."""
        keys = self.vsctl('get', 'Interface', tap, 'external_ids')
        return 'ovn-installed-ts' in keys

    def encap_ip(self, tap: str) -> str:
        """Return the encap IP of a guest's port; empty for none."""
        return self.vsctl(
            '--if-exists', 'get', 'Interface', tap, 'external_ids:encap-ip'
        ).strip(' \n"')

    def frames(self, way: str) -> list[int]:
        """Return how many frames each uplink has carried.

        :param way: ``in`` for those that arrived at the host, or ``out``.
        """
        # What the fabric sends arrives at the host.
        counter = {'in': 'tx_packets', 'out': 'rx_packets'}[way]
        text = self._lab.fabric.shell(
            'cat',
            *(
                f'/sys/class/net/{self.name}-n{rail}/statistics/{counter}'
                for rail in range(len(self.encap_ips))
            ),
        )
        return [int(line) for line in text.split()]

    def set_link(self, rail: int, up: bool) -> None:
        """Connect or disconnect the cable of an uplink, at the switch."""
        state = 'up' if up else 'down'
        self._lab.fabric.ip(f'link set dev {self.name}-n{rail} {state}')

    def end(self) -> None:
        """End the daemons, and remove what they made."""
        self.place.end(['ovn-controller', 'ovs-vswitchd', 'ovsdb-server'])
        if self.place.namespace is None:
            # Otherwise they ended with the namespace.
            nics = ('m', *(f'n{rail}' for rail in range(len(self.encap_ips))))
            for name in (
                *self._bridges,
                *self._more,
                *self._taps,
                *(self.nic(nic) for nic in nics),
            ):
                delete(self.place, name)


def delete(place: programs.Place, name: str) -> None:
    """Delete a link, if it exists."""
    if (pathlib.Path('/sys/class/net') / name).exists():
        place.ip(f'link del {name}')


def quiet(place: programs.Place, *names: str) -> None:
    """Keep the kernel from sending anything of IPv6 over links."""
    for name in names:
        file = f'/proc/sys/net/ipv6/conf/{name}/disable_ipv6'
        place.shell('sh', '-c', f'echo 1 >{file} || true')


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition is true.

    :raises AssertionError: it is not within :data:`PATIENCE_S`.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f'{what} did not come'
        time.sleep(0.02)
