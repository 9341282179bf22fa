# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Decides what steers the packets of a claiming server, or why nothing does.

The only place that does: log, status, health, metrics and upgrade check show
its answer.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.uplinks import claims, port_networks
from nova_vhpc.agent.uplinks.binders import base, guest_ports
from nova_vhpc.topology import links, open_vswitch, port_network

PORTS_INSTEAD = (
    'Give each physical network one uplink, and the server ports with minimum '
    'bandwidth there (nova-vhpc-flavor set --ports); or use a flavor that '
    'claims no uplinks'
)


class UnknownNetworkError(UnsupportedError):
    """The network of a NIC is unknown; it may be known soon."""


class Carrier(NamedTuple):
    """What makes the packets of a server take the claimed uplinks.

    :ivar name: name of the binder; or ``neutron``, if there is no other way
        out of the network, ``hardware`` for SR-IOV ports, ``linux_bridge`` or
        ``macvtap`` if the NIC is plugged there.
    :ivar binder: binder that must do it; None if nothing is to be done.
    :ivar is_certain: whether no more will be known of the NICs' networks.
    :ivar devices: the host's ends of the NICs, such as taps.
    """

    name: str
    binder: base.Binder | None = None
    is_certain: bool = True
    devices: tuple[str, ...] = ()


class Steering:
    """Decides for the servers of one host.

    :param binders: binders that may be used.
    :ivar host: name of the host, for messages.
    :param read: returns the present state of ovsdb, None before the first
        answer.
    :param networks: the networks of the ports of Open vSwitch.
    :param host_links: the interfaces that the kernel has.
    """

    def __init__(
        self,
        binders: base.BinderSet,
        host: str,
        read: Callable[[], open_vswitch.OpenVswitch | None],
        networks: port_networks.PortNetworks,
        host_links: links.Links,
    ) -> None:
        self._binders = binders
        self.host = host
        self._read = read
        self._ports = guest_ports.GuestPorts(read)
        self._networks = networks
        self._links = host_links

    def carrier(self, claimant: claims.Claimant) -> Carrier:
        """Return what steers a server's packets, or is to steer them.

        :raises UnsupportedError: a claim steers no packet; the text names
            host and NIC, uplink or network, and the remedy.
        """
        nics = interfaces.read(claimant.domain.XMLDesc(0))
        chosen = interfaces.chosen(
            nics, len(claimant.uplinks), claimant.uplink_nic
        )
        carrier = self._choose(claimant.uuid, nics, chosen, claimant.uplinks)
        return carrier._replace(
            devices=tuple(nic.device for nic in chosen if nic.device)
        )

    def _choose(
        self,
        uuid: str,
        nics: Sequence[interfaces.Nic],
        chosen: Sequence[interfaces.Nic],
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> Carrier:
        """Return what steers the packets of some NICs of a server.

        :param nics: all NICs of the server.
        :param chosen: the NICs that use its claims.
        :raises UnsupportedError: nothing does.
        """
        of_guest = self._ports.of_guest(uuid)
        ports = {
            nic.mac: of_guest[nic.mac.lower()]
            for nic in chosen
            if nic.mac.lower() in of_guest
        }
        # Open vSwitch has representors of functions that it switches itself.
        direct = [
            nic
            for nic in chosen
            if nic.mac not in ports and (nic.in_hardware or nic.macvtap_on)
        ]
        if len(direct) == len(chosen):
            return self._on_hardware(direct, uplinks)
        # With hybrid plugging, a NIC is on a Linux bridge of its own, and
        # that is joined to the port that Neutron knows.
        bridges = {
            nic.mac: None if nic.mac in ports else self._linux_bridge(nic)
            for nic in chosen
        }
        if any(bridges.values()):
            return self._on_linux_bridges(bridges, uplinks)
        self._refuse_bonds(uplinks)
        known = {
            mac: network
            for mac, port in ports.items()
            if (network := self._networks.of_port(port)) is not None
        }
        for mac, network in known.items():
            self._refuse_fault(mac, network)
        if unknown := ports.keys() - known.keys():
            return self._unknown(uuid, nics, uplinks, ports[min(unknown)])
        provider = {m: one for m, one in known.items() if not one.tunneled}
        if provider:
            if len(provider) < len(chosen):
                raise self._mixed(provider, chosen)
            if self._neutron_does(provider, uplinks):
                return Carrier('neutron')
        is_certain = not any(map(self._networks.may_change, ports.values()))
        networks = None
        if provider:
            networks = base.PROVIDER
        elif is_certain and len(known) == len(chosen):
            networks = base.TUNNEL
        binder = self._binders.serving(uuid, nics, uplinks, networks)
        if binder is None:
            raise self._no_binder(chosen, provider, uplinks)
        return Carrier(binder.name, binder, is_certain)

    def unseen(self, uuid: str, carrier: Carrier) -> str:
        """Return what of a binder's work has no effect yet; empty for nothing.

        OVN's flows on this host have the encap IP of a port as it is in the
        southbound database, where all other hosts read it.
        """
        binder = carrier.binder
        if binder is None or binder.networks != base.TUNNEL:
            return ''
        ports = self._ports.of_guest(uuid)
        for mac, written in binder.in_force(uuid).items():
            if mac not in ports:
                continue
            seen = self._seen(ports[mac])
            if seen != written:
                seen = self._seen(ports[mac], port_networks.UNWIRED_AGE_S)
            if seen != written:
                return (
                    f'OVN on host {self.host} sends packets of NIC {mac} from '
                    f'{seen or "an unknown address"}, not from the encap IP '
                    f'{written} of its port: look at Port_Binding.encap in '
                    'the southbound database, and whether ovn-controller of '
                    'this host runs and is connected to it'
                )
        return ''

    def _seen(
        self, port: open_vswitch.Interface, age_s: float | None = None
    ) -> str | None:
        """Return the encap IP that OVN's flows have for a port."""
        network = self._networks.of_port(port, age_s)
        return network.encap_ip if network is not None else None

    def _unknown(
        self,
        uuid: str,
        nics: Sequence[interfaces.Nic],
        uplinks: Sequence[claims.ClaimedUplink],
        port: open_vswitch.Interface,
    ) -> Carrier:
        """Return what can steer a guest whatever the network of a port is.

        A binder of provider networks sees by itself whether packets leave by
        the claimed uplinks.

        :raises UnknownNetworkError: nothing can.
        """
        binder = self._binders.serving(uuid, nics, uplinks, base.PROVIDER)
        if binder is not None:
            return Carrier(binder.name, binder, is_certain=False)
        raise UnknownNetworkError(
            f'the network of port {port.name} on host {self.host} is unknown, '
            f'so that it is unknown what steers its packets: '
            f'{self._networks.unknown_because(port)}',
            cause='unknown-network',
        )

    def _linux_bridge(self, nic: interfaces.Nic) -> str | None:
        """Return the Linux bridge that a NIC is on; None if it is on none.

        Where Nova makes only the tap, as for the VIF type ``tap``, its XML
        names no bridge.
        """
        return nic.bridge or self._links.bridge_of(nic.device)

    def _on_linux_bridges(
        self,
        bridges: Mapping[str, str | None],
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> Carrier:
        """Return that NICs are where they should be.

        :param bridges: Linux bridge of each NIC, by MAC address.
        :raises UnsupportedError: one is not.
        """
        claimed = {uplink.bridge for uplink in uplinks}
        for mac, bridge in bridges.items():
            if bridge not in claimed:
                raise UnsupportedError(
                    f'NIC {mac} is on {bridge or "no Linux bridge"} of host '
                    f'{self.host}, not on the Linux bridge of the claimed '
                    f'{_names(uplinks)}, and nothing moves it',
                    'Boot the server on a network of that bridge, or use a '
                    'flavor that claims no uplinks',
                    cause='linux-bridge',
                )
        return Carrier('linux_bridge')

    def _on_hardware(
        self,
        nics: Sequence[interfaces.Nic],
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> Carrier:
        """Return that functions and macvtap devices are on claimed uplinks.

        :raises UnsupportedError: one is not.
        """
        claimed = frozenset().union(
            *(self._links.wire(uplink.nic) for uplink in uplinks)
        )
        for nic in nics:
            wire = (
                self._links.wire(nic.macvtap_on)
                if nic.macvtap_on
                else self._links.wire_of_function(nic.pci)
                if nic.pci
                else frozenset()
            )
            if wire and claimed.isdisjoint(wire):
                raise UnsupportedError(
                    f'NIC {nic.mac} is on {", ".join(sorted(wire))} of host '
                    f'{self.host}, not on the claimed {_names(uplinks)}, and '
                    'nothing moves it',
                    'Boot the server on a network of that uplink, or use a '
                    'flavor that claims no uplinks',
                    cause='other-nic',
                )
        shared = any(not nic.in_hardware for nic in nics)
        return Carrier('macvtap' if shared else 'hardware')

    def _refuse_bonds(self, uplinks: Sequence[claims.ClaimedUplink]) -> None:
        """Refuse members of a bond that chooses itself among them.

        :raises UnsupportedError: an uplink is one.
        """
        for uplink in uplinks:
            bond = self._bond(uplink)
            if bond is not None:
                raise UnsupportedError(
                    f'uplink {uplink.nic} (bridge {uplink.bridge}) of host '
                    f'{self.host} is a member of {bond}, so that the claim '
                    'does not decide which member packets take',
                    'Publish the bond as one uplink: take its members out of '
                    'nic= in [vhpc_topology] bridges; or make it a bond of '
                    'Open vSwitch with bond_mode=balance-slb, lacp=off and '
                    'other_config:bond-rebalance-interval=0',
                    cause='bond',
                )

    def _bond(self, uplink: claims.ClaimedUplink) -> str | None:
        """Return the bond that the host claims single members of, or None."""
        master = self._links.bond_of(uplink.nic)
        if master is not None:
            return f'the kernel bond {master}'
        state = self._read()
        port = None if state is None else state.port_of.get(uplink.nic)
        if port is None or not port.is_bond or port.members_are_stable:
            return None
        return f'the Open vSwitch bond {port.name} ({port.unstable_because})'

    def _refuse_fault(
        self, mac: str, network: port_network.PortNetwork
    ) -> None:
        """Refuse networks whose packets go astray on this host.

        :raises UnsupportedError: it is one.
        """
        segments = ' and '.join(map(str, network.segments))
        if network.fault is port_network.Fault.SEVERAL_SEGMENTS:
            raise UnsupportedError(
                f'the network of NIC {mac} ({network.name}) has several '
                f'segments that are mapped on host {self.host}: {segments}. '
                'OVN uses one of them and floods to all; packets may loop '
                'between the uplinks',
                'Map one of these physical networks only on each host '
                '(external_ids:ovn-bridge-mappings of Open_vSwitch), or make '
                'a network of each segment',
                cause='several-segments',
            )
        if network.fault is port_network.Fault.SAME_VLAN:
            raise UnsupportedError(
                f'the network of NIC {mac} ({network.name}) has segments of '
                f'one VLAN on host {self.host}: {segments}. The agent of '
                'Neutron takes them for one, so that the packets of some '
                'ports leave by the wrong physical network',
                'Give the segments different VLANs, or make a network of each',
                cause='same-vlan',
            )

    def _mixed(
        self,
        provider: Mapping[str, port_network.PortNetwork],
        chosen: Sequence[interfaces.Nic],
    ) -> UnsupportedError:
        others = ', '.join(n.mac for n in chosen if n.mac not in provider)
        return UnsupportedError(
            f'of the NICs that use the claims on host {self.host}, '
            f'{", ".join(provider)} are on provider networks, and {others} '
            'are not',
            'Order the ports, or set vhpc:uplink_nic, so that the claims '
            'concern NICs of one kind',
            cause='mixed-networks',
        )

    def _neutron_does(
        self,
        provider: Mapping[str, port_network.PortNetwork],
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> bool:
        """Return whether no packet can leave by another uplink.

        :raises UnsupportedError: an uplink is on no network of the server.
        """
        remaining = list(uplinks)
        alone = True
        for mac, network in provider.items():
            uplink = next(
                (u for u in remaining if network.physnets & set(u.physnets)),
                None,
            )
            if uplink is None:
                names = ', '.join(sorted(network.physnets))
                raise UnsupportedError(
                    f'NIC {mac} is on provider network {network.name} of '
                    f'physical network {names}, but the claimed '
                    f'{_names(remaining)} of host {self.host} is on '
                    f'{_physnets(remaining)}',
                    'Boot the server on a network of the claimed uplink, or '
                    'let the flavor request the trait of the physical network '
                    'in its group of uplinks',
                    cause='other-physnet',
                )
            remaining.remove(uplink)
            alone = alone and not uplink.beside
        return alone

    def _no_binder(
        self,
        chosen: Sequence[interfaces.Nic],
        provider: Mapping[str, port_network.PortNetwork],
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> UnsupportedError:
        if provider:
            mac, network = next(iter(provider.items()))
            beside = sorted({nic for u in uplinks for nic in u.beside})
            return UnsupportedError(
                f'NIC {mac} is on provider network {network.name} of physical '
                f'network {", ".join(sorted(network.physnets))}, whose '
                f'packets leave host {self.host} by {_names(uplinks)} or '
                f'{", ".join(beside)}, whichever Open vSwitch chooses',
                PORTS_INSTEAD,
                cause='provider-network',
            )
        if self._read() is None:
            return UnsupportedError(
                f'Open vSwitch of host {self.host} is not read, so that '
                f'NIC {chosen[0].mac} cannot be steered',
                'Set [vhpc_topology] ovsdb_connection',
                cause='no-ovsdb',
            )
        return UnsupportedError(
            f'no binder of [vhpc_agent] binders steers NIC {chosen[0].mac} '
            f'({chosen[0].kind}) on host {self.host}',
            'Add encap_ip to the option where OVN carries tenant networks; '
            'or use a flavor that claims no uplinks',
            cause='no-binder',
        )


def make_steering(
    conf: Any,
    binders: base.BinderSet,
    host: str,
    ovsdb: ovsdb_connection.Ovsdb | None,
) -> Steering:
    """Return the steering of this host.

    :param ovsdb: database of this host's Open vSwitch, None for none.
    """

    def read() -> open_vswitch.OpenVswitch | None:
        return ovsdb.read() if ovsdb is not None else None

    flows = port_networks.FlowReader(ovsdb.remote if ovsdb is not None else '')
    return Steering(
        binders,
        host,
        read,
        port_networks.PortNetworks(read, flows.dump),
        links.Links(pathlib.Path(conf.vhpc_topology.sysfs)),
    )


def _names(uplinks: Sequence[claims.ClaimedUplink]) -> str:
    return ', '.join(f'{one.bridge}/{one.nic}' for one in uplinks)


def _physnets(uplinks: Sequence[claims.ClaimedUplink]) -> str:
    names = sorted({name for one in uplinks for name in one.physnets})
    return ', '.join(names) or 'no known physical network'
