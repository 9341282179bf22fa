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
import secrets
import shutil
import tempfile

import fixtures

from nova_vhpc_lab.ovn import programs
from nova_vhpc_lab.ovn.host import (
    MANAGEMENT,
    RAIL,
    Host,
    quiet,
    wait_for,
)
from nova_vhpc_lab.stack import guard

__all__ = ['MANAGEMENT', 'RAIL', 'Host', 'Lab', 'quiet', 'wait_for']

_CENTRAL = '198.18.255.254'


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
        self.fabric.ip(f'addr add {_CENTRAL}/24 dev sw-m')
        self._start_central()

    def place(self, name: str, namespace: bool) -> programs.Place:
        """Return a place for programs, with a namespace of its own or not."""
        place = programs.Place(
            self.path / name,
            f'{self.tag}-{name}' if namespace else None,
            self._keeper,
        )
        if namespace:
            place.ip('link set lo up')
            quiet(place, 'all', 'default')
        return place

    def _switch(self, name: str) -> None:
        if name not in self._switches:
            self._switches.add(name)
            self.fabric.ip(f'link add {name} type bridge')
            self.fabric.ip(f'link set dev {name} up')

    def connect(self, to: Host, nic: str, switch: str) -> None:
        """Connect a NIC of a host to a switch of the fabric."""
        self._switch(switch)
        port, end = f'{to.name}-{nic}', to.nic(nic)
        space = to.place.namespace or os.getpid()
        self.fabric.ip(f'link add {port} type veth peer name {end}')
        self.fabric.ip(f'link set dev {port} master {switch} up')
        self.fabric.ip(f'link set dev {end} netns {space}')
        quiet(to.place, end)
        to.place.ip(f'link set dev {end} up')
        for place, name in ((self.fabric, port), (to.place, end)):
            place.run('ethtool', '-K', name, 'tx', 'off')

    def _start_central(self) -> None:
        for name, port in (('nb', 6641), ('sb', 6642)):
            database = str(self.fabric.path / f'{name}.db')
            schema = programs.SCHEMAS / f'ovn/ovn-{name}.ovsschema'
            self.fabric.run('ovsdb-tool', 'create', database, str(schema))
            self.fabric.start(
                'ovsdb-server',
                database,
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
        database = f'--db={self.central("nb")}'
        return self.fabric.run('ovn-nbctl', database, *arguments)

    def sbctl(self, *arguments: str) -> str:
        """Run ``ovn-sbctl``."""
        database = f'--db={self.central("sb")}'
        return self.fabric.run('ovn-sbctl', database, *arguments)

    def encap_of(self, port: str) -> str:
        """Return the encap IP that OVN uses for a port; empty for none."""
        return next(iter(self.encap_ips_of(port, 'encap')), '')

    def encap_ips_of(self, port: str, column: str) -> list[str]:
        """Return the encap IPs in a column of a port's Port_Binding."""
        rows = self.sbctl(
            *f'--bare --columns={column} find Port_Binding'.split(),
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
            *f'lsp-add {network} {name}'.split(),
            *f'-- lsp-set-type {name} localnet'.split(),
            *f'-- lsp-set-addresses {name} unknown'.split(),
            *f'-- lsp-set-options {name} network_name={physnet}'.split(),
            *f'-- set Logical_Switch_Port {name} tag_request={vlan}'.split(),
        )

    def port(self, network: str, port: str, mac: str, address: str) -> None:
        """Make a port of a network, as Neutron does."""
        self.nbctl(
            *f'lsp-add {network} {port} -- lsp-set-addresses {port}'.split(),
            f'{mac} {address}',
        )

    def add_host(
        self,
        name: str,
        uplinks: int,
        namespace: bool = True,
        hostname: str = '',
    ) -> Host:
        """Start a host.

        :param namespace: whether it is a namespace; else it is the test's.
        :param hostname: name by which Nova and Neutron know it; ``name`` by
            default.
        """
        made = Host(self, name, len(self.hosts) + 1, namespace, hostname)
        self.hosts.append(made)
        self.addCleanup(made.end)
        made.start(uplinks, _CENTRAL)
        return made
