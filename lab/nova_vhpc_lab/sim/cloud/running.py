# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Runs a simulated cloud for a while, and measures what its VMs do."""

import dataclasses
import random
from collections import defaultdict
from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc_lab.sim import (
    agent,
    coscheduler,
    host_spec,
    measurement,
    slot_bus,
)
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, Placement
from nova_vhpc_lab.sim.host import Counters, Host
from nova_vhpc_lab.sim.hosts import DEFAULT_NETWORK, Hosts, Network

_ROOM_VMS = 3
_ROOM_THREADS = 24
"""Arrays have room for some more than a host has on the mean."""


START_US = 1_000_000
"""Within about half of that time the VMs of all hosts start."""


@dataclasses.dataclass(frozen=True, slots=True)
class Conditions:
    """Under what a cloud is measured.

    :ivar skew_us: standard deviation of the hosts' clocks.
    :ivar bus: over which agents agree on slots.
    :ivar warm_up_s: simulated time before the measurement.
    :ivar seconds: simulated time that is measured.
    """

    seconds: float = 20.0
    warm_up_s: float = 10.0
    skew_us: float = 1_000.0
    network: Network = DEFAULT_NETWORK
    bus: slot_bus.BusSettings = slot_bus.DEFAULT


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """Who controls the hosts, and what flavors say for that.

    :ivar make_controller: one for each host; None for the kernel alone.
    :ivar quota: whether each vCPU has its fair part as quota, which slice
        policies need on Linux.
    :ivar all_opt_in: whether VMs that are not parallel opt in, too.
    :ivar time_slice_us: ``vhpc:time_slice_us`` of those.
    :ivar slots: whether the hosts agree on cluster slots.
    :ivar coscheduling: under Xen, how parallel VMs are co-scheduled; None for
        not at all.
    """

    name: str
    make_controller: measurement.MakeController | None = None
    quota: bool = False
    all_opt_in: bool = False
    time_slice_us: int | None = None
    slots: bool = False
    coscheduling: coscheduler.Settings | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class VmResult:
    """What one VM did while it was measured.

    :ivar progress: as a part of the time; of a cluster's member the cluster's.
    :ivar cpus: CPUs received.
    :ivar response_us: median and 99th percentile of a server's response times.
    """

    progress: float
    cpus: float
    response_us: tuple[float, float]


@dataclasses.dataclass(frozen=True, slots=True)
class CloudResult:
    """What a cloud did.

    :ivar vms: by name.
    :ivar windows_part: part of the hosts that played gang windows at the end.
    :ivar events: of the simulator.
    :ivar messages: about slots, of all hosts.
    """

    vms: Mapping[str, VmResult]
    windows_part: float
    events: int
    messages: int = 0


def run(
    spec: CloudSpec,
    placement: Placement,
    policy: Policy,
    seed: int,
    conditions: Conditions,
) -> CloudResult:
    """Run the VMs that were placed.

    :param seed: for kernels, programs, clocks and latencies.
    """
    cloud = _Running(spec, placement, policy, seed, conditions)
    cloud.agenda.run(round(conditions.warm_up_s * 1e6))
    cloud.hosts.reset_latencies()
    begin = cloud.counters()
    begin_us = cloud.agenda.now_us
    cloud.agenda.run(begin_us + round(conditions.seconds * 1e6))
    elapsed_us = cloud.agenda.now_us - begin_us
    vms = {}
    for name, end in cloud.counters().items():
        was = begin[name]
        vms[name] = VmResult(
            (end.progress_us - was.progress_us) / elapsed_us,
            (sum(end.run_us) - sum(was.run_us)) / elapsed_us,
            end.response_us[:2],
        )
    return CloudResult(
        vms, cloud.windows_part(), cloud.hosts.events, cloud.bus.sent
    )


