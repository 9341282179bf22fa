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

"""What one member is told: hostfiles, flags and routes. Pure."""

from collections.abc import Iterable
from typing import Any

from nova_vhpc.vendordata import model

VERSION = 1
"""Version of the answer's layout; a new key does not change it."""


def answer(cluster: model.Cluster, uuid: str) -> dict[str, Any]:
    """The whole vendordata answer for one member.

    :param uuid: the member that asks.
    :raises KeyError: the server is no member of the cluster.
    """
    rank = cluster.rank(uuid)
    if rank is None:
        raise KeyError(uuid)
    me = cluster.members[rank]
    addressed = [m for m in cluster.members if _address(m)]
    return {
        'version': VERSION,
        'cluster': {
            'id': cluster.uuid,
            'name': cluster.name,
            'network': me.network,
            'paradigm': me.paradigm,
            # Until every member has an address a guest should ask again.
            'complete': len(addressed) == len(cluster.members),
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
                'distance': str(model.distance(me, member)),
            }
            for number, member in enumerate(cluster.members)
        ],
        'hostfile': {
            'openmpi': _lines(
                f'{_host(m)} slots={_slots(m)}' for m in addressed
            ),
            'mpich': _lines(f'{_host(m)}:{_slots(m)}' for m in addressed),
        },
        'hosts': _lines(
            f'{_address(m)} {_host(m)}' for m in addressed if _is_named(m)
        ),
        'mpi': {
            'openmpi': openmpi_flags(cluster),
            'mpich': ['-bind-to', _binding(cluster)],
            'environment': _environment(me),
        },
        'routes': routes(cluster, me),
    }


def openmpi_flags(cluster: model.Cluster) -> list[str]:
    """mpirun flags for OpenMPI, without the hostfile.

    OpenMPI stripes over every interface it finds and does not follow the
    routing table (HPCVirt'09 section 5), so it is told which subnets to
    use; a slower management network would hold it back otherwise.
    """
    flags = ['--bind-to', _binding(cluster)]
    first, second = (_subnets(cluster, position) for position in range(2))
    if first or second:
        names = ','.join([*first, *second])
        flags += ['--mca', 'btl_tcp_if_include', names]
        flags += ['--mca', 'oob_tcp_if_include', ','.join(first or second)]
    return flags


def _subnets(cluster: model.Cluster, position: int) -> list[str]:
    """Of the members' first or second NICs for MPI messages.

    One for each network configuration, since one that covered the NICs of
    several might cover a management network too. OpenMPI reads no IPv6
    subnets (4.1: "Unknown interface name", "inet_pton() failed").
    """
    found = []
    for network in dict.fromkeys(m.network for m in cluster.members):
        subnet = model.covering(
            nic.address
            for member in cluster.members
            if member.network == network
            for nic in model.mpi_nics(member)[position:][:1]
            if nic.address is not None
        )
        if subnet is not None and subnet.version == 4:
            found.append(str(subnet))
    return found


def routes(
    cluster: model.Cluster, me: model.Member
) -> list[dict[str, str | int]]:
    """Host routes for ``shared-separate``: HPCVirt'09 section 4.

    Packets to co-located members leave by the shared bridge; all others
    go by the own uplink, which needs no route. The destination is the
    peer's own-uplink address, the one in the hostfile.
    """
    if me.network != 'shared-separate' or len(me.nics) < 2:
        return []
    mine = model.shared_nic(me)
    if mine is None:
        return []
    found: list[dict[str, str | int]] = []
    for peer in cluster.members:
        if model.distance(me, peer) is not model.Distance.SAME_HOST:
            continue
        if peer.network != me.network or len(peer.nics) < 2:
            continue
        theirs = model.shared_nic(peer)
        own = model.own_nic(peer).address
        if theirs is None or theirs.address is None or own is None:
            continue
        if theirs.address.version != own.version:
            continue
        found.append(
            {
                'destination': f'{own}/{own.max_prefixlen}',
                'via': str(theirs.address),
                'mac': mine.mac,
                'nic': me.nics.index(mine),
            }
        )
    return found


def _address(member: model.Member) -> model.Address | None:
    for nic in model.mpi_nics(member):
        if nic.address is not None:
            return nic.address
    return None


def _text(address: model.Address | None) -> str | None:
    return None if address is None else str(address)


def _is_named(member: model.Member) -> bool:
    """Whether hostfiles must name it, since its address is IPv6.

    MPICH's Hydra takes what is before the first colon for the host, with
    brackets too; OpenMPI takes letters, digits, dots and hyphens only.
    """
    address = _address(member)
    return address is not None and address.version == 6


def _host(member: model.Member) -> str:
    # Servers' names need be neither unique nor host names; uuids also stay
    # when ranks change, so that an old line in /etc/hosts never misleads.
    if _is_named(member):
        return f'vhpc-{member.uuid}'
    return str(_address(member))


def _slots(member: model.Member) -> int:
    """MPI ranks per member: threads take the other vCPUs where used."""
    return member.vcpus if member.paradigm == 'mpi' else 1


def _binding(cluster: model.Cluster) -> str:
    """To what ranks are bound.

    The only rank of a guest has all of it for its threads. Binding it to
    that many cores instead (OpenMPI's ``slot:PE=n``, Hydra's ``core:n``)
    fails in guests with fewer cores: hyperthreads, a smaller flavor. One
    mpirun has one binding, so one such member decides for all.
    """
    if all(member.paradigm == 'mpi' for member in cluster.members):
        return 'core'
    return 'none'


def _environment(me: model.Member) -> dict[str, str]:
    if me.paradigm == 'mpi':
        return {}
    return {'OMP_NUM_THREADS': str(me.vcpus)}


def _lines(lines: Iterable[str]) -> str:
    return ''.join(f'{line}\n' for line in lines)
