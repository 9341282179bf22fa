# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Routes of ``shared-separate`` between members on the same host. Pure.

HPCVirt'09 section 4: packets to co-located members use the shared bridge; all
others use the own uplink, which needs no route. The destination of a route is
the peer's address on its own uplink, which is the one in the hostfile.
"""

import dataclasses
from collections.abc import Sequence

from nova_vhpc.vendordata import model

_PREFERENCE = 20090
"""Preference of our rules, and number of the first of our tables."""

_HEAD = """\
#!/bin/sh
# Sends packets to members on the same host over the shared bridge. Run it as
# root, again when members have come or moved. "sh vhpc-routes stop" undoes it.
if [ "$(id -u)" != 0 ]; then
    echo 'vhpc-routes: only root may change rules and routes' >&2
    exit 1
fi
failed=0
for family in -4 -6; do
    while ip $family rule del pref PREFERENCE 2>/dev/null; do :; done
done
if [ "${1:-}" = stop ]; then
    exit
fi
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """A route to one member on the same host.

    :ivar destination: the member's address on its own uplink, as a network.
    :ivar gateway: the member's address on the shared bridge.
    :ivar nic: NIC on the shared bridge of the member that has the route.
    """

    destination: model.Network
    gateway: model.Address
    nic: model.Nic


def routes(cluster: model.Cluster, me: model.Member) -> list[Route]:
    """Return the routes that a member needs.

    :param me: member that installs the routes.
    """
    if me.network != 'shared-separate' or len(me.nics) < 2:
        return []
    shared_nic = model.shared_nic(me)
    if shared_nic is None:
        return []
    peer_routes: list[Route] = []
    for peer in cluster.members:
        if model.distance(me, peer) is not model.Distance.SAME_HOST:
            continue
        if peer.network != me.network or len(peer.nics) < 2:
            continue
        peer_shared_nic = model.shared_nic(peer)
        gateway = None if peer_shared_nic is None else peer_shared_nic.address
        address = model.own_nic(peer).address
        destination = model.covering([] if address is None else [address])
        if gateway is None or destination is None:
            continue
        if gateway.version == destination.version:
            peer_routes.append(Route(destination, gateway, shared_nic))
    return peer_routes


def script(peer_routes: Sequence[Route]) -> str:
    """Return a shell script that replaces the earlier routes by these.

    Each route is the default route of a table of its own, which a rule
    selects by the destination. UCX from 1.21 reads the routes of all tables,
    but no rules, and uses an interface only for destinations to which no
    other interface has a more specific route: with a host route over the
    shared bridge it says "Destination is unreachable" on the own uplink.

    The script ends with 1 if a route cannot be installed, after the others.
    """
    lines = [_HEAD.replace('PREFERENCE', str(_PREFERENCE))]
    for table, route in enumerate(peer_routes, _PREFERENCE):
        ip = f'ip -{route.destination.version}'
        lines += (
            f'{ip} route replace default via {route.gateway} table {table}',
            f' && {ip} rule add pref {_PREFERENCE}'
            f' to {route.destination} lookup {table} || failed=1\n',
        )
    return ''.join([*lines, 'exit "$failed"\n'])
