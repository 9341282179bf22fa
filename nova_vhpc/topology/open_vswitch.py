# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What this host's Open vSwitch is, as plain values.

``nova_vhpc.agent.ovsdb`` reads them from ovsdb. Names of columns and keys are
those of ovs-vswitchd.conf.db(5) and ovn-controller(8).
"""

import dataclasses
import functools
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

INTEGRATION_BRIDGE = 'br-int'

_OVN_MAPPINGS = 'ovn-bridge-mappings'
_NIC_TYPES = ('', 'system')
_USERSPACE_NIC_TYPES = ('dpdk', 'afxdp', 'afxdp-nonpmd')


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """A row of the table ``Interface``.

    :ivar name: name; of the network interface, if the kernel has one.
    :ivar uuid: UUID of the row.
    :ivar type: type; empty for a network interface of the kernel.
    :ivar external_ids: keys that others keep at the row. Nova and os-vif:
        ``iface-id`` (port), ``attached-mac``, ``vm-uuid`` (server).
    :ivar options: options of its type, such as ``peer`` of a patch port.
    :ivar link_up: whether the link has a carrier and is not switched off.
    :ivar mbps: link speed in Mbit/s; None if the driver does not report it.
    :ivar link_resets: how often Open vSwitch saw the link's carrier change.
    :ivar ofport: number of the port in OpenFlow; None before it has one.
    """

    name: str
    uuid: str = ''
    type: str = ''
    external_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    link_up: bool = False
    mbps: int | None = None
    link_resets: int = 0
    ofport: int | None = None

    @property
    def is_kernel_port(self) -> bool:
        """Whether it is a kernel's interface that is no port of a guest.

        It may be a NIC, but also one end of a veth pair.
        """
        return self.type in _NIC_TYPES and 'iface-id' not in self.external_ids

    @property
    def may_join(self) -> bool:
        """Whether it may be a port of another bridge, or lead to one."""
        return self.is_kernel_port or (
            self.type == 'internal' and 'iface-id' not in self.external_ids
        )

    @property
    def is_userspace_nic(self) -> bool:
        """Whether it is a NIC that Open vSwitch itself drives.

        Of one bound to DPDK, the kernel has no interface. Representors of
        virtual functions are ports of guests.
        """
        return (
            self.type in _USERSPACE_NIC_TYPES
            and 'iface-id' not in self.external_ids
            and 'representor' not in self.options.get('dpdk-devargs', '')
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """A row of the table ``Port``; a bond, if it has several interfaces.

    :ivar bond_mode: mode of the bond; empty for the default.
    :ivar lacp: ``active``, ``passive`` or ``off``; empty for the default.
    :ivar tag: VLAN of an access port, native VLAN of others; None for none.
    :ivar vlan_mode: mode of VLANs; empty for the default.
    """

    name: str
    interfaces: tuple[Interface, ...]
    bond_mode: str = ''
    lacp: str = ''
    other_config: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tag: int | None = None
    vlan_mode: str = ''

    @property
    def is_bond(self) -> bool:
        """Whether the port is a bond."""
        return len(self.interfaces) > 1

    @property
    def members_are_stable(self) -> bool:
        """Whether a guest's packets stay on one member of the bond."""
        return not self.unstable_because

    @property
    def unstable_because(self) -> str:
        """Why a guest's packets do not stay on one member; empty if they do.

        They do if Open vSwitch chooses the member by the source MAC, and
        does not move guests between members to balance their load. By default
        it does, every ten seconds. With LACP, the switch chooses the member of
        packets that come in.
        """
        mode = self.bond_mode or 'active-backup'
        if mode != 'balance-slb':
            return f'its mode is {mode}, not balance-slb'
        if self.lacp not in ('', 'off'):
            return (
                f'LACP is {self.lacp}, so that the switch chooses the member '
                'of packets that come in'
            )
        if self.other_config.get('bond-rebalance-interval') != '0':
            return (
                'Open vSwitch moves guests between members to balance their '
                'load'
            )
        return ''

    @property
    def hash_basis(self) -> int:
        """What ``bond-hash-basis`` of the bond is, as Open vSwitch reads it.

        It takes anything that is no number, or negative, for 0.
        """
        try:
            return max(0, int(self.other_config.get('bond-hash-basis', '0')))
        except ValueError:
            return 0

    def vlan_on_wire(self, vlan: int) -> int:
        """Return the VLAN that frames leave the port with; 0 for untagged.

        :param vlan: VLAN that they have inside the bridge; 0 for none.
        """
        mode = self.vlan_mode or ('trunk' if self.tag is None else 'access')
        if mode == 'access' or (
            mode == 'native-untagged' and vlan == (self.tag or 0)
        ):
            return 0
        return (self.tag or 0) if mode == 'dot1q-tunnel' else vlan


