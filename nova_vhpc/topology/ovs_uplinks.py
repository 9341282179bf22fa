# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which ports of Open vSwitch bridges are uplinks, and of what."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from nova_vhpc.topology import open_vswitch


@dataclasses.dataclass(frozen=True, slots=True)
class Nic:
    """A NIC or bond that connects a bridge to a physical network.

    :ivar name: name of the NIC; of the port, if it is a bond of Open vSwitch
        that counts as one uplink.
    :ivar bond: bond of Open vSwitch that the NIC is a member of; None if it
        is in none, or the whole bond counts as one uplink.
    :ivar members: interfaces of Open vSwitch that it consists of; empty if
        Open vSwitch does not have it.
    :ivar uses_all: whether all members pass packets at the same time.
    """

    name: str
    bond: str | None = None
    members: tuple[open_vswitch.Interface, ...] = ()
    uses_all: bool = True


class OvsUplinks:
    """Finds the uplinks of Open vSwitch bridges.

    :param ovs: the database.
    :param neutron: the bridges that Neutron's agent uses.
    :param is_nic: returns whether an interface of the kernel is a NIC, or a
        bond or VLAN on one.
    :param linux_ports: returns the ports of a Linux bridge.
    :param joined: returns the other bridge that a port of a bridge is in, as
        may be the other end of a veth pair; None if there is none.
    """

    def __init__(
        self,
        ovs: open_vswitch.OpenVswitch,
        neutron: open_vswitch.NeutronBridges,
        is_nic: Callable[[str], bool],
        linux_ports: Callable[[str], Iterable[str]] = lambda bridge: (),
        joined: Callable[[str, str], str | None] = lambda port, bridge: None,
    ) -> None:
        self._ovs = ovs
        self._mappings = neutron.mappings
        self._integration = neutron.integration
        self._is_nic = is_nic
        self._linux_ports = linux_ports
        self._joined = joined

    def nics(self, bridge: str) -> tuple[Nic, ...]:
        """Return the uplinks among the ports of a bridge, sorted by name."""
        if bridge not in self._ovs.bridge:
            return ()
        return tuple(
            sorted(
                (
                    nic
                    for port in self._ovs.bridge[bridge].ports
                    for nic in self._nics_of_port(port)
                ),
                key=lambda nic: nic.name,
            )
        )

    def nic(self, name: str) -> Nic | None:
        """Return the port or interface of a name as an uplink, or None.

        The operator named it, so it counts whatever its type is.
        """
        for bridge in self._ovs.bridges:
            for port in bridge.ports:
                if port.name == name:
                    return _one_uplink(port)
                for interface in port.interfaces:
                    if interface.name == name:
                        return Nic(name, port.name, (interface,))
        return None

    def connected(self, bridge: str) -> tuple[str, ...]:
        """Return a bridge and those that its packets reach.

        Bridges are connected by patch ports and veth pairs. Two physical
        networks may be connected, too: they are two names of one wire. The
        way ends at the integration bridge, which keeps networks apart.
        """
        reached = [bridge]
        for name in reached:
            for other in self._neighbours(name):
                if other is not None and other not in (
                    self._integration,
                    *reached,
                ):
                    reached.append(other)
        return tuple(reached)

    def _neighbours(self, bridge: str) -> Iterator[str | None]:
        """Yield the bridges that the ports of a bridge lead to."""
        for interface in self._interfaces(bridge):
            if interface.type == 'patch':
                yield self._ovs.bridge_of.get(
                    interface.options.get('peer', '')
                )
            elif interface.may_join and not self._is_nic(interface.name):
                yield self._joined(interface.name, bridge)
        if bridge not in self._ovs.bridge:
            for port in self._linux_ports(bridge):
                yield self._joined(port, bridge)

    def physnets(self, bridge: str) -> tuple[str, ...]:
        """Return the physical networks whose packets reach a bridge."""
        return tuple(
            sorted(
                physnet
                for physnet, mapped in self._mappings.items()
                if bridge in self.connected(mapped)
            )
        )

    def _interfaces(self, bridge: str) -> tuple[open_vswitch.Interface, ...]:
        found = self._ovs.bridge.get(bridge)
        return found.interfaces if found is not None else ()

    def _nics_of_port(self, port: open_vswitch.Port) -> list[Nic]:
        members = tuple(
            interface
            for interface in port.interfaces
            if interface.is_userspace_nic
            or (interface.is_kernel_port and self._is_nic(interface.name))
        )
        if not members:
            return []
        if port.is_bond and port.members_are_stable:
            return [Nic(m.name, port.name, (m,)) for m in members]
        return [_one_uplink(dataclasses.replace(port, interfaces=members))]


def _one_uplink(port: open_vswitch.Port) -> Nic:
    return Nic(
        port.name,
        None,
        port.interfaces,
        port.bond_mode in ('balance-slb', 'balance-tcp'),
    )
