# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Real Open vSwitch and OVN on "hosts" that are network namespaces.

Each host has as many uplinks as asked for. An uplink is a veth pair: one end
is the NIC ``n0``, ``n1``, ... in the host's bridge ``br-n0``, ``br-n1``, ...,
the other is a port of a switch in the namespace ``fabric``. Each uplink number
has a switch and a subnet of its own: a rail. Datapaths are in user space, so
no kernel module is needed.
"""

import os
import pathlib
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable

import fixtures

from nova_vhpc_lab.ovn import programs
from nova_vhpc_lab.stack import guard
from nova_vhpc_lab.testbed.patience import PATIENCE_S

RAIL = '198.18.{rail}.{host}'
"""Encap IP of an uplink. The addresses are for benchmarks; no LAN has them."""

MANAGEMENT = '198.18.255.{host}'
"""Address of a host that is on none of its uplinks."""

_CENTRAL = '198.18.255.254'
_DATAPATH = 'ovs-netdev'
_SCHEMAS = programs.ROOT / 'usr/share'


class Lab(fixtures.Fixture):
    """A fabric with OVN's central part, and hosts that are added to it.

    :param tag: prefix of the names of links and namespaces; at most 8
        characters.
    :param keeper: guard that ends all daemons, and removes links and
        namespaces, if this process is killed; None for none.
    :param path: directory of all files, which is made; a temporary one, which
        is removed, by default.
    """

    def __init__(
        self,
        tag: str = '',
        keeper: guard.Guard | None = None,
        path: pathlib.Path | None = None,
    ) -> None:
        super().__init__()
        self.tag = tag or 'v' + secrets.token_hex(2)
        self._keeper = keeper
        self._own_path = path

    def _setUp(self) -> None:
        if self._own_path is None:
            self.path = pathlib.Path(tempfile.mkdtemp(prefix='nv-ovn-'))
            self.addCleanup(shutil.rmtree, self.path, True)
        else:
            self.path = self._own_path
        self.hosts: list[Host] = []
        self.fabric = self.place('fabric', namespace=True)
        self._switches: set[str] = set()
        self.addCleanup(
            self.fabric.end, ['ovn-northd', 'ovnnb_db', 'ovnsb_db']
        )
        self._switch('sw-m')
        self.fabric.ip('addr', 'add', f'{_CENTRAL}/24', 'dev', 'sw-m')
        self._start_central()

    def place(self, name: str, namespace: bool) -> programs.Place:
        """Return a place for programs, with a namespace of its own or not."""
        place = programs.Place(
            self.path / name,
            f'{self.tag}-{name}' if namespace else None,
            self._keeper,
        )
        if namespace:
            place.ip('link', 'set', 'lo', 'up')
            quiet(place, 'all', 'default')
        return place

    def _switch(self, name: str) -> None:
        if name not in self._switches:
            self._switches.add(name)
            self.fabric.ip('link', 'add', name, 'type', 'bridge')
            self.fabric.ip('link', 'set', 'dev', name, 'up')

    def connect(self, host: 'Host', nic: str, switch: str) -> None:
        """Connect a NIC of a host to a switch of the fabric."""
        self._switch(switch)
        port = f'{host.name}-{nic}'
        self.fabric.ip(
            'link', 'add', port, 'type', 'veth', 'peer', 'name', host.nic(nic)
        )
        self.fabric.ip('link', 'set', 'dev', port, 'master', switch, 'up')
        self.fabric.ip(
            'link',
            'set',
            'dev',
            host.nic(nic),
            'netns',
            host.place.namespace or str(os.getpid()),
        )
        quiet(host.place, host.nic(nic))
        host.place.ip('link', 'set', 'dev', host.nic(nic), 'up')
        for place, name in ((self.fabric, port), (host.place, host.nic(nic))):
            place.run('ethtool', '-K', name, 'tx', 'off')

    def _start_central(self) -> None:
        for name in ('nb', 'sb'):
            database = self.fabric.path / f'{name}.db'
            self.fabric.run(
                'ovsdb-tool',
                'create',
                str(database),
                str(_SCHEMAS / f'ovn/ovn-{name}.ovsschema'),
            )
            port = 6641 if name == 'nb' else 6642
            self.fabric.start(
                'ovsdb-server',
                str(database),
                f'--remote=p{self.central(name)}',
                f'--remote=ptcp:{port}:{_CENTRAL}',
                name=f'ovn{name}_db',
            )
        self.nbctl('init')
        self.sbctl('init')
        self.fabric.start(
            'ovn-northd',
            f'--ovnnb-db={self.central("nb")}',
            f'--ovnsb-db={self.central("sb")}',
        )

    def central(self, name: str) -> str:
        """Return the connection to the database ``nb`` or ``sb``."""
        return f'unix:{self.fabric.path}/ovn{name}_db.sock'

    def nbctl(self, *arguments: str) -> str:
        """Run ``ovn-nbctl``."""
        return self.fabric.run(
            'ovn-nbctl', f'--db={self.central("nb")}', *arguments
        )

    def sbctl(self, *arguments: str) -> str:
        """Run ``ovn-sbctl``."""
        return self.fabric.run(
            'ovn-sbctl', f'--db={self.central("sb")}', *arguments
        )

    def encap_of(self, port: str) -> str:
        """Return the encap IP that OVN uses for a port; empty for none."""
        return next(iter(self.encap_ips_of(port, 'encap')), '')

    def encap_ips_of(self, port: str, column: str) -> list[str]:
        """Return the encap IPs in a column of a port's Port_Binding."""
        rows = self.sbctl(
            '--bare',
            f'--columns={column}',
            'find',
            'Port_Binding',
            f'logical_port={port}',
        ).split()
        return [
            self.sbctl('get', 'Encap', row, 'ip').strip(' \n"') for row in rows
        ]

    def network(self, name: str) -> None:
        """Make a tenant network."""
        self.nbctl('ls-add', name)

    def provider_network(self, name: str, physnet: str, vlan: int) -> None:
        """Make a VLAN network of a physical network, as Neutron does."""
        self.network(name)
        self.localnet(name, physnet, f'provnet-{name}', vlan)

    def localnet(
        self, network: str, physnet: str, name: str, vlan: int
    ) -> None:
        """Make a segment of a network on a physical one, as Neutron does."""
        self.nbctl(
            *('lsp-add', network, name),
            *('--', 'lsp-set-type', name, 'localnet'),
            *('--', 'lsp-set-addresses', name, 'unknown'),
            *('--', 'lsp-set-options', name, f'network_name={physnet}'),
            *('--', 'set', 'Logical_Switch_Port', name, f'tag_request={vlan}'),
        )

    def port(self, network: str, port: str, mac: str, address: str) -> None:
        """Make a port of a network, as Neutron does."""
        self.nbctl(
            'lsp-add',
            network,
            port,
            '--',
            'lsp-set-addresses',
            port,
            f'{mac} {address}',
        )

    def add_host(
        self,
        name: str,
        uplinks: int,
        namespace: bool = True,
        hostname: str = '',
    ) -> 'Host':
        """Start a host.

        :param namespace: whether it is a namespace; else it is the test's.
        :param hostname: name by which Nova and Neutron know it; ``name`` by
            default.
        """
        host = Host(self, name, len(self.hosts) + 1, namespace, hostname)
        self.hosts.append(host)
        self.addCleanup(host.end)
        host.start(uplinks, _CENTRAL)
        return host


