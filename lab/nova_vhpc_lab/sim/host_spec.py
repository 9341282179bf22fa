# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What a simulated host is made of: its CPUs, VMs and load from outside."""

import dataclasses

from nova_vhpc.control import model
from nova_vhpc_lab.sim import kernels, programs

DEFAULT_WEIGHT = model.DEFAULT_SHARES_V1

PERIOD_US = 100_000
"""Enforcement period of a flavor's quota, as Nova sets it by default."""


@dataclasses.dataclass(frozen=True, slots=True)
class VmSpec:
    """One VM.

    :ivar kind: short name of the program, for reports.
    :ivar opted_in: whether its flavor lets the agent manage it.
    :ivar cluster: its virtual cluster.
    :ivar coupled: whether the members of its cluster wait for each other at
        their barriers, and not only the vCPUs of each.
    :ivar paradigm: how its program communicates, as its flavor says.
    :ivar weight: ``cpu_shares``.
    :ivar quota_us: CPU time of each vCPU per :data:`PERIOD_US`.
    :ivar allowed_cpus: CPUs that it is bound to; None for all.
    :ivar workload: ``vhpc:workload``, if it opted in.
    :ivar time_slice_us: ``vhpc:time_slice_us``; None if not specified.
    :ivar busy: number of vCPUs that run the program, the others sleep; None
        for all.
    :ivar repin: whether the agent may pin it; False for a guest that is bound
        to a NUMA node.
    """

    name: str
    kind: str
    program: programs.Program
    vcpus: int
    opted_in: bool = False
    cluster: str | None = None
    coupled: bool = False
    paradigm: model.Paradigm = model.Paradigm.MPI
    weight: int = DEFAULT_WEIGHT
    quota_us: int | None = None
    allowed_cpus: frozenset[int] | None = None
    repin: bool = True
    busy: int | None = None
    workload: model.Workload = model.Workload.PARALLEL
    time_slice_us: int | None = None

    def __str__(self) -> str:
        words = [f'{self.name}: {self.vcpus} vCPUs', self.kind]
        if self.busy is not None:
            words.append(f'{self.busy} busy')
        if self.opted_in:
            words.append(f'opted in ({self.cluster})')
        if self.weight != DEFAULT_WEIGHT:
            words.append(f'weight {self.weight}')
        if self.quota_us is not None:
            words.append(f'quota {self.quota_us / PERIOD_US:.0%} per vCPU')
        if self.allowed_cpus is not None:
            words.append(
                f'bound to CPUs {min(self.allowed_cpus)} to '
                f'{max(self.allowed_cpus)}'
            )
        return ', '.join(words)


@dataclasses.dataclass(frozen=True, slots=True)
class LoadSpec:
    """Threads outside of any VM."""

    program: programs.Program
    threads: int


@dataclasses.dataclass(frozen=True, slots=True)
class AgentThreads:
    """What the agent's own threads take of the CPUs; all times are means.

    :ivar weight: of each thread, in no group.
    :ivar tick_us: CPU time of a control period.
    :ivar border_us: CPU time of the player's thread at a window's border.
    :ivar write_us: CPU time of one write, by another thread.
    """

    weight: int = 9_548
    tick_us: float = 1_000.0
    border_us: float = 150.0
    write_us: float = 150.0


@dataclasses.dataclass(frozen=True, slots=True)
class HostSpec:
    """A host and what runs on it.

    :ivar name: name or seed by which the host can be made again.
    :ivar hz: frequency of Linux's tick.
    :ivar switch_us: time that a vCPU loses when it begins to run.
    :ivar wake_us: time that it loses on top if it slept (halt and wake-up).
    :ivar machine_weight: weight of a group that holds all VMs; None for no
        such group.
    :ivar agent: the agent's threads, which then compete for the CPUs; None
        if the agent costs nothing and its delays are drawn.
    """

    name: str
    cpus: int
    vms: tuple[VmSpec, ...]
    loads: tuple[LoadSpec, ...] = ()
    hz: int = 250
    sockets: int = 1
    kernel: kernels.Kernel = kernels.LINUX
    switch_us: float = 3.0
    wake_us: float = 0.0
    machine_weight: int | None = None
    agent: AgentThreads | None = None

    def topology(self) -> tuple[model.Cpu, ...]:
        """Return the CPUs as the agent sees them."""
        return tuple(
            model.Cpu(
                number,
                socket=self.sockets * number // self.cpus,
                llc=self.sockets * number // self.cpus,
                core=number,
            )
            for number in range(self.cpus)
        )
