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

"""The vendordata of one member: hostfiles, MPI flags and routes. Pure."""

from collections.abc import Container, Iterable
from typing import Any

from nova_vhpc.vendordata import model

VERSION = 1
"""Version of the layout of the answer. A new key does not change it."""

_WRAPPER = """\
#!/bin/sh
# Runs a program with the interfaces for MPI: mpiexec ... ./vhpc-run ./program
devices=
for subnet in SUBNETS; do
    for nic in $(ip -o address show to "$subnet" | awk '{print $2}'); do
        case ",$devices," in *",$nic,"*) continue ;; esac
        devices=${devices:+$devices,}$nic
        for hca in "/sys/class/net/$nic/device/infiniband"/*; do
            if [ -e "$hca" ]; then
                devices=$devices,${hca##*/}:1
            fi
        done
    done
done
if [ -n "$devices" ]; then
    export UCX_NET_DEVICES="$devices" FI_TCP_IFACE="${devices%%,*}"
fi
exec "$@"
"""


def answer(cluster: model.Cluster, uuid: str) -> dict[str, Any]:
    """Return the vendordata of one member, as the tenant's JSON.

    :param cluster: virtual cluster of the member.
    :param uuid: UUID of the member that asks.
    :raises KeyError: the server is not a member of the cluster.
    """
    rank = cluster.rank(uuid)
    if rank is None:
        raise KeyError(uuid)
    me = cluster.members[rank]
    listed = [m for m in cluster.members if m.running and _address(m)]
    return {
        'version': VERSION,
        'cluster': {
            'id': cluster.uuid,
            'name': cluster.name,
            'network': me.network,
            'paradigm': me.paradigm,
            # False until every member runs and has an address: ask again then.
            'complete': len(listed) == len(cluster.members),
        },
        'rank': rank,
        'members': [
            {
                'rank': number,
                'id': member.uuid,
                'name': member.name,
                'vcpus': member.vcpus,
                'address': _text(_address(member)),
                'addresses': [
                    str(a) for nic in member.nics for a in nic.addresses
                ],
                'running': member.running,
                'distance': str(model.distance(me, member)),
            }
            for number, member in enumerate(cluster.members)
        ],
        'hostfile': {
            'openmpi': _lines(f'{_host(m)} slots={_slots(m)}' for m in listed),
            'mpich': _lines(f'{_host(m)}:{_slots(m)}' for m in listed),
        },
        'hosts': _lines(
            f'{_address(m)} {_host(m)}' for m in listed if _is_named(m)
        ),
        'mpi': {
            'openmpi': openmpi_flags(cluster),
            'mpich': ['-bind-to', 'core' if _binds(cluster) else 'none'],
            'wrapper': wrapper(cluster),
            'environment': _environment(me),
        },
        'routes': routes(cluster, me),
    }


def openmpi_flags(cluster: model.Cluster) -> list[str]:
    """Return the flags of OpenMPI's mpirun, except for the hostfile.

    OpenMPI stripes messages over all interfaces and ignores the routing table
    (HPCVirt'09 section 5), so the flags select the subnets to use. Otherwise
    a slower management network would slow it down.
    """
    if _binds(cluster):
        # There are as many slots as vCPUs. In a guest that shows two threads
        # per core, neither version starts as many ranks with "--bind-to
        # core", nor 5.0 with "--bind-to hwthread" alone.
        flags = ['--use-hwthread-cpus', '--bind-to', 'hwthread']
    else:
        flags = ['--bind-to', 'none']
    first, second = (_subnets(cluster, position) for position in range(2))
    if first or second:
        names = ','.join([*first, *second])
        flags += ['--mca', 'btl_tcp_if_include', names]
        flags += ['--mca', 'oob_tcp_if_include', ','.join(first or second)]
    return flags


def wrapper(cluster: model.Cluster) -> str:
    """Return a shell script that runs a program on the right interfaces.

    MPICH and other libraries that use UCX or libfabric choose interfaces by
    themselves, whatever addresses the hostfile has: MPICH 4.0 and 5.0 with UCX
    stripe over two, a management network included. They are told names of
    interfaces, which differ from image to image; the script finds the names.
    """
    subnets = ' '.join(
        dict.fromkeys(
            subnet
            for position in range(2)
            for subnet in _subnets(cluster, position, (4, 6))
        )
    )
    return _WRAPPER.replace('SUBNETS', subnets)


