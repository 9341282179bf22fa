# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The vendordata of members: hostfiles, flags of MPI and routes. Pure."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.vendordata import live, model, mpi
from nova_vhpc.vendordata.guest import script, waiting

VERSION = 1
"""Version of the layout of the answer. A new key does not change it."""

_DISTANCES = {one: f'{json.dumps(str(one))}}}' for one in model.Distance}


class Answers:
    """The answers to all members of a cluster, as the tenant's JSON.

    All members of a cluster boot and ask at the same time, and nearly all
    that they are told is equal: it is serialised once.

    :param cluster: virtual cluster.
    :param live_members: how members run, by UUID; None if agents are not
        asked.
    """

    def __init__(
        self,
        cluster: model.Cluster,
        live_members: Mapping[str, live.Live] | None = None,
    ) -> None:
        self._cluster = cluster
        self._places = model.Places(cluster.members)
        self._ranks = {m.uuid: rank for rank, m in enumerate(cluster.members)}
        listed = [
            m for m in cluster.members if m.running and model.mpi_address(m)
        ]
        expected = max(cluster.expected, len(cluster.members))
        self._about = {
            'id': cluster.uuid,
            'name': cluster.name,
            'expected': expected,
            # False until every member runs and has an address, also those
            # that are still to be created: ask again then.
            'complete': len(listed) == expected,
        }
        self._members = [
            json.dumps(
                {
                    'rank': rank,
                    **_member(member, cluster.shows_ids),
                    **_live(live_members, member),
                }
            )[:-1]
            + ', "distance": '
            for rank, member in enumerate(cluster.members)
        ]
        self._common = json.dumps(
            {
                'hostfile': {
                    'openmpi': _lines(
                        f'{_host(m)} slots={mpi.slots(m)}' for m in listed
                    ),
                    'mpich': _lines(
                        f'{_host(m)}:{mpi.slots(m)}' for m in listed
                    ),
                },
                'hosts': _lines(
                    f'{model.mpi_address(m)} {_host(m)}'
                    for m in listed
                    if _is_named(m)
                ),
                'wait': _wait(cluster),
                'hosts_program': script.script(),
            }
        )[1:-1]
        self._mpi = json.dumps(
            {
                'openmpi': mpi.openmpi_flags(cluster),
                'openmpi5': mpi.openmpi5_flags(cluster),
                'mpich': mpi.mpich_flags(cluster),
                'wrapper': mpi.wrapper(cluster),
            }
        )[:-1]

    def __contains__(self, uuid: object) -> bool:
        """Return whether a server is a member of the cluster."""
        return uuid in self._ranks

    def of(self, uuid: str) -> bytes:
        """Return the answer to one member.

        :raises KeyError: the server is not a member of the cluster.
        """
        rank = self._ranks[uuid]
        me = self._cluster.members[rank]
        peer_routes = mpi.routes(self._cluster, me)
        own = json.dumps(
            {
                'version': VERSION,
                'cluster': {
                    **self._about,
                    'network': me.network,
                    'paradigm': me.paradigm,
                },
                'rank': rank,
                'routes': [
                    {
                        'destination': str(route.destination),
                        'via': str(route.gateway),
                        'src': str(route.source),
                        'mac': route.nic.mac,
                        'nic': me.nics.index(route.nic),
                    }
                    for route in peer_routes
                ],
                'routes_script': mpi.routes_script(peer_routes),
            }
        )
        environment = json.dumps(_environment(me))
        members = ', '.join(
            map(
                str.__add__,
                self._members,
                map(_DISTANCES.__getitem__, self._places.distances(rank)),
            )
        )
        # The parts are ASCII, which is faster to encode.
        return (
            f'{own[:-1]}, "members": [{members}], '
            f'"mpi": {self._mpi}, "environment": {environment}}}, '
            f'{self._common}}}'
        ).encode('ascii')


def _member(member: model.Member, shows_ids: bool) -> dict[str, Any]:
    """Return what all members are told of one."""
    address = model.mpi_address(member)
    return {
        'id': member.uuid,
        'name': member.name,
        'hostname': member.hostname,
        'vcpus': member.vcpus,
        'slots': mpi.slots(member),
        'node': _host(member) if address else None,
        'address': str(address) if address else None,
        'addresses': [str(a) for nic in member.nics for a in nic.addresses],
        'status': member.status,
        'running': member.running,
        'host': member.host if shows_ids else None,
        'switch': member.switch if shows_ids else None,
        'rack': member.rack if shows_ids else None,
    }


def _live(
    live_members: Mapping[str, live.Live] | None, member: model.Member
) -> dict[str, Any]:
    """Return how a member runs; null if that is unknown."""
    if live_members is None:
        return {}
    found = live_members.get(member.uuid)
    return {'live': None if found is None else dataclasses.asdict(found)}


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


def _wait(cluster: model.Cluster) -> dict[str, Any]:
    """Return what makes the programs of a cluster wait as its flavors say.

    A program spans members and has one environment: ``auto`` where members
    have flavors that differ. The library that MPI programs need for it is not
    in it: only a guest knows whether it has that.
    """
    modes = {member.wait for member in cluster.members}
    mode = modes.pop() if len(modes) == 1 else 'auto'
    return {
        'mode': mode,
        'environment': waiting.wait_environment(mode),
        **{
            name: flags(mode, {}) for name, flags in waiting.WAIT_FLAGS.items()
        },
    }


def _lines(lines: Iterable[str]) -> str:
    return ''.join(f'{line}\n' for line in lines)
