# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which bridges and NICs this host has now, whatever the rules say."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence

from nova_vhpc.topology import links, open_vswitch, ovs_uplinks
from nova_vhpc.topology.ovs_uplinks import Nic


class Survey:
    """The bridges of this host, their uplinks, and where tunnels end.

    :param host_links: the interfaces that the kernel has.
    :param nic_patterns: names, with the wildcards of fnmatch, of virtual
        ports that count as uplinks.
    :param ovs: the database of Open vSwitch; None if it is unknown.
    :param ml2: the bridges of Neutron's Open vSwitch agent, which count
        unless ovn-controller is configured.
    :param addresses: returns where each IP address is.
    :ivar linux: names of the Linux bridges.
    :ivar nics: uplinks that guests can reach, by bridge. A NIC in no bridge
        that has an encap IP is there by its own name.
    :ivar problems: what is wrong, one sentence each.
    :ivar notes: what guests cannot use, and why; may be intended.
    """

    def __init__(
        self,
        host_links: links.Links,
        nic_patterns: Sequence[str],
        ovs: open_vswitch.OpenVswitch | None,
        ml2: open_vswitch.NeutronBridges | None,
        addresses: Callable[[], Mapping[str, links.Address]],
    ) -> None:
        self._links = host_links
        self._nic_patterns = nic_patterns
        self._ovs = ovs or open_vswitch.OpenVswitch()
        self._neutron = (
            self._ovs.neutron_bridges
            if ml2 is None or self._ovs.has_ovn
            else ml2
        )
        self._uplinks = ovs_uplinks.OvsUplinks(
            self._ovs,
            self._neutron,
            self.is_uplink,
            host_links.bridge_ports,
            self._joined,
        )
        self._encap_of_bridge: dict[str, str] = {}
        self._encap_of_nic: dict[str, str] = {}
        self._rails: dict[str, str | None] = {}
        self._without_bridge: list[str] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.linux = host_links.bridges()
        self.nics = {bridge: self.nics_of(bridge) for bridge in self.linux}
        if ovs is not None:
            self._add_physnets()
            self._add_encap_ips(addresses)
        self._note_bonds()

    def is_ovs(self, bridge: str) -> bool:
        """Return whether Open vSwitch has a bridge of this name."""
        return bridge in self._ovs.bridge

    def is_uplink(self, nic: str) -> bool:
        """Return whether an interface of the kernel counts as an uplink."""
        if self._links.is_no_wire(nic):
            return False
        if any(fnmatch.fnmatchcase(nic, p) for p in self._nic_patterns):
            return True
        return self._links.is_nic(nic)

    def nics_of(self, bridge: str) -> tuple[Nic, ...]:
        """Return the uplinks of a bridge, whether guests reach it or not."""
        if bridge in self.linux:
            return tuple(
                Nic(port)
                for port in self._links.bridge_ports(bridge)
                if self.is_uplink(port)
            )
        return self._uplinks.nics(bridge)

    def nic(self, name: str) -> Nic:
        """Return the uplink that the operator gave a name or altname of."""
        if not self._links.exists(name):
            name = self._links.main_name(name) or name
        return self._uplinks.nic(name) or Nic(name)

    def link(self, nic: Nic, default_mbps: int) -> links.Link:
        """Return the state of an uplink's link.

        What the kernel says of an interface counts more than ovsdb, which may
        be away. A bond is up if a member is.

        :param default_mbps: speed if the driver does not report it, in
            Mbit/s.
        """
        if not nic.members:
            found = [self._links.link(nic.name) or links.Link(False, None)]
        else:
            found = [
                self._links.link(member.name)
                or links.Link(member.link_up, member.mbps)
                for member in nic.members
            ]
        speeds = [link.mbps or default_mbps for link in found if link.up]
        if not speeds:
            return links.Link(False, 0)
        return links.Link(True, sum(speeds) if nic.uses_all else min(speeds))

    def physnets(self, bridge: str) -> tuple[str, ...]:
        """Return the physical networks whose packets reach a bridge."""
        return self._uplinks.physnets(bridge)

    def encap_ip(self, bridge: str, nic: str) -> str | None:
        """Return the IP address of the tunnels that end at an uplink."""
        return self._encap_of_nic.get(nic, self._encap_of_bridge.get(bridge))

    def rail(self, encap_ip: str | None) -> str | None:
        """Return the subnet that an encap IP is in, None if unknown."""
        return None if encap_ip is None else self._rails.get(encap_ip)

    def behind(self, bridge: str) -> tuple[str, ...]:
        """Return the bridges with uplinks that a bridge reaches."""
        return tuple(
            name
            for name in self._uplinks.connected(bridge)[1:]
            if self.nics_of(name)
        )

    def bridge_names(self) -> str:
        """Return the names of all bridges, for a message."""
        names = sorted(self.linux | self._ovs.bridge.keys())
        return ', '.join(names) or 'none'

    def wire(self, nic: Nic) -> frozenset[str]:
        """Return the ports of NICs that an uplink's frames leave by."""
        names = [member.name for member in nic.members] or [nic.name]
        return frozenset().union(*map(self._links.wire, names))

    def _joined(self, port: str, bridge: str) -> str | None:
        for end in (port, self._links.veth_peer(port)):
            if end is not None:
                for found in (
                    self._ovs.bridge_of.get(end),
                    self._links.bridge_of(end),
                ):
                    if found not in (None, bridge):
                        return found
        return None

    def _add_physnets(self) -> None:
        for physnet, bridge in sorted(self._neutron.mappings.items()):
            if bridge in self.linux:
                continue
            if not self.is_ovs(bridge):
                self.problems.append(
                    f'physical network {physnet} is mapped to bridge '
                    f'{bridge}, which does not exist on this host; bridges '
                    f'that do: {self.bridge_names()}'
                )
            elif not self._add_connected(bridge):
                self.notes.append(
                    f'physical network {physnet} is mapped to bridge '
                    f'{bridge}, which has no uplink; attach a physical NIC, '
                    'or name virtual ones in [vhpc_topology] nic_patterns'
                )

    def _note_bonds(self) -> None:
        """Say why the members of a bond are no uplinks of their own."""
        found = [(b, nic.name) for b in self.nics for nic in self.nics[b]]
        for bridge, nic in sorted(found):
            port = self._ovs.port.get(nic)
            if port is not None and port.is_bond and port.unstable_because:
                self.notes.append(
                    f'bond {nic} (bridge {bridge}) is one uplink, because '
                    f'{port.unstable_because}. For an uplink of each member, '
                    'set bond_mode=balance-slb, lacp=off and '
                    'other_config:bond-rebalance-interval=0 of the port'
                )
            for bond in filter(self._links.is_bond, self._links.stack(nic)):
                self.notes.append(
                    f'bond {bond} of the kernel (bridge {bridge}) is one '
                    'uplink, because kernel and switch choose the member of '
                    'each packet. For an uplink of each member, make it a '
                    'bond of Open vSwitch with bond_mode=balance-slb'
                )

    def _add_connected(self, bridge: str) -> list[str]:
        """Add the uplinks that an Open vSwitch bridge reaches.

        :returns: the bridges that have them.
        """
        with_nics = [
            name
            for name in self._uplinks.connected(bridge)
            if self.nics_of(name)
        ]
        for name in with_nics:
            self.nics[name] = self.nics_of(name)
        return with_nics

    def _add_encap_ips(
        self, addresses: Callable[[], Mapping[str, links.Address]]
    ) -> None:
        encap_ips = self._ovs.encap_ips
        found = {
            open_vswitch.address_key(text): address
            for text, address in (addresses() if encap_ips else {}).items()
        }
        for encap_ip in encap_ips:
            address = found.get(open_vswitch.address_key(encap_ip))
            if address is None:
                self.problems.append(
                    f'no network interface of this host has the IP address '
                    f'{encap_ip} of ovn-encap-ip'
                )
                continue
            device = address.device
            self._rails[encap_ip] = address.subnet
            taken_by = self._place_encap_ip(encap_ip, device)
            if taken_by is None and self._links.is_routed(device):
                self.notes.append(
                    f'encap IP {encap_ip} is on {device}, which is no NIC: '
                    'this host routes its tunnels over any of its NICs, so '
                    'that no claim steers them. For claims, give each uplink '
                    'an encap IP of its own'
                )
            elif taken_by is None:
                self.notes.append(
                    f'encap IP {encap_ip} is on {device}, which leads to no '
                    'uplink; if it is a virtual NIC, name it in '
                    '[vhpc_topology] nic_patterns'
                )
            elif taken_by != encap_ip:
                self.notes.append(
                    f'encap IPs {taken_by} and {encap_ip} are on the same '
                    f'uplink, so that {encap_ip} is not used for claims'
                )

    def _place_encap_ip(self, encap_ip: str, device: str) -> str | None:
        """Find the uplinks that an encap IP lives on.

        :param device: interface that has the IP address: a NIC, a VLAN or
            bond on one, a Linux bridge or a port of Open vSwitch.
        :returns: the encap IP of these uplinks, which is another one if that
            was there before; None if there is no uplink.
        """
        linux_ports = {nic.name for b in self.linux for nic in self.nics[b]}
        stack = self._links.stack(device)
        for name in stack:
            if name in self._ovs.bridge_of:
                bridges = self._add_connected(self._ovs.bridge_of[name])
                taken = [
                    self._encap_of_bridge.setdefault(bridge, encap_ip)
                    for bridge in bridges
                ]
                return taken[0] if taken else None
            if name in self.linux and self.nics[name]:
                return self._encap_of_bridge.setdefault(name, encap_ip)
            if name in linux_ports:
                return self._encap_of_nic.setdefault(name, encap_ip)
        if not self.is_uplink(device):
            return None
        for other in self._without_bridge:
            # Two VLANs of one NIC are one uplink.
            if not set(stack).isdisjoint(self._links.stack(other)):
                return self._encap_of_nic[other]
        self._without_bridge.append(device)
        self.nics[device] = (Nic(device),)
        return self._encap_of_nic.setdefault(device, encap_ip)
