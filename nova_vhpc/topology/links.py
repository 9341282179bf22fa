# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""This host's network interfaces, as sysfs shows them.

Reading sysfs needs no privilege and no netlink socket, and a container or a
test can use another root directory. Only what sysfs lacks, alternative names
and addresses, is looked up by system calls.
"""

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_DEAD = ('down', 'lowerlayerdown', 'notpresent', 'dormant')
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
_IFF_NOARP = 0x80

_REPRESENTOR = re.compile(r'(c\d+)?pf\d+((vfr?|sf)\d+)?')
"""``phys_port_name`` of what a NIC passes to guests; its own is ``p0``."""

_DEPTH = 3
"""The deepest sensible stack is a VLAN on a bond on a NIC."""


class Link(NamedTuple):
    """State of a link.

    :ivar mbps: speed in Mbit/s; None if the driver does not report it.
    """

    up: bool
    mbps: int | None


class Links:
    """Reads the network interfaces of this host. Keeps no state.

    :param sysfs: directory where sysfs is mounted.
    """

    def __init__(self, sysfs: Path) -> None:
        self._net = sysfs / 'class' / 'net'
        self._pci = sysfs / 'bus' / 'pci' / 'devices'

    def bridges(self) -> frozenset[str]:
        """Return the names of all Linux bridges."""
        return frozenset(
            path.name
            for path in _entries(self._net)
            if (path / 'bridge').is_dir()
        )

    def bridge_ports(self, bridge: str) -> list[str]:
        """Return the names of a Linux bridge's ports, sorted."""
        return sorted(
            path.name for path in _entries(self._net / bridge / 'brif')
        )

    def exists(self, name: str) -> bool:
        """Return whether the kernel has an interface of this name."""
        if '/' in name or name in ('', '.', '..'):
            return False
        # Unlike Path.exists, this does not raise for a name that is too long.
        return os.path.exists(self._net / name)

    def link(self, name: str) -> Link | None:
        """Return the state of an interface's link; None if there is none."""
        if not self.exists(name):
            return None
        # Reading the carrier of a NIC that is switched off fails.
        up = (
            self._read(name, 'carrier') == '1'
            and self._read(name, 'operstate') not in _DEAD
        )
        return Link(up, self._mbps(name))

    def is_enabled(self, name: str) -> bool:
        """Return whether an interface exists and is switched on."""
        return self.exists(name) and bool(self._flags(name, _IFF_UP) & _IFF_UP)

    def is_no_wire(self, name: str) -> bool:
        """Return whether no frame leaves by an interface, whatever it has.

        The loopback interface, and a VRF, which is a table of routes.
        """
        return (
            name == 'lo'
            or bool(self._flags(name) & _IFF_LOOPBACK)
            or self._is_kind(name, 'vrf')
        )

    def is_routed(self, name: str) -> bool:
        """Return whether an address of an interface is for routes only.

        Its packets leave by any NIC that the routes choose.
        """
        return self.is_no_wire(name) or (
            bool(self._flags(name) & _IFF_NOARP)
            and not self._is_device(name)
            and not self._lower(name)
        )

    def wire(self, name: str) -> frozenset[str]:
        """Return the ports of NICs that the frames of an interface leave by.

        Functions of one port have the same ``phys_port_id``; a virtual
        function leaves by its physical one.
        """
        stack = self.stack(name)
        return frozenset(
            self._read(nic, 'phys_port_id') or self._physical_function(nic)
            for nic in stack
            if self._is_device(nic)
        ) or frozenset(stack[-1:])

    def wire_of_function(self, pci: str) -> frozenset[str]:
        """Return the port that the frames of a PCI function leave by.

        :param pci: address of the function.
        :returns: empty if it is unknown.
        """
        of_port = [*_entries(self._pci / pci / 'physfn/net')]
        nics = of_port or [*_entries(self._pci / pci / 'net')]
        return frozenset().union(*(self.wire(path.name) for path in nics))

    def _is_device(self, name: str) -> bool:
        return os.path.exists(self._net / name / 'device')

    def _physical_function(self, nic: str) -> str:
        own = self._net / nic / 'device/physfn/net'
        return next((path.name for path in _entries(own)), nic)

    def veth_peer(self, name: str) -> str | None:
        """Return the other end of a veth pair; None if there is none here.

        An end in another network namespace does not count.
        """
        numbers = self._numbers(name)
        if numbers is None or numbers[0] == numbers[1] or self._lower(name):
            return None
        return next(
            (
                path.name
                for path in _entries(self._net)
                if self._numbers(path.name) == numbers[::-1]
            ),
            None,
        )

    def _numbers(self, name: str) -> tuple[str, str] | None:
        """Return the number of an interface, and of what it is linked to."""
        own, other = self._read(name, 'ifindex'), self._read(name, 'iflink')
        return (own, other) if own and other else None

    def _flags(self, name: str, default: int = 0) -> int:
        """Return the flags of an interface.

        :param default: what counts if the kernel shows none.
        """
        text = self._read(name, 'flags')
        try:
            return default if text is None else int(text, 16)
        except ValueError:
            return 0

    def _is_kind(self, name: str, kind: str) -> bool:
        return f'DEVTYPE={kind}' in (self._read(name, 'uevent') or '').split()

    def is_exported(self, name: str) -> bool:
        """Return whether virtual functions of a NIC are switched on."""
        functions = self._read(name, 'device/sriov_numvfs') or '0'
        return functions.isdecimal() and functions.strip('0') != ''

    def is_nic(self, name: str, depth: int = 0) -> bool:
        """Return whether an interface is a NIC, or a bond or VLAN on one.

        A representor is none: it is the host's end of a virtual function
        that a guest has.
        """
        if self._is_device(name):
            port = self._read(name, 'phys_port_name') or ''
            return _REPRESENTOR.fullmatch(port) is None
        if self._is_kind(name, 'vxlan') or self._is_kind(name, 'vrf'):
            # A VXLAN device is a tenant's tunnel. It passes through a NIC,
            # but that NIC is the uplink of other bridges. A VRF is no device
            # that frames pass through.
            return False
        return depth < _DEPTH and any(
            self.is_nic(lower, depth + 1) for lower in self._lower(name)
        )

    def is_bond(self, name: str) -> bool:
        """Return whether an interface is a bond of the kernel."""
        return (self._net / name / 'bonding').is_dir()

    def bond_of(self, name: str) -> str | None:
        """Return the kernel's bond that an interface is a member of."""
        return self._master(name, 'bonding')

    def bridge_of(self, name: str) -> str | None:
        """Return the Linux bridge that an interface is a port of."""
        return self._master(name, 'bridge')

    def _master(self, name: str, kind: str) -> str | None:
        """Return what an interface is in, if it is of that kind.

        :param kind: directory in sysfs that only this kind has.
        """
        master = self._net / name / 'master'
        if not self.exists(name) or not (master / kind).is_dir():
            return None
        return master.resolve().name

    def stack(self, name: str) -> list[str]:
        """Return an interface and those that it is on, from the top down."""
        stack = [name]
        level = [name]
        for _ in range(_DEPTH):
            level = [n for above in level for n in self._lower(above)]
            stack += [n for n in level if n not in stack]
        return stack

    def main_name(self, alternative: str) -> str | None:
        """Return the interface that has an alternative name, or None.

        The system call knows alternative names of up to 15 characters. It
        answers for the agent's own network namespace, so the interface counts
        only if sysfs has it by the same number.
        """
        with contextlib.suppress(OSError, ValueError):
            index = socket.if_nametoindex(alternative)
            name = socket.if_indextoname(index)
            if self._read(name, 'ifindex') == str(index):
                return name
        return None

    def _lower(self, name: str) -> list[str]:
        return sorted(
            entry.name.removeprefix('lower_')
            for entry in _entries(self._net / name)
            if entry.name.startswith('lower_')
        )

    def _mbps(self, name: str) -> int | None:
        try:
            mbps = int(self._read(name, 'speed') or '')
        except ValueError:
            return None
        # Drivers report an unknown speed as -1, which read as an unsigned
        # number is 65535 or 2**32-1.
        return mbps if mbps > 0 and mbps not in (65535, 4294967295) else None

    def _read(self, nic: str, name: str) -> str | None:
        try:
            return (self._net / nic / name).read_text('ascii').strip()
        except (OSError, UnicodeDecodeError):
            return None


class Address(NamedTuple):
    """Where an IP address of this host is.

    :ivar device: interface that has it.
    :ivar subnet: subnet of the address, such as ``10.1.0.0/24``; None if the
        interface has it without others (``/32``), or the subnet is unknown.
    """

    device: str
    subnet: str | None = None


def read_addresses() -> dict[str, Address]:
    """Return where each of this host's IP addresses is."""
    return {
        (text := address.address.partition('%')[0]): Address(
            name, subnet_of(text, address.netmask)
        )
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    }


def subnet_of(address: str, netmask: str | None) -> str | None:
    """Return the subnet of an IP address, None if nothing else is in it.

    :param netmask: such as ``255.255.255.0`` or ``ffff:ffff::``; None if
        unknown.
    """
    try:
        mask = ipaddress.ip_address(netmask or '')
        # ipaddress takes no netmask of IPv6, only its length.
        length = int(mask).bit_count()
        subnet = ipaddress.ip_network(f'{address}/{length}', strict=False)
    except ValueError:
        return None
    return None if subnet.num_addresses == 1 else str(subnet)


def _entries(path: Path) -> Iterator[Path]:
    try:
        yield from path.iterdir()
    except OSError:
        return