@dataclasses.dataclass(frozen=True, slots=True)
class Bridge:
    """A row of the table ``Bridge``.

    :ivar protocols: versions of OpenFlow that it speaks, such as
        ``OpenFlow13``; empty for those that Open vSwitch has by default.
    """

    name: str
    ports: tuple[Port, ...] = ()
    protocols: tuple[str, ...] = ()

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """Return the interfaces of all ports."""
        return tuple(i for port in self.ports for i in port.interfaces)


class NeutronBridges(NamedTuple):
    """What Neutron's agent, OVN or Open vSwitch, uses bridges for.

    :ivar mappings: bridge of each physical network.
    :ivar integration: bridge that all guests are on.
    """

    mappings: Mapping[str, str]
    integration: str = INTEGRATION_BRIDGE


@dataclasses.dataclass(frozen=True)
class OpenVswitch:
    """The database of this host's Open vSwitch.

    :ivar external_ids: keys of the table ``Open_vSwitch``, among them all
        options of ovn-controller.
    """

    external_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bridges: tuple[Bridge, ...] = ()

    @functools.cached_property
    def interfaces(self) -> tuple[Interface, ...]:
        """The interfaces of all bridges."""
        return tuple(i for bridge in self.bridges for i in bridge.interfaces)

    @functools.cached_property
    def bridge_of(self) -> Mapping[str, str]:
        """Name of the bridge that an interface or bond is in, by its name."""
        return {
            name: bridge.name
            for bridge in self.bridges
            for port in bridge.ports
            for name in (port.name, *(i.name for i in port.interfaces))
        }

    @functools.cached_property
    def port(self) -> Mapping[str, Port]:
        """The ports of all bridges, by name."""
        return {p.name: p for bridge in self.bridges for p in bridge.ports}

    @functools.cached_property
    def port_of(self) -> Mapping[str, Port]:
        """The port that an interface is in, by the interface's name."""
        return {
            interface.name: port
            for bridge in self.bridges
            for port in bridge.ports
            for interface in port.interfaces
        }

    @functools.cached_property
    def bridge(self) -> Mapping[str, Bridge]:
        """The bridges, by name."""
        return {bridge.name: bridge for bridge in self.bridges}

    @property
    def has_ovn(self) -> bool:
        """Whether ovn-controller is configured on this host."""
        return bool(self._ovn('ovn-remote') or self._ovn(_OVN_MAPPINGS))

    @property
    def neutron_bridges(self) -> 'NeutronBridges':
        """The bridges that OVN uses on this host."""
        return NeutronBridges(
            parse_bridge_mappings(self._ovn(_OVN_MAPPINGS)),
            self._ovn('ovn-bridge') or INTEGRATION_BRIDGE,
        )

    @property
    def encap_ips(self) -> tuple[str, ...]:
        """IP addresses of this host's tunnels, in the operator's order.

        As the operator wrote them: OVN compares texts, and takes no other
        text for ``encap-ip``.
        """
        return tuple(dict.fromkeys(_words(self._ovn('ovn-encap-ip'))))

    def encap_ip(self, address: str | None) -> str | None:
        """Return an encap IP as the operator wrote it; None if it is none.

        :param address: the address, in any spelling.
        """
        wanted = address_key(address or '')
        return next(
            (one for one in self.encap_ips if address_key(one) == wanted), None
        )

    @property
    def encap_ip_default(self) -> str | None:
        """The encap IP of guests that have none of their own.

        None if there are several and the operator chose none of them.
        """
        encap_ips = self.encap_ips
        default = self.encap_ip(self._ovn('ovn-encap-ip-default').strip())
        if default is not None:
            return default
        return encap_ips[0] if len(encap_ips) == 1 else None

    def _ovn(self, option: str) -> str:
        """Return an option of ovn-controller, as it reads them itself.

        An option whose name ends with the chassis' name comes first.
        """
        chassis = self.external_ids.get('system-id', '')
        return self.external_ids.get(
            f'{option}-{chassis}', self.external_ids.get(option, '')
        )


def address_key(text: str) -> str:
    """Return the same text for all spellings of an IP address.

    :param text: the address, with its zone or without; any other text is
        returned as it is.
    """
    try:
        return str(ipaddress.ip_address(text.partition('%')[0]))
    except ValueError:
        return text


def parse_bridge_mappings(text: str) -> dict[str, str]:
    """Return the bridge of each physical network: ``PHYSNET:BRIDGE,...``.

    Entries that are none are left out, as OVN and Neutron do.
    """
    mappings = {}
    for word in _words(text):
        physnet, _, bridge = (part.strip() for part in word.partition(':'))
        if physnet and bridge:
            mappings[physnet] = bridge
    return mappings


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(',') if word.strip()]
