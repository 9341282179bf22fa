# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A host's bridges and uplinks, and their names in Placement.

The names and identifiers here are the contract between the agent, which
publishes uplinks to Placement, and the filter, which finds them there. The
filter's bulk read of Placement returns no provider names, so both sides derive
provider UUIDs from names.
"""

import dataclasses
import enum
import functools
import ipaddress
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

UPLINK = 'CUSTOM_VHPC_UPLINK'
"""Resource class: slots of an uplink, one for each guest."""

MBPS = 'CUSTOM_VHPC_MBPS'
"""Resource class: link speed in Mbit/s."""

STAMP = 'CUSTOM_VHPC_STAMP'
"""Resource class on a host's marker provider: time of its last publication.

Its total is :func:`stamp` of that time; no server is allocated any of it.
One marker per host also makes a bulk read of Placement return exactly one
candidate per host, whatever RAM or links the host has left.
"""

TRAIT_HOST = 'CUSTOM_VHPC_HOST'
"""Trait on a compute node's root provider: its agent publishes uplinks."""

TRAIT_SHARED = 'CUSTOM_VHPC_BRIDGE_SHARED'
TRAIT_SEPARATE = 'CUSTOM_VHPC_BRIDGE_SEPARATE'
TRAIT_EXPORTED = 'CUSTOM_VHPC_EXPORTED'
"""Trait of an uplink whose NIC also passes virtual functions to guests, which
share its speed. For flavors and operators only: the filter counts the devices
that nova-compute reports."""

TRAIT_TUNNEL = 'CUSTOM_VHPC_TUNNEL'
"""Trait of an uplink that has an encap IP: tunnels of OVN can end there."""

TRAIT_BOND = 'CUSTOM_VHPC_BOND'
"""Trait of an uplink that is a member of a bond of Open vSwitch: an agent can
have the bond send and receive a guest's packets by this member."""

_RAIL = 'CUSTOM_VHPC_RAIL_'

RESOURCE_GROUP = '_uplink'
"""Suffix of the flavor's request group: ``resources_uplink:...``."""

_NAMESPACE = uuid.UUID('6e6f7661-2d76-5870-9063-75706c696e6b')


class BridgeKind(enum.StrEnum):
    """How many guests share a bridge and its uplink."""

    SHARED = 'shared'
    SEPARATE = 'separate'


@dataclasses.dataclass(frozen=True, slots=True)
class Uplink:
    """One physical NIC port that guests can reach.

    :ivar nic: kernel name of the NIC; name in ovsdb, if it is a bond of Open
        vSwitch or bound to DPDK.
    :ivar bridge: name of the bridge that the NIC is attached to; of the NIC
        itself, if tunnels end at it and it is in no bridge.
    :ivar kind: kind of that bridge.
    :ivar mbps: link speed in Mbit/s; 0 if the link is down.
    :ivar up: whether the link has a carrier.
    :ivar slots: number of guests that may claim the uplink; 1 on a separate
        bridge.
    :ivar physnets: Neutron's physical networks that it is on.
    :ivar exported: whether virtual functions of the NIC are enabled.
    :ivar encap_ip: IP address of the OVN tunnels that end here, or None.
    :ivar bond: bond of Open vSwitch that the NIC is a member of, or None.
    :ivar rail: subnet that the encap IP is in, such as ``10.1.0.0/24``; None
        if there is none or it is unknown.
    """

    nic: str
    bridge: str
    kind: BridgeKind
    mbps: int
    up: bool = True
    slots: int = 1
    physnets: tuple[str, ...] = ()
    exported: bool = False
    encap_ip: str | None = None
    bond: str | None = None
    rail: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Bridge:
    """A Linux or OVS bridge with its uplinks."""

    name: str
    kind: BridgeKind
    uplinks: tuple[Uplink, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class HostTopology:
    """All bridges of one compute node that guests may use."""

    node: str
    bridges: tuple[Bridge, ...] = ()

    @property
    def uplinks(self) -> tuple[Uplink, ...]:
        """Return the uplinks of all bridges, sorted by name."""
        return tuple(
            sorted(
                (u for b in self.bridges for u in b.uplinks),
                key=lambda u: (u.bridge, u.nic),
            )
        )


def provider_name(node: str, bridge: str, nic: str) -> str:
    """Return the name of an uplink's provider: ``NODE:vhpc:BRIDGE:NIC``.

    :param node: hypervisor host name, which names the root provider.
    """
    return f'{node}:vhpc:{bridge}:{nic}'


def provider_uuid(node: str, bridge: str, nic: str) -> str:
    """Return the UUID of an uplink's provider, a uuid5 of its name."""
    return str(uuid.uuid5(_NAMESPACE, provider_name(node, bridge, nic)))


def marker_name(node: str) -> str:
    """Return the name of a host's marker provider, which has the stamp."""
    return f'{node}:vhpc'


def marker_uuid(node: str) -> str:
    """Return the UUID of a host's marker provider, a uuid5 of its name."""
    return str(uuid.uuid5(_NAMESPACE, marker_name(node)))


def stamp(epoch_s: float) -> int:
    """Return a time as a total of :data:`STAMP`, in whole minutes.

    Seconds would exceed Placement's 31 bits in 2038.

    :param epoch_s: seconds since the Unix epoch.
    """
    return int(epoch_s // 60)


def uplinks_in(allocations: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the UUIDs of the uplinks that some allocations claim.

    :param allocations: ``allocations`` of a consumer or a candidate, by UUID
        of the provider, as Placement answers.
    """
    # A list is faster than a generator here: the filter calls this for every
    # candidate of thousands of hosts.
    return tuple(
        [
            uuid
            for uuid, allocation in allocations.items()
            if UPLINK in allocation['resources']
        ]
    )


def physnet_trait(physnet: str) -> str:
    """Return the trait of a physical network, as Neutron names it.

    Like os-traits' ``normalize_name()``, which Neutron uses, several
    characters that are not allowed in a row become one underscore.
    """
    return (
        'CUSTOM_' + re.sub('[^0-9A-Za-z]+', '_', 'PHYSNET_' + physnet).upper()
    )


def rail_trait(rail: str) -> str:
    """Return the trait of the uplinks of a rail.

    A rail is the subnet that encap IPs of OVN are in. Each host has one
    uplink, or more, on each rail. Routing lets a frame leave a host by the
    uplink on the rail of the receiver's encap IP; so with both members on one
    rail, it leaves by the sender's own uplink.

    :param rail: subnet, such as ``10.1.0.0/24`` or ``fd00:1::/64``.
    """
    subnet = ipaddress.ip_network(rail)
    # In full: of IPv6, "::" and ":" would both become an underscore.
    name = f'{subnet.network_address.exploded}_{subnet.prefixlen}'
    return _RAIL + re.sub('[^0-9A-F]', '_', name.upper())


def rail_of(traits: Iterable[str]) -> str | None:
    """Return the rail that an uplink's traits name, None without one."""
    for trait in traits:
        if trait.startswith(_RAIL) and (rail := _rail_of(trait)):
            return rail
    return None


@functools.cache
def _rail_of(trait: str) -> str | None:
    *groups, length = trait.removeprefix(_RAIL).split('_')
    address = ('.' if len(groups) == 4 else ':').join(groups)
    try:
        return str(ipaddress.ip_network(f'{address}/{length}'))
    except ValueError:
        # No agent made this trait.
        return None
