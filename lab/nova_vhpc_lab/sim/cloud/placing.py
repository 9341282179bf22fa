# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Places the jobs of a simulated cloud as Nova with our weigher would."""

import dataclasses
import random
from collections.abc import Sequence

from nova_vhpc.scheduler import planner
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, Job, Placement


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """Where the VMs of a cloud went.

    :ivar refused: jobs that found no room, and why.
    """

    hosts: Placement
    refused: dict[str, str] = dataclasses.field(default_factory=dict)


class _Cloud:
    """What is in use on each host."""

    def __init__(self, spec: CloudSpec) -> None:
        self._spec = spec
        self._vcpus = [0] * len(spec.hosts)
        self._ram_mb = [0] * len(spec.hosts)
        self._clusters: list[frozenset[str]] = [frozenset()] * len(spec.hosts)

    def plan(self, job: Job) -> Sequence[int] | str:
        """Return the host of each member, or why there is no room."""
        spec = self._spec
        facts = [
            planner.HostFacts(
                host.name,
                host.cpus,
                self._vcpus[index],
                host.cpus * spec.overcommit - self._vcpus[index],
                host.ram_mb - self._ram_mb[index],
                switch=host.switch,
                rack=host.rack,
                clusters=self._clusters[index],
            )
            for index, host in enumerate(spec.hosts)
        ]
        placement = planner.plan(
            planner.PlanRequest(
                members=job.members,
                vcpus=job.vcpus,
                ram_mb=job.ram_mb,
                hosts=facts,
                policy=job.policy or spec.group_policy,
                max_overcommit=spec.overcommit,
            )
        )
        if placement.infeasible_reason is not None:
            return placement.infeasible_reason
        numbers = {host.name: index for index, host in enumerate(spec.hosts)}
        return [
            numbers[name]
            for name, count in placement.assignments.items()
            for _ in range(count)
        ]

    def spread(self, job: Job) -> Sequence[int] | str:
        """Return the emptiest host that has room, as Nova's weighers do."""
        spec = self._spec
        room = {
            index: host.cpus * spec.overcommit - self._vcpus[index]
            for index, host in enumerate(spec.hosts)
            if host.ram_mb - self._ram_mb[index] >= job.ram_mb
        }
        best = max(room, key=lambda index: (room[index], -index), default=None)
        if best is None or room[best] < job.vcpus:
            return 'no host has room for it'
        return [best]

    def take(self, job: Job, hosts: Sequence[int]) -> None:
        for host in hosts:
            self._vcpus[host] += job.vcpus
            self._ram_mb[host] += job.ram_mb
            if job.is_cluster:
                self._clusters[host] |= {job.name}


def place(spec: CloudSpec, seed: int) -> Placed:
    """Place all jobs, one after the other in random order.

    Clusters go where the planner puts them, single VMs to the emptiest host.

    :param seed: for the order.
    """
    order = list(spec.jobs)
    random.Random(seed).shuffle(order)
    cloud = _Cloud(spec)
    placed = Placed({})
    hosts_of_vms: dict[str, int] = {}
    for job in order:
        where = cloud.plan(job) if job.is_cluster else cloud.spread(job)
        if isinstance(where, str):
            placed.refused[job.name] = where
            continue
        cloud.take(job, where)
        hosts_of_vms.update(zip(job.vm_names(), where, strict=True))
    return dataclasses.replace(placed, hosts=hosts_of_vms)


def alone(job: Job, spec: CloudSpec) -> tuple[CloudSpec, Placement]:
    """Return a cloud of as many hosts as a job needs, and nothing else on it.

    No vCPU shares a CPU: for wider members the hosts are larger.
    """
    cpus = max(job.vcpus, *(host.cpus for host in spec.hosts))
    per_host = cpus // job.vcpus
    count = -(-job.members // per_host)
    hosts = tuple(
        dataclasses.replace(spec.hosts[0], name=f'h{number}', cpus=cpus)
        for number in range(count)
    )
    return (
        dataclasses.replace(spec, hosts=hosts, jobs=(job,)),
        {
            name: number // per_host
            for number, name in enumerate(job.vm_names())
        },
    )
