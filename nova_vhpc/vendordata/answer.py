# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The vendordata of one member: hostfiles, flags of MPI and routes. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.vendordata import live, model, mpi, routes
from nova_vhpc.vendordata.guest import script

VERSION = 1
"""Version of the layout of the answer. A new key does not change it."""


def answer(
    cluster: model.Cluster,
    uuid: str,
    live_members: Mapping[str, live.Live] | None = None,
) -> dict[str, Any]:
    """Return the vendordata of one member, as the tenant's JSON.

    :param cluster: virtual cluster of the member.
    :param uuid: UUID of the member that asks.
    :param live_members: how members run, by UUID; None if agents are not
        asked.
    :raises KeyError: the server is not a member of the cluster.
    """
    rank = cluster.rank(uuid)
    if rank is None:
        raise KeyError(uuid)
    me = cluster.members[rank]
    listed = [m for m in cluster.members if m.running and model.mpi_address(m)]
    expected = max(cluster.expected, len(cluster.members))
    peer_routes = routes.routes(cluster, me)
    return {
        'version': VERSION,
        'cluster': {
            'id': cluster.uuid,
            'name': cluster.name,
            'network': me.network,
            'paradigm': me.paradigm,
            'expected': expected,
            # False until every member runs and has an address, also those
            # that are still to be created: ask again then.
            'complete': len(listed) == expected,
        },
        'rank': rank,
        'members': [
            {
                'rank': number,
                'id': member.uuid,
                'name': member.name,
                'hostname': member.hostname,
                'vcpus': member.vcpus,
                'slots': mpi.slots(member),
                'node': _host(member) if model.mpi_address(member) else None,
                'address': _text(model.mpi_address(member)),
                'addresses': [
                    str(a) for nic in member.nics for a in nic.addresses
                ],
                'status': member.status,
                'running': member.running,
                'host': member.host,
                'switch': member.switch,
                'rack': member.rack,
                'distance': str(model.distance(me, member)),
                **_live(live_members, member),
            }
            for number, member in enumerate(cluster.members)
        ],
        'hostfile': {
            'openmpi': _lines(
                f'{_host(m)} slots={mpi.slots(m)}' for m in listed
            ),
            'mpich': _lines(f'{_host(m)}:{mpi.slots(m)}' for m in listed),
        },
        'hosts': _lines(
            f'{model.mpi_address(m)} {_host(m)}'
            for m in listed
            if _is_named(m)
        ),
        'mpi': {
            'openmpi': mpi.openmpi_flags(cluster),
            'openmpi5': mpi.openmpi5_flags(cluster),
            'mpich': mpi.mpich_flags(cluster),
            'wrapper': mpi.wrapper(cluster),
            'environment': _environment(me),
        },
        'routes': [
            {
                'destination': str(route.destination),
                'via': str(route.gateway),
                'mac': route.nic.mac,
                'nic': me.nics.index(route.nic),
            }
            for route in peer_routes
        ],
        'routes_script': routes.script(peer_routes),
        'hosts_program': script.script(),
    }


def _live(
    live_members: Mapping[str, live.Live] | None, member: model.Member
) -> dict[str, Any]:
    """Return how a member runs; null if that is unknown."""
    if live_members is None:
        return {}
    found = live_members.get(member.uuid)
    return {'live': None if found is None else dataclasses.asdict(found)}


def _text(address: model.Address | None) -> str | None:
    return None if address is None else str(address)


def _is_named(member: model.Member) -> bool:
    """Return whether hostfiles need a name, because the address is IPv6.

    MPICH's Hydra takes the text before the first colon for the host, even
    with brackets; OpenMPI accepts letters, digits, dots and hyphens only.
    """
    address = model.mpi_address(member)
    return address is not None and address.version == 6


def _host(member: model.Member) -> str:
    # Servers' names are not always unique, or valid host names. UUIDs also
    # stay when ranks change, so an old line in /etc/hosts is never wrong.
    if _is_named(member):
        return f'vhpc-{member.uuid}'
    return str(model.mpi_address(member))


def _environment(me: model.Member) -> dict[str, str]:
    if me.paradigm == 'mpi':
        return {}
    return {'OMP_NUM_THREADS': str(me.vcpus)}


def _lines(lines: Iterable[str]) -> str:
    return ''.join(f'{line}\n' for line in lines)
