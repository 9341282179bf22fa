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

from typing import Any

from nova_vhpc.vendordata import cluster as model

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
    addressed = [m for m in cluster.members if _address(cluster, m)]
    return {
        'version': VERSION,
        'cluster': {
            'id': cluster.uuid,
            'name': cluster.name,
            'network': cluster.network,
            'paradigm': cluster.paradigm,
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
                'address': _address(cluster, member),
                'addresses': [
                    str(a) for nic in member.nics for a in nic.addresses
                ],
                'distance': str(model.distance(me, member)),
            }
            for number, member in enumerate(cluster.members)
        ],
        'hostfile': {
            'openmpi': _lines(
                f'{_address(cluster, m)} slots={_slots(cluster, m)}'
                for m in addressed
            ),
            'mpich': _lines(
                f'{_address(cluster, m)}:{_slots(cluster, m)}'
                for m in addressed
            ),
        },
        'mpi': {
            'openmpi': openmpi_flags(cluster),
            'mpich': ['-bind-to', 'core'],
            'environment': _environment(cluster, me),
        },
        'routes': routes(cluster, me),
    }


def openmpi_flags(cluster: model.Cluster) -> list[str]:
    """mpirun flags for OpenMPI, without the hostfile.

    OpenMPI stripes over every interface it finds and does not follow the
    routing table (HPCVirt'09 section 5), so it is told which subnets to
    use; a slower management network would hold it back otherwise.
    """
    flags = ['--bind-to', 'core']
    subnets = []
    for position in range(2):
        addresses = [
            nic.address
            for member in cluster.members
            for nic in model.mpi_nics(cluster, member)[position:][:1]
            if nic.address is not None
        ]
        subnet = model.covering(addresses)
        if subnet is not None:
            subnets.append(str(subnet))
    if subnets:
        names = ','.join(subnets)
        flags += ['--mca', 'btl_tcp_if_include', names]
        flags += ['--mca', 'oob_tcp_if_include', subnets[0]]
    return flags


def routes(
    cluster: model.Cluster, me: model.Member
) -> list[dict[str, str | int]]:
    """Host routes for ``shared-separate``: HPCVirt'09 section 4.

    Packets to co-located members leave by the shared bridge; all others
    go by the own uplink, which needs no route. The destination is the
    peer's own-uplink address, the one in the hostfile.
    """
    if cluster.network != 'shared-separate' or len(me.nics) < 2:
        return []
    mine = model.shared_nic(cluster, me)
    if mine is None:
        return []
    found: list[dict[str, str | int]] = []
    for peer in cluster.members:
        if model.distance(me, peer) is not model.Distance.SAME_HOST:
            continue
        if len(peer.nics) < 2:
            continue
        theirs = model.shared_nic(cluster, peer)
        own = model.own_nic(cluster, peer).address
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


def _address(cluster: model.Cluster, member: model.Member) -> str | None:
    for nic in model.mpi_nics(cluster, member):
        if nic.address is not None:
            return str(nic.address)
    return None


def _slots(cluster: model.Cluster, member: model.Member) -> int:
    """MPI ranks per member: threads take the other vCPUs where used."""
    return member.vcpus if cluster.paradigm == 'mpi' else 1


def _environment(cluster: model.Cluster, me: model.Member) -> dict[str, str]:
    if cluster.paradigm == 'mpi':
        return {}
    return {'OMP_NUM_THREADS': str(me.vcpus)}


def _lines(lines: Any) -> str:
    return ''.join(f'{line}\n' for line in lines)
