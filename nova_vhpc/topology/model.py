# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What a host's network looks like: plain values, and their names.

DESIGN.md section 4. The names and identifiers here are the contract
between the agent, which publishes uplinks to Placement, and the filter,
which finds them again: the filter's bulk read of Placement carries no
provider names, so uuids are derived from names on both sides.
"""

import dataclasses
import enum
import re
import uuid

UPLINK = 'CUSTOM_VHPC_UPLINK'
"""Resource class: guests that may still be attached to an uplink."""

MBPS = 'CUSTOM_VHPC_MBPS'
"""Resource class: link speed in Mbit/s."""

STAMP = 'CUSTOM_VHPC_STAMP'
"""Resource class on a host's marker provider: when it last published.

Its total is :func:`stamp` of the last publication; nobody consumes it.
One marker per host also makes a bulk read of Placement return exactly one
candidate per host, whatever RAM or links the host has left.
"""

TRAIT_HOST = 'CUSTOM_VHPC_HOST'
"""Trait on the compute node's root provider: an agent publishes here."""

TRAIT_SHARED = 'CUSTOM_VHPC_BRIDGE_SHARED'
TRAIT_SEPARATE = 'CUSTOM_VHPC_BRIDGE_SEPARATE'
TRAIT_EXPORTED = 'CUSTOM_VHPC_EXPORTED'
"""Trait of an uplink whose NIC also gives guests virtual functions of its
own: its speed is shared with them. For flavors and people; the filter
counts devices from what nova-compute tells."""

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

    :ivar nic: kernel name of the NIC.
    :ivar bridge: name of the bridge that it is attached to.
    :ivar mbps: link speed in Mbit/s; 0 when the link is down.
    :ivar up: whether the link has a carrier.
    :ivar slots: guests that may claim it; 1 on a separate bridge.
    :ivar physnet: Neutron physical network, if configured.
    :ivar exported: whether its virtual functions are switched on.
    """

    nic: str
    bridge: str
    kind: BridgeKind
    mbps: int
    up: bool = True
    slots: int = 1
    physnet: str | None = None
    exported: bool = False


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
        """Every uplink of every bridge, in name order."""
        return tuple(
            sorted(
                (u for b in self.bridges for u in b.uplinks),
                key=lambda u: (u.bridge, u.nic),
            )
        )


def provider_name(node: str, bridge: str, nic: str) -> str:
    """Name of an uplink's resource provider: ``<node>:vhpc:<bridge>:<nic>``.

    :param node: hypervisor host name, the root provider's name.
    """
    return f'{node}:vhpc:{bridge}:{nic}'


def provider_uuid(node: str, bridge: str, nic: str) -> str:
    """Uuid of an uplink's resource provider, a uuid5 of its name."""
    return str(uuid.uuid5(_NAMESPACE, provider_name(node, bridge, nic)))


def marker_name(node: str) -> str:
    """Name of a host's marker provider, which carries :data:`STAMP`."""
    return f'{node}:vhpc'


def marker_uuid(node: str) -> str:
    """Uuid of a host's marker provider, a uuid5 of its name."""
    return str(uuid.uuid5(_NAMESPACE, marker_name(node)))


def stamp(epoch_s: float) -> int:
    """Time as :data:`STAMP` tells it: whole minutes since the Unix epoch.

    Seconds would outgrow Placement's 31 bits in 2038.
    """
    return int(epoch_s // 60)


def physnet_trait(physnet: str) -> str:
    """Placement trait of a Neutron physical network, as Neutron names it."""
    return 'CUSTOM_PHYSNET_' + re.sub('[^A-Z0-9_]', '_', physnet.upper())
