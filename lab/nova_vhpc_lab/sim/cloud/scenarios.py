# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""The clouds of the papers' evaluations, by name.

The programs stand for those of the NAS Parallel Benchmarks by how long they
compute between two exchanges of messages and by how they exchange them. These
times are chosen, not measured; class B on 16 to 256 processes lies among them.
"""

import random
from collections.abc import Callable, Mapping

from nova_vhpc.control import model
from nova_vhpc_lab.sim import programs
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, Job, equal_hosts
from nova_vhpc_lab.sim.programs import Pattern

NPB: Mapping[str, programs.Program] = {
    'lu': programs.Spin(300.0, pattern=Pattern.WAVEFRONT),
    'cg': programs.Spin(500.0),
    'mg': programs.Spin(800.0),
    'sp': programs.Spin(1_000.0),
    'bt': programs.Spin(2_000.0),
    'is': programs.Spin(4_000.0, pattern=Pattern.ALL_TO_ALL),
}

CPUS = 8
VCPUS = 8
VMS_PER_HOST = 4

TABLE_I = (32, 16, 16, 8, 8, 8, 4, 2, 2, 2)
"""VMs of VC1 to VC10: ATC paper, section IV.B2."""

HOSTS = 32

_LATENCY = model.Workload.LATENCY
_GENERAL = model.Workload.GENERAL

OTHERS: Mapping[str, tuple[programs.Program, model.Workload, int | None]] = {
    'web': (programs.Serve(), _LATENCY, None),
    'disk': (programs.Io(), _GENERAL, 2),
    'memory': (programs.Run(), _GENERAL, None),
    'compile': (programs.Run(), _GENERAL, 1),
}
"""Program, workload and busy vCPUs of VMs that are not parallel: Apache under
httperf, bonnie++, stream (whose cache misses are not modelled), SPEC CPU."""


def atc_a(program: str, hosts: int) -> CloudSpec:
    """Return four clusters with a VM on each host (figure 10)."""
    clusters = tuple(
        Job(f'VC{number}', program, NPB[program], VCPUS, hosts)
        for number in range(1, VMS_PER_HOST + 1)
    )
    return CloudSpec(
        f'atc-a-{program}-{hosts}',
        equal_hosts(hosts, CPUS),
        clusters,
        overcommit=VMS_PER_HOST,
        group_policy='anti-affinity',
        sockets=2,
    )


def atc_b(seed: int, hosts: int = HOSTS) -> CloudSpec:
    """Return VC1 to VC10 and single VMs, on all hosts (figure 11, table I).

    :param hosts: 32 as in the paper, or a multiple, with as many times the
        clusters.
    """
    chance = random.Random(seed)
    return _table_i('atc-b', chance, hosts, _parallel_single)


def atc_mixed(seed: int, hosts: int = HOSTS) -> CloudSpec:
    """Return ``atc_b`` with other programs, too (figures 12 to 14)."""
    chance = random.Random(seed)
    return _table_i('atc-mixed', chance, hosts, _any_single)


def _table_i(
    name: str,
    chance: random.Random,
    hosts: int,
    single: Callable[[random.Random, str], Job],
) -> CloudSpec:
    jobs = []
    for copy in range(max(1, hosts // HOSTS)):
        prefix = '' if hosts <= HOSTS else f'{copy + 1}/'
        for number, members in enumerate(TABLE_I, 1):
            program = chance.choice(sorted(NPB))
            jobs.append(
                Job(
                    f'{prefix}VC{number}',
                    program,
                    NPB[program],
                    VCPUS,
                    max(1, members * min(hosts, HOSTS) // HOSTS),
                )
            )
    room = VMS_PER_HOST * hosts - sum(job.members for job in jobs)
    jobs += [single(chance, f'v{number}') for number in range(1, room + 1)]
    return CloudSpec(
        name,
        equal_hosts(hosts, CPUS),
        tuple(jobs),
        overcommit=VMS_PER_HOST,
        sockets=2,
    )


def _parallel_single(chance: random.Random, name: str) -> Job:
    program = chance.choice(('lu', 'is'))
    return Job(name, program, NPB[program], VCPUS)


def _any_single(chance: random.Random, name: str) -> Job:
    return job(name, chance.choice(('lu', 'is', *OTHERS)), VCPUS)


def job(name: str, kind: str, vcpus: int, members: int = 1) -> Job:
    """Return a job that runs one of the programs.

    :param kind: key of :data:`NPB` or :data:`OTHERS`.
    :raises ValueError: there is no such program.
    """
    if kind in NPB:
        return Job(name, kind, NPB[kind], vcpus, members)
    if kind not in OTHERS or members > 1:
        raise ValueError(
            f"'{kind}' is no program of "
            + ('a cluster' if members > 1 else 'a VM')
            + f'; there are {", ".join(NPB)}'
            + ('' if members > 1 else f', {", ".join(OTHERS)}')
        )
    program, workload, busy = OTHERS[kind]
    if busy is not None:
        busy = min(busy, vcpus)
    return Job(name, kind, program, vcpus, workload=workload, busy=busy)