class _Running:
    """The hosts, VMs and agents of one run.

    :ivar hosts: all that share the clock.
    :ivar bus: between the agents.
    """

    def __init__(
        self,
        spec: CloudSpec,
        placement: Placement,
        policy: Policy,
        seed: int,
        conditions: Conditions,
    ) -> None:
        self._spec = spec
        self._policy = policy
        vms = _vms_by_host(spec, placement, policy)
        most_cpus = max(host.cpus for host in spec.hosts)
        count = len(spec.hosts)
        threads = sum(vm.vcpus for on_host in vms.values() for vm in on_host)
        self.hosts = Hosts(
            count,
            most_cpus,
            kernel=spec.kernel,
            switch_us=spec.switch_us,
            wake_us=spec.wake_us,
            hz=spec.hz,
            seed=seed,
            sockets=spec.sockets,
            max_vms=len(placement) // count + _ROOM_VMS,
            max_threads=threads // count + _ROOM_THREADS,
            network=conditions.network,
        )
        self.agenda = Agenda(self.hosts)
        self._where: dict[str, tuple[Host, int]] = {}
        self._agents: list[agent.Agent] = []
        chance = random.Random(seed)
        self.bus = slot_bus.SlotBus(
            self.agenda, conditions.bus, random.Random(seed)
        )
        for index, kind in enumerate(spec.hosts):
            host = Host.of(self.hosts, index)
            on_host = host_spec.HostSpec(
                kind.name,
                kind.cpus,
                tuple(vms[index]),
                hz=spec.hz,
                sockets=spec.sockets,
                kernel=spec.kernel,
                loads=spec.loads,
            )
            # Otherwise all hosts would begin, and switch, at the same time.
            self.hosts.advance(
                self.hosts.now_us + chance.randrange(START_US // count)
            )
            numbers = measurement.add_vms(host, on_host)
            self._where |= {name: (host, numbers[name]) for name in numbers}
            offset_us = round(chance.gauss(0.0, conditions.skew_us))
            if policy.make_controller is not None and on_host.vms:
                self._agents.append(
                    agent.Agent(
                        host,
                        self.agenda,
                        on_host,
                        numbers,
                        policy.make_controller(),
                        chance.randrange(1 << 30),
                        clock_offset_us=offset_us,
                        slots=self._slots(on_host),
                    )
                )
            if policy.coscheduling is not None:
                coscheduler.CoScheduler(
                    host,
                    self.agenda,
                    [numbers[vm.name] for vm in on_host.vms if vm.opted_in],
                    policy.coscheduling,
                )

    def _slots(self, spec: host_spec.HostSpec) -> slot_bus.SlotAgent | None:
        if not self._policy.slots:
            return None
        return self.bus.join(
            spec.name,
            {vm.cluster for vm in spec.vms if vm.cluster and vm.coupled},
        )

    def counters(self) -> dict[str, Counters]:
        """Return the counters of all VMs, by name."""
        return {
            name: host.counters(number)
            for name, (host, number) in self._where.items()
        }

    def windows_part(self) -> float:
        """Return the part of the agents that play gang windows."""
        playing = sum(
            one.plan is not None and one.plan.windows is not None
            for one in self._agents
        )
        return playing / max(1, len(self._agents))


def _vms_by_host(
    spec: CloudSpec, placement: Placement, policy: Policy
) -> dict[int, list[host_spec.VmSpec]]:
    """Return the VMs of each host, by its number."""
    vms: dict[int, list[host_spec.VmSpec]] = defaultdict(list)
    most_cpus = max(host.cpus for host in spec.hosts)
    for job in spec.jobs:
        for name in job.vm_names():
            if name not in placement:
                continue
            host = placement[name]
            cpus = spec.hosts[host].cpus
            vm = host_spec.VmSpec(
                name,
                job.kind,
                job.program,
                job.vcpus,
                opted_in=job.is_parallel or policy.all_opt_in,
                cluster=job.name,
                coupled=job.is_cluster,
                busy=job.busy,
                workload=job.workload,
                # All simulated hosts have as many CPUs as the largest.
                allowed_cpus=None
                if cpus == most_cpus
                else frozenset(range(cpus)),
            )
            if not job.is_parallel and policy.all_opt_in:
                vm = dataclasses.replace(
                    vm, time_slice_us=policy.time_slice_us
                )
            vms[host].append(vm)
    if policy.quota:
        for host, on_host in vms.items():
            wanted = sum(vm.vcpus for vm in on_host)
            part = min(1.0, spec.hosts[host].cpus / wanted)
            vms[host] = [
                dataclasses.replace(
                    vm, quota_us=round(part * host_spec.PERIOD_US)
                )
                if vm.workload is model.Workload.PARALLEL
                else vm
                for vm in on_host
            ]
    return vms
