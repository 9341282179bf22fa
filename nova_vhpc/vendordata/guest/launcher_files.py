# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What launchers of MPI read: hostfiles, rankfiles and variables. Pure.

Part of the program that runs in guests (:mod:`.script`): Python 3.6 and its
standard library.
"""

from typing import Any


def openmpi_hostfile(answer: 'dict[str, Any]') -> str:
    """Return the hostfile of Open MPI and of PRRTE."""
    return str(answer['hostfile']['openmpi'])


def mpich_hostfile(answer: 'dict[str, Any]') -> str:
    """Return the hostfile of MPICH's Hydra and of Intel MPI."""
    return str(answer['hostfile']['mpich'])


def rankfile(answer: 'dict[str, Any]') -> str:
    """Return a rankfile of Open MPI and PRRTE.

    It has a rank for each vCPU, or, where ranks have threads, for each
    member, with all its vCPUs.
    """
    lines = []
    rank = 0
    for member in listed_members(answer):
        slots = member['slots']
        for slot in range(slots):
            cpus = (
                str(slot)
                if slots == member['vcpus']
                else '0-{}'.format(member['vcpus'] - 1)
            )
            lines.append(
                'rank {}={} slot={}\n'.format(rank, member['node'], cpus)
            )
            rank += 1
    return ''.join(lines)


def environment(answer: 'dict[str, Any]') -> 'dict[str, str]':
    """Return variables of the shell that starts programs."""
    cluster = answer['cluster']
    values = {
        'VHPC_CLUSTER': cluster['id'],
        'VHPC_COMPLETE': 'yes' if cluster['complete'] else 'no',
        'VHPC_RANK': answer['rank'],
        'VHPC_MEMBERS': len(answer['members']),
        'VHPC_SLOTS': sum(one['slots'] for one in listed_members(answer)),
    }
    values.update(answer['mpi']['environment'])
    return {name: str(value) for name, value in sorted(values.items())}


def listed_members(answer: 'dict[str, Any]') -> 'list[dict[str, Any]]':
    """Return the members that hostfiles have."""
    return [
        member
        for member in answer['members']
        if member['running'] and member['address']
    ]


LAUNCHER_FORMATS = {
    'openmpi': openmpi_hostfile,
    'mpich': mpich_hostfile,
    # It starts programs of PMIx by prte or prterun.
    'prrte': openmpi_hostfile,
    'rankfile': rankfile,
}
