# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What MPI needs to use the cluster's networks: flags, wrapper, routes. Pure.

How the libraries choose interfaces (HPCVirt'09 section 5, and what was seen
with the versions that the tenant's page names):

* Open MPI uses every interface that it is allowed to, and spreads messages
  over them. It takes subnets.
* MPICH and Intel MPI use UCX or libfabric, which take names of interfaces:
  :func:`wrapper`. Hydra, their launcher, is reached at
  the address that its member has in the hostfile, and needs nothing.
"""

import dataclasses
import ipaddress
from collections.abc import Sequence

from nova_vhpc.vendordata import model

EAGER_LIMIT = 16384
"""Bytes from which on a message is spread over two interfaces.

By default Open MPI sends what is no longer than 64 KiB over a single one, and
UCX everything (seen with Open MPI 5.0.11 and MPICH 5.0.2). To be spread, a
message needs a round trip more, half of what so many bytes take on a link of
1 Gbit/s.
"""

FIRST_PART = 4096
"""Bytes that Open MPI sends over one interface before it spreads the rest."""

SPREAD_FLAGS = (
    *('--mca', 'btl_tcp_eager_limit', str(EAGER_LIMIT)),
    *('--mca', 'btl_tcp_rndv_eager_limit', str(FIRST_PART)),
)
"""Flags of Open MPI's mpirun for two interfaces."""

_SCRIPT = """\
#!/bin/sh
# Runs a program on the interfaces for MPI: mpiexec ... ./vhpc-run ./program
first='FIRST'
second='SECOND'
interfaces= devices= rdma= rails=0
for addresses in "$first" "$second"; do
    before=$interfaces
    for pair in $(ip -o address show | awk '{print $2 "=" $4}'); do
        nic=${pair%%=*}
        address=${pair#*=}
        case " $addresses " in *" ${address%/*} "*) ;; *) continue ;; esac
        case ",$interfaces," in *",$nic,"*) continue ;; esac
        interfaces=${interfaces:+$interfaces,}$nic
        devices=${devices:+$devices,}$nic
        for hca in "/sys/class/net/$nic/device/infiniband"/*; do
            if [ -e "$hca" ]; then
                devices=$devices,${hca##*/}:1
                rdma=yes
            fi
        done
    done
    [ "$interfaces" = "$before" ] || rails=$((rails + 1))
done
if [ -n "$interfaces" ]; then
    # Open MPI, UCX (MPICH), libfabric (MPICH, Intel MPI)
    export OMPI_MCA_btl_tcp_if_include="$interfaces"
    export OMPI_MCA_reachable="${OMPI_MCA_reachable:-weighted}"
    export UCX_NET_DEVICES="$devices"
    export FI_TCP_IFACE="${interfaces%%,*}"
    if [ -z "$rdma" ]; then
        export FI_PROVIDER="${FI_PROVIDER:-tcp}"
    fi
fi
if [ "$rails" = 2 ] && [ -z "$rdma" ]; then
    # Long messages go over both interfaces.
    limit=${OMPI_MCA_btl_tcp_eager_limit:-LIMIT}
    export OMPI_MCA_btl_tcp_eager_limit="$limit"
    part=${OMPI_MCA_btl_tcp_rndv_eager_limit:-PART}
    export OMPI_MCA_btl_tcp_rndv_eager_limit="$part"
    export UCX_MAX_EAGER_RAILS="${UCX_MAX_EAGER_RAILS:-2}"
    export UCX_MAX_RNDV_RAILS="${UCX_MAX_RNDV_RAILS:-2}"
    export UCX_RNDV_THRESH="${UCX_RNDV_THRESH:-LIMIT}"
fi
exec "$@"
"""


def openmpi_flags(cluster: model.Cluster) -> list[str]:
    """Return the flags of mpirun of Open MPI 4, except for the hostfile."""
    first, second = _subnets(cluster)
    runtime = ','.join(first or second)
    return [
        *openmpi5_flags(cluster),
        *(('--mca', 'oob_tcp_if_include', runtime) if runtime else ()),
    ]


def openmpi5_flags(cluster: model.Cluster) -> list[str]:
    """Return the flags of mpirun of Open MPI 5, except for the hostfile.

    Its launcher, PRRTE, finds a network by itself. With subnets in
    ``prte_if_include`` 5.0.7 and 5.0.11 do not start or crash (also where
    guests have IPv6, link-local at least); names of interfaces are passed on
    to all members, where they may be others.
    """
    first, second = _subnets(cluster)
    flags = _binding(cluster)
    if first or second:
        flags += ['--mca', 'btl_tcp_if_include', ','.join([*first, *second])]
    if second:
        flags += SPREAD_FLAGS
    return flags


def mpich_flags(cluster: model.Cluster) -> list[str]:
    """Return the flags of MPICH's mpiexec, except for the hostfile.

    Intel MPI needs none: it binds each rank to an equal part of the CPUs.
    """
    return ['-bind-to', 'core' if binds(cluster) else 'none']


def slots(member: model.Member) -> int:
    """Return the MPI ranks of a member; threads use its other vCPUs."""
    return member.vcpus if member.paradigm == 'mpi' else 1


def binds(cluster: model.Cluster) -> bool:
    """Return whether ranks are bound to CPUs.

    A rank with threads is the only one of its guest and may use all vCPUs.
    Binding it to as many cores (Open MPI's ``slot:PE=n``, Hydra's ``core:n``)
    fails in guests with fewer cores, as with hyperthreads or a smaller
    flavor. An mpirun has a single binding for all ranks, so one such member
    turns binding off for all.
    """
    return all(member.paradigm == 'mpi' for member in cluster.members)


def _binding(cluster: model.Cluster) -> list[str]:
    if not binds(cluster):
        return ['--bind-to', 'none']
    # There are as many slots as vCPUs. In a guest that shows two threads per
    # core, neither version starts as many ranks with "--bind-to core", nor
    # 5.0 with "--bind-to hwthread" alone.
    return ['--use-hwthread-cpus', '--bind-to', 'hwthread']


def _subnets(cluster: model.Cluster) -> tuple[list[str], list[str]]:
    """Return the IPv4 subnets of the members' first and second NICs for MPI.

    There is one subnet for each network configuration, because one that
    covers the NICs of several could include a management network.

    Open MPI reads no IPv6 subnets (4.1: "Unknown interface name",
    "inet_pton() failed"), and 4.1 and 5.0 do not connect if a member has no
    interface in one of them, as with a list of addresses ("server accept
    cannot find guid").

    :returns: nothing where subnets do not tell the NICs apart, as on two
        networks with one address range: the wrapper does.
    """
    subnets: tuple[list[model.Network], ...] = ([], [])
    for network in dict.fromkeys(m.network for m in cluster.members):
        members = [m for m in cluster.members if m.network == network]
        for position, found in enumerate(subnets):
            subnet = model.covering(model.mpi_addresses(members, position))
            if subnet and subnet.version == 4 and subnet not in found:
                found.append(subnet)
    both = [*subnets[0], *subnets[1]]
    if not all(_tells_apart(member, both) for member in cluster.members):
        return [], []
    first, second = (list(map(str, found)) for found in subnets)
    return first, second


def _tells_apart(
    member: model.Member, subnets: Sequence[model.Network]
) -> bool:
    """Return whether each subnet has a NIC for MPI of a member, and no other
    NIC; a member without addresses does not matter yet."""
    mpi_nics = model.mpi_nics(member)
    if model.mpi_address(member) is None:
        return True
    return all(
        any(address in subnet for nic in mpi_nics for address in nic.addresses)
        and not any(
            address in subnet
            for nic in member.nics
            if nic not in mpi_nics
            for address in nic.addresses
        )
        for subnet in subnets
    )


def wrapper(cluster: model.Cluster) -> str:
    """Return the script that runs a program on the interfaces for MPI.

    It is the same for all members. UCX and libfabric choose interfaces by
    themselves, a management network included, and take names of interfaces,
    which differ from image to image. The script finds the names by the
    members' addresses, on the member that it runs on.

    Addresses are matched exactly: the two NICs of a member may be on networks
    with one address range. libfabric's TCP provider takes a single interface
    and gets the first; UCX and Open MPI get both of ``multiple-shared``.

    Open MPI 5 built with libnl (5.0.7 of Debian 13) looks up the route to
    each peer, whatever the interface. That to a peer on the same host leads
    over the shared bridge: "Unable to find reachable pairing between local
    and remote interfaces". Its launcher takes ``--mca reachable`` for its own.

    MPICH 4.2 takes libfabric's sockets provider by default, which heeds other
    variables. Where an interface belongs to an RDMA device, for which TCP
    would be the slow way, the provider is left to the library.
    """
    first, second = (
        ' '.join(
            dict.fromkeys(
                str(address)
                for address in model.mpi_addresses(cluster.members, position)
            )
        )
        for position in range(2)
    )
    return (
        _SCRIPT.replace('FIRST', first)
        .replace('SECOND', second)
        .replace('LIMIT', str(EAGER_LIMIT))
        .replace('PART', str(FIRST_PART))
    )


_PREFERENCE = 20090
"""Preference of our rules, and number of the first of our tables."""

_ROUTES_HEAD = """\
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

    HPCVirt'09 section 4: packets to members on the same host use the shared
    bridge; all others use the own uplink, which needs no route.

    :ivar destination: the member's address on its own uplink, as a network; by
        it hostfiles name the member.
    :ivar gateway: the member's address on the shared bridge.
    :ivar source: address on the own uplink of the member that has the route.
        Without it packets had that of the shared bridge, by which peers do
        not know the member: Open MPI refuses such connections.
    :ivar nic: NIC on the shared bridge of the member that has the route.
    """

    destination: model.Network
    gateway: model.Address
    source: model.Address
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
    own_nic = model.own_nic(me)
    peer_routes: list[Route] = []
    # Each member asks, so others than those of the host must cost little.
    for peer in [one for one in cluster.members if one.host == me.host]:
        if model.distance(me, peer) is not model.Distance.SAME_HOST:
            continue
        if peer.network != me.network or len(peer.nics) < 2:
            continue
        peer_nic = model.shared_nic(peer)
        for version in (4, 6):
            gateway = peer_nic and peer_nic.of_version(version)
            destination = model.own_nic(peer).of_version(version)
            source = own_nic.of_version(version)
            if gateway and destination and source:
                peer_routes.append(
                    Route(
                        ipaddress.ip_network(destination),
                        gateway,
                        source,
                        shared_nic,
                    )
                )
    return peer_routes


def routes_script(peer_routes: Sequence[Route]) -> str:
    """Return a shell script that replaces the earlier routes by these.

    Each route is the default route of a table of its own, which a rule
    selects by the destination. UCX from 1.21 reads the routes of all tables,
    but no rules, and uses an interface only for destinations to which no
    other interface has a more specific route: with a host route over the
    shared bridge it says "Destination is unreachable" on the own uplink.

    The script ends with 1 if a route cannot be installed, after the others.
    """
    lines = [_ROUTES_HEAD.replace('PREFERENCE', str(_PREFERENCE))]
    for table, route in enumerate(peer_routes, _PREFERENCE):
        ip = f'ip -{route.destination.version}'
        lines += (
            f'{ip} route replace default via {route.gateway}',
            f' src {route.source} table {table}',
            f' && {ip} rule add pref {_PREFERENCE}'
            f' to {route.destination} lookup {table} || failed=1\n',
        )
    return ''.join([*lines, 'exit "$failed"\n'])