def _subnets(
    cluster: model.Cluster, position: int, versions: Container[int] = (4,)
) -> list[str]:
    """Return the subnets of the members' first or second NICs for MPI.

    There is one subnet for each network configuration, because one that
    covers the NICs of several could include a management network.

    :param position: 0 for the first NICs, 1 for the second ones.
    :param versions: IP versions to return. OpenMPI reads no IPv6 subnets
        (4.1: "Unknown interface name", "inet_pton() failed").
    """
    subnets = []
    for network in dict.fromkeys(m.network for m in cluster.members):
        subnet = model.covering(
            nic.address
            for member in cluster.members
            if member.network == network
            for nic in model.mpi_nics(member)[position:][:1]
            if nic.address is not None
        )
        if subnet is not None and subnet.version in versions:
            subnets.append(str(subnet))
    return subnets


def routes(
    cluster: model.Cluster, me: model.Member
) -> list[dict[str, str | int]]:
    """Return the host routes that ``shared-separate`` needs.

    HPCVirt'09 section 4: packets to co-located members use the shared bridge;
    all others use the own uplink, which needs no route. The destination of a
    route is the peer's address on its own uplink, which is the one in the
    hostfile.

    :param me: member that installs the routes.
    """
    if me.network != 'shared-separate' or len(me.nics) < 2:
        return []
    shared_nic = model.shared_nic(me)
    if shared_nic is None:
        return []
    host_routes: list[dict[str, str | int]] = []
    for peer in cluster.members:
        if model.distance(me, peer) is not model.Distance.SAME_HOST:
            continue
        if peer.network != me.network or len(peer.nics) < 2:
            continue
        peer_shared_nic = model.shared_nic(peer)
        gateway = None if peer_shared_nic is None else peer_shared_nic.address
        destination = model.own_nic(peer).address
        if gateway is None or destination is None:
            continue
        if gateway.version != destination.version:
            continue
        host_routes.append(
            {
                'destination': f'{destination}/{destination.max_prefixlen}',
                'via': str(gateway),
                'mac': shared_nic.mac,
                'nic': me.nics.index(shared_nic),
            }
        )
    return host_routes


def _address(member: model.Member) -> model.Address | None:
    for nic in model.mpi_nics(member):
        if nic.address is not None:
            return nic.address
    return None


def _text(address: model.Address | None) -> str | None:
    return None if address is None else str(address)


def _is_named(member: model.Member) -> bool:
    """Return whether hostfiles need a name, because the address is IPv6.

    MPICH's Hydra takes the text before the first colon for the host, even
    with brackets; OpenMPI accepts letters, digits, dots and hyphens only.
    """
    address = _address(member)
    return address is not None and address.version == 6


def _host(member: model.Member) -> str:
    # Servers' names are not always unique, or valid host names. UUIDs also
    # stay when ranks change, so an old line in /etc/hosts is never wrong.
    if _is_named(member):
        return f'vhpc-{member.uuid}'
    return str(_address(member))


def _slots(member: model.Member) -> int:
    """Return the MPI ranks of a member; threads use its other vCPUs."""
    return member.vcpus if member.paradigm == 'mpi' else 1


def _binds(cluster: model.Cluster) -> bool:
    """Return whether ranks are bound to CPUs.

    A rank with threads is the only one of its guest and may use all vCPUs.
    Binding it to as many cores (OpenMPI's ``slot:PE=n``, Hydra's ``core:n``)
    fails in guests with fewer cores, as with hyperthreads or a smaller
    flavor. An mpirun has a single binding for all ranks, so one such member
    turns binding off for all.
    """
    return all(member.paradigm == 'mpi' for member in cluster.members)


def _environment(me: model.Member) -> dict[str, str]:
    if me.paradigm == 'mpi':
        return {}
    return {'OMP_NUM_THREADS': str(me.vcpus)}


def _lines(lines: Iterable[str]) -> str:
    return ''.join(f'{line}\n' for line in lines)
