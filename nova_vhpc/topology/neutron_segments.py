# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Networks of Neutron that no host may have as they are mapped.

Neutron accepts and binds them; what happens on the host is in
:class:`nova_vhpc.topology.port_network.Fault`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nova_vhpc.topology import open_vswitch

NETWORKS = '/networks?fields=id&fields=name&fields=segments'
"""Path of the networks with their segments, which an administrator sees."""

AGENTS = '/agents?alive=true'

_NAMED_HOSTS = 4

_PHYSNET = 'provider:physical_network'
_VLAN = 'provider:segmentation_id'


class HostMappings(NamedTuple):
    """What a host maps.

    :ivar is_ovn: whether OVN does it; else it is the agent of ML2/OVS.
    :ivar physnets: physical networks that are mapped to a bridge.
    """

    host: str
    is_ovn: bool
    physnets: frozenset[str]


def mappings(agents: Iterable[Mapping[str, Any]]) -> list[HostMappings]:
    """Return what each host maps. Agents that are dead map nothing.

    :param agents: ``agents`` of Neutron's answer to :data:`AGENTS`.
    """
    found = []
    for agent in agents:
        if not agent.get('alive', True):
            continue
        configurations = agent.get('configurations') or {}
        # OVN has a string, ML2/OVS a dictionary of another name.
        ovn = configurations.get('bridge-mappings')
        ml2 = configurations.get('bridge_mappings')
        if isinstance(ovn, str):
            physnets = frozenset(open_vswitch.parse_bridge_mappings(ovn))
            found.append(HostMappings(agent['host'], True, physnets))
        elif isinstance(ml2, Mapping):
            found.append(HostMappings(agent['host'], False, frozenset(ml2)))
    return found


def problems(
    networks: Iterable[Mapping[str, Any]], hosts: Iterable[HostMappings]
) -> list[str]:
    """Return a sentence for each network whose packets go astray.

    :param networks: ``networks`` of Neutron's answer to :data:`NETWORKS`.
    """
    hosts = list(hosts)
    found = []
    for network in networks:
        segments = [
            segment
            for segment in network.get('segments') or ()
            if segment.get(_PHYSNET)
        ]
        if len(segments) < 2:
            continue
        name = f'network {network["name"]} ({network["id"]})'
        flooded = {
            host.host: mapped
            for host in hosts
            if host.is_ovn and len(mapped := _mapped(segments, host)) > 1
        }
        if flooded:
            found.append(
                f'{name} has several segments that are mapped on one host of '
                f'OVN, {_where(flooded)}: it uses one of them and floods to '
                'all. Map one of these physical networks only on each host '
                '(external_ids:ovn-bridge-mappings of Open_vSwitch), or make '
                'a network of each segment'
            )
        mixed_up = {
            host.host: same
            for host in hosts
            if not host.is_ovn
            and (same := _of_one_vlan(_mapped(segments, host)))
        }
        if mixed_up:
            found.append(
                f'{name} has segments of one VLAN that are mapped on one host '
                f'of ML2/OVS, {_where(mixed_up)}: the agent takes them for '
                'one. Give them different VLANs, or make a network of each'
            )
    return found


_Segment = Mapping[str, Any]


def _mapped(
    segments: Iterable[_Segment], host: HostMappings
) -> list[_Segment]:
    return [one for one in segments if one[_PHYSNET] in host.physnets]


def _of_one_vlan(segments: Iterable[_Segment]) -> list[_Segment]:
    """Return the segments whose VLAN another one has, too."""
    segments = list(segments)
    vlans = [one.get(_VLAN) for one in segments]
    return [one for one in segments if vlans.count(one.get(_VLAN)) > 1]


def _where(segments: Mapping[str, Iterable[_Segment]]) -> str:
    """Return the names of hosts and, of the first one, the segments."""
    hosts = sorted(segments)
    more = ', ...' if len(hosts) > _NAMED_HOSTS else ''
    parts = ' and '.join(
        f'{one[_PHYSNET]}'
        + (f' VLAN {one[_VLAN]}' if one.get(_VLAN) is not None else '')
        for one in segments[hosts[0]]
    )
    return f'{", ".join(hosts[:_NAMED_HOSTS])}{more} ({parts})'
