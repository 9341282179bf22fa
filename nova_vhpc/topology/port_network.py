# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which network a guest's port is on, as far as its host tells.

ML2/OVS: Neutron's agent writes network, physical network and VLAN into
``other_config`` of the port's row. OVN: ovn-controller writes nothing of the
kind, but the first table of its flows gives the packets of all ports of one
network the same number (``metadata``, the key of the logical datapath); among
them are those of the patch ports to bridges of physical networks.
"""

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nova_vhpc.topology import open_vswitch

_IN_PORT = re.compile(r'\bin_port=(\d+)\b')
_DATAPATH = re.compile(
    r'(?:load|set_field):(0x[0-9a-f]+|\d+)->(?:OXM_OF_METADATA\[\]|metadata)'
)
_ENCAP = re.compile(
    r'load:(0x[0-9a-f]+|\d+)->NXM_NX_REG13\[16\.\.31\]'
    r'|set_field:(0x[0-9a-f]+|\d+)/0xffff0000->reg13'
)
"""Number of the port's encap IP, since OVN 24.03; see :func:`_encap_ip`."""

_VLAN = re.compile(r'\bdl_vlan=(\d+)')
_LOCALNET = re.compile(r'-to-(.+)$')
"""Name of the localnet port, in the name of a patch port of the integration
bridge; Neutron's are ``provnet-<UUID of the segment>``."""

_TUNNELS = ('geneve', 'gre', 'stt', 'vxlan')


class Segment(NamedTuple):
    """A part of a network that leaves the host by a physical network.

    :ivar name: VLAN, or name of the localnet port of OVN.
    """

    physnet: str
    name: str

    def __str__(self) -> str:
        return f'{self.name} on physical network {self.physnet}'


class Fault(enum.Enum):
    """Why no port of a network gets its packets to the right uplink."""

    SEVERAL_SEGMENTS = enum.auto()
    """OVN, and two segments are mapped: it uses one, but floods to both."""

    SAME_VLAN = enum.auto()
    """ML2/OVS, and two segments of a network have one VLAN: the agent wires
    the ports of both by the mapping of the first."""


@dataclasses.dataclass(frozen=True, slots=True)
class PortNetwork:
    """The network of a port.

    :ivar name: what it is called on the host: UUID, or number of the logical
        datapath of OVN.
    :ivar segments: segments that are mapped on the host; empty if packets
        leave in tunnels.
    :ivar encap_ip: encap IP that OVN sends the port's packets from, as it has
        taken it from the southbound database (``Port_Binding.encap``); None
        if its flows do not tell.
    """

    name: str
    segments: tuple[Segment, ...] = ()
    fault: Fault | None = None
    encap_ip: str | None = None

    @property
    def tunneled(self) -> bool:
        """Whether the packets leave the host in tunnels."""
        return not self.segments

    @property
    def physnets(self) -> frozenset[str]:
        """The physical networks that the packets leave by."""
        return frozenset(segment.physnet for segment in self.segments)


def of_ml2(ports: Iterable[open_vswitch.Port]) -> Mapping[str, PortNetwork]:
    """Return the networks that Neutron's Open vSwitch agent has recorded.

    :returns: by the port's name; without ports of which it has not.
    """
    recorded = [port for port in ports if port.other_config.get('net_uuid')]
    physnets: dict[tuple[str, str], set[str]] = {}
    for port in recorded:
        if not _is_tunneled(port):
            physnets.setdefault(_vlan(port), set()).add(_physnet(port))
    networks = {}
    for port in recorded:
        name = port.other_config['net_uuid']
        if _is_tunneled(port):
            networks[port.name] = PortNetwork(name)
            continue
        on = sorted(physnets[_vlan(port)])
        vlan = port.other_config.get('segmentation_id')
        segment = f'VLAN {vlan}' if vlan else 'the flat segment'
        networks[port.name] = PortNetwork(
            name,
            tuple(Segment(physnet, segment) for physnet in on),
            Fault.SAME_VLAN if len(on) > 1 else None,
        )
    return networks


def _is_tunneled(port: open_vswitch.Port) -> bool:
    return port.other_config.get('network_type') in _TUNNELS


def _vlan(port: open_vswitch.Port) -> tuple[str, str]:
    """Return the key by which the agent finds a network's VLAN mapping."""
    recorded = port.other_config
    return recorded['net_uuid'], recorded.get('segmentation_id', '')


def _physnet(port: open_vswitch.Port) -> str:
    return port.other_config.get('physical_network', '')


def of_ovn(
    state: open_vswitch.OpenVswitch, flows: str
) -> Mapping[int, PortNetwork]:
    """Return the networks of the ports that ovn-controller has wired.

    :param flows: the flows of table 0 of the integration bridge, as
        ``ovs-ofctl dump-flows`` prints them.
    :returns: by the port's OpenFlow number.
    """
    bridges = state.neutron_bridges
    integration = state.bridge.get(bridges.integration)
    interfaces = {
        interface.ofport: interface
        for interface in (integration.interfaces if integration else ())
        if interface.ofport is not None
    }
    datapath_of: dict[int, str] = {}
    encap_ip_of: dict[int, str | None] = {}
    segments: dict[str, set[Segment]] = {}
    for line in flows.splitlines():
        port = _IN_PORT.search(line)
        datapath = _DATAPATH.search(line)
        interface = interfaces.get(int(port[1])) if port else None
        if port is None or datapath is None or interface is None:
            continue
        if interface.type == 'patch':
            segments.setdefault(datapath[1], set()).update(
                _segments(state, interface)
            )
        elif _VLAN.search(line) is None:
            # Flows with a VLAN are for the subports of a trunk.
            datapath_of[int(port[1])] = datapath[1]
            encap_ip_of[int(port[1])] = _encap_ip(state, line)
    return {
        port: PortNetwork(
            f'datapath {int(datapath, 0)}',
            tuple(sorted(segments.get(datapath, ()))),
            Fault.SEVERAL_SEGMENTS
            if len(segments.get(datapath, ())) > 1
            else None,
            encap_ip_of[port],
        )
        for port, datapath in datapath_of.items()
    }


def _encap_ip(state: open_vswitch.OpenVswitch, flow: str) -> str | None:
    """Return the encap IP whose number a port's flow has.

    ovn-controller numbers the encap IPs in the order of their texts.
    """
    found = _ENCAP.search(flow)
    if found is None:
        return None
    number = int(found[1], 0) if found[1] else int(found[2], 0) >> 16
    encap_ips = sorted(state.encap_ips)
    return encap_ips[number] if number < len(encap_ips) else None


def _segments(
    state: open_vswitch.OpenVswitch, patch: open_vswitch.Interface
) -> list[Segment]:
    """Return the segment that a patch port leads to."""
    bridge = state.bridge_of.get(patch.options.get('peer', ''))
    name = _LOCALNET.search(patch.name)
    return [
        Segment(physnet, name[1] if name else patch.name)
        for physnet, mapped in state.neutron_bridges.mappings.items()
        if mapped == bridge
    ][:1]
