# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""The NPC'09 paper's hosts: one program that over-commits a host by itself.

Section 4 of *Parallel programming in Xen VMs*: a host of four CPUs, and more
and more vCPUs of one program. As threads they are one VM, as processes one VM
each, and a hybrid program has two in each VM. In the NAS Parallel Benchmarks
threads of LU poll flags, and so spin; those of BT sleep at barriers. Processes
in several VMs wait for packets, in their guests' kernels, and so sleep, too.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.scheduler.planner import cost
from nova_vhpc_lab.sim import programs
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, Job, equal_hosts

CPUS = 4
"""Section 3: one quad-core processor."""

MOST_VCPUS = 8
"""Figures 3 to 8 go up to seven or eight threads."""

PROGRAMS = ('lu', 'bt')
"""Sensitive to the delay of communication, and not (section 3.2)."""

PARADIGMS: Mapping[str, str] = {
    'threads': 'openmp',
    'processes': 'mpi',
    'hybrid': 'hybrid',
}
"""``vhpc:paradigm`` of each kind of program."""

_WORK_US = {'lu': 300.0, 'bt': 2_000.0}
"""As in :data:`nova_vhpc_lab.sim.cloud.scenarios.NPB`."""

_MEMBER_VCPUS = {'processes': 1, 'hybrid': 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One program in one kind of virtual cluster.

    :ivar program: of :data:`PROGRAMS`.
    :ivar kind: of :data:`PARADIGMS`.
    :ivar vcpus: of the whole cluster.
    """

    program: str
    kind: str
    vcpus: int

    @property
    def name(self) -> str:
        """Return its scenario's key in the JSON file."""
        return f'npc09-{self.program}-{self.kind}-{self.overcommit:g}'

    @property
    def overcommit(self) -> float:
        """Return the vCPUs per CPU."""
        return self.vcpus / CPUS

    def spec(self) -> CloudSpec:
        """Return the host and its cluster."""
        vcpus = _MEMBER_VCPUS.get(self.kind, self.vcpus)
        job = Job(
            self.program,
            self.program,
            self._program(),
            vcpus,
            self.vcpus // vcpus,
            in_group=True,
        )
        return CloudSpec(
            self.name, equal_hosts(1, CPUS), (job,), MOST_VCPUS / CPUS
        )

    def model_speedup(self) -> float:
        """Return what the planner's cost model says of :func:`speedup`."""
        return CPUS / cost.overcommit_factor(
            PARADIGMS[self.kind], self.overcommit
        )

    def _program(self) -> programs.Program:
        work_us = _WORK_US[self.program]
        if self.program == 'lu' and self.kind != 'processes':
            return programs.Spin(work_us)
        return programs.Block(work_us)


def speedup(of_bound: float) -> float:
    """Return the speedup over one CPU, as in the paper's figures 8 and 11.

    All work is the same for any number of vCPUs, so perfect co-scheduling
    has one of as many as there are CPUs.

    :param of_bound: progress, as a part of perfect co-scheduling's.
    """
    return CPUS * of_bound


def cases() -> tuple[Case, ...]:
    """Return all cases, those with one vCPU per CPU first."""
    return tuple(
        Case(program, kind, vcpus)
        for program in PROGRAMS
        for kind in PARADIGMS
        for vcpus in range(CPUS, MOST_VCPUS + 1)
        if vcpus % _MEMBER_VCPUS.get(kind, 1) == 0
    )
