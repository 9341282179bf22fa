# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""What runs in a simulated cloud."""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc_lab.sim import host_spec, kernels, programs

PARALLEL = model.Workload.PARALLEL


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One VM, or the members of a virtual cluster, and their program.

    :ivar kind: short name of the program, for reports.
    :ivar vcpus: of each member.
    :ivar workload: ``vhpc:workload``; only parallel jobs opt in by themselves.
    :ivar busy: vCPUs of each member that run the program; None for all.
    :ivar ram_mb: of each member.
    :ivar policy: of its server group; None for the cloud's.
    :ivar in_group: whether it is a cluster even if it has one member.
    """

    name: str
    kind: str
    program: programs.Program
    vcpus: int
    members: int = 1
    workload: model.Workload = PARALLEL
    busy: int | None = None
    ram_mb: int = 1
    policy: str | None = None
    in_group: bool = False

    @property
    def is_cluster(self) -> bool:
        return self.in_group or self.members > 1

    @property
    def is_parallel(self) -> bool:
        return self.workload is PARALLEL

    def vm_names(self) -> tuple[str, ...]:
        """Return the names of its members."""
        if not self.is_cluster:
            return (self.name,)
        return tuple(f'{self.name}.{n}' for n in range(1, self.members + 1))


@dataclasses.dataclass(frozen=True, slots=True)
class HostKind:
    """CPUs, RAM and place of one host.

    :ivar switch: ``vhpc:switch`` of its aggregate, or None.
    """

    name: str
    cpus: int
    ram_mb: int = 1 << 40
    switch: str | None = None
    rack: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CloudSpec:
    """Hosts, and the jobs that want to run on them.

    :ivar overcommit: vCPUs per host CPU that Nova allows.
    :ivar group_policy: of the clusters' server groups; None for none.
    :ivar sockets: of each host.
    :ivar kernel: CPU scheduler of all hosts.
    :ivar loads: what runs on each host outside of VMs.
    :ivar switch_us: time that a vCPU loses when it begins to run.
    :ivar wake_us: time that it loses on top if it slept (halt and wake-up).
    """

    name: str
    hosts: tuple[HostKind, ...]
    jobs: tuple[Job, ...]
    overcommit: float = 4.0
    group_policy: str | None = 'soft-affinity'
    sockets: int = 1
    hz: int = 250
    kernel: kernels.Kernel = kernels.LINUX
    switch_us: float = 3.0
    wake_us: float = 0.0
    loads: tuple[host_spec.LoadSpec, ...] = ()


Placement = Mapping[str, int]
"""Number of the host of each VM, by the VM's name."""


def equal_hosts(
    count: int, cpus: int, per_switch: int = 8
) -> tuple[HostKind, ...]:
    """Return hosts of one rack, some of them below each switch."""
    return tuple(
        HostKind(
            f'h{number:04}',
            cpus,
            switch=f's{number // per_switch:03}',
            rack='r',
        )
        for number in range(count)
    )