class Host:
    """A compute host with Open vSwitch and ovn-controller.

    :param number: last byte of its addresses.
    :param hostname: name by which Nova and Neutron know it, if not ``name``.
    """

    def __init__(
        self,
        lab: Lab,
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
        database = self.place.path / 'conf.db'
        self.place.run(
            'ovsdb-tool',
            'create',
            str(database),
            str(_SCHEMAS / 'openvswitch/vswitch.ovsschema'),
        )
        self.start_ovsdb()
        # ovs-vswitchd makes it, and leaves it behind.
        if not (pathlib.Path('/sys/class/net') / _DATAPATH).exists():
            self._bridges.append(_DATAPATH)
        self.start_vswitchd()
        self.vsctl('--no-wait', 'init')
        self._lab.connect(self, 'm', 'sw-m')
        self.place.ip(
            'addr',
            'add',
            f'{MANAGEMENT.format(host=self._number)}/24',
            'dev',
            self.nic('m'),
        )
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
        self.vsctl(
            'add-br',
            name,
            '--',
            'set',
            'bridge',
            name,
            'datapath_type=netdev',
            'fail_mode='
            + ('secure' if name == self.bridge('int') else 'standalone'),
            *more,
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
        return self.place.run(
            'ovs-appctl',
            '-t',
            str(self.place.path / 'ovs-vswitchd.ctl'),
            *arguments,
        )

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
        self.place.ip(
            'addr', 'replace', f'{self.encap_ips[rail]}/24', 'dev', bridge
        )
        self.place.ip('link', 'set', 'dev', bridge, 'up')

    # -- guests ------------------------------------------------------------

    def make_tap(self, tap: str) -> None:
        """Make a tap, as Nova does before a guest starts."""
        self._taps.add(tap)
        self.place.ip('tuntap', 'add', 'dev', tap, 'mode', 'tap')
        quiet(self.place, tap)
        self.place.ip('link', 'set', 'dev', tap, 'up')

    def make_guest(self, tap: str, mac: str, address: str) -> programs.Place:
        """Make a guest that is a namespace; return it.

        :param tap: name of the port, on the host's side.
        :param address: the guest's IP address.
        """
        guest = self._lab.place(tap, namespace=True)
        self._lab.addCleanup(guest.end, [])
        self.place.ip(
            'link',
            'add',
            tap,
            'type',
            'veth',
            'peer',
            'name',
            'eth0',
            'netns',
            guest.namespace or '',
        )
        guest.ip('link', 'set', 'eth0', 'address', mac)
        guest.ip('addr', 'add', f'{address}/24', 'dev', 'eth0')
        for place, name in ((self.place, tap), (guest, 'eth0')):
            quiet(place, name)
            place.ip('link', 'set', 'dev', name, 'up')
            place.run('ethtool', '-K', name, 'tx', 'off')
        return guest

    def plug(self, tap: str, server: str, port: str, mac: str) -> None:
        """Add a guest's port as os-vif does: the row is a new one."""
        self.vsctl(
            '--may-exist',
            'add-port',
            self.bridge('int'),
            tap,
            '--',
            'set',
            'Interface',
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
        self._lab.fabric.ip(
            'link',
            'set',
            'dev',
            f'{self.name}-n{rail}',
            'up' if up else 'down',
        )

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
        place.ip('link', 'del', name)


def quiet(place: programs.Place, *names: str) -> None:
    """Keep the kernel from sending anything of IPv6 over links."""
    for name in names:
        place.shell(
            'sh',
            '-c',
            f'echo 1 >/proc/sys/net/ipv6/conf/{name}/disable_ipv6 || true',
        )


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition is true.

    :raises AssertionError: it is not within :data:`PATIENCE_S`.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f'{what} did not come'
        time.sleep(0.02)
