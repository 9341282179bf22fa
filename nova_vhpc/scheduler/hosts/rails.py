# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The rails of a host's uplinks, as the planner sees them. Pure."""

from collections.abc import Iterable

from nova_vhpc.scheduler.hosts.requirements import Requirements
from nova_vhpc.scheduler.planner.model import Rail
from nova_vhpc.scheduler.sources.snapshot import UplinkState


def matter(requirements: Requirements) -> bool:
    """Return whether the rail of an uplink matters to a member's packets.

    It does where the encap IP of one claimed uplink steers them. A member with
    two claims has an uplink on two rails anyway.
    """
    networks = requirements.networks
    return (
        networks is not None
        and networks.uses_encap_ips
        and requirements.requested_uplinks == 1
        and not requirements.port_requests
    )


def name_of(uplink: UplinkState) -> str:
    """Return the name of an uplink's rail, empty if it is unknown."""
    return uplink.rail or ''


def free(uplinks: Iterable[tuple[UplinkState, int]]) -> tuple[Rail, ...]:
    """Return the rails of a host on which slots are free.

    :param uplinks: uplinks that serve a member, with their free slots.
    """
    rails: dict[str, Rail] = {}
    for uplink, slots in uplinks:
        if slots <= 0:
            continue
        name = name_of(uplink)
        known = rails.get(name, Rail(name, 0, uplink.mbps))
        rails[name] = Rail(
            name, known.slots + slots, min(known.mbps, uplink.mbps)
        )
    return tuple(rails[name] for name in sorted(rails))
