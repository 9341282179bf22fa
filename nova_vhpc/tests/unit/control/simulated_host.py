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

"""A simulated host: a kernel scheduler in steps of 1 ms, the real controller.

The lab has no wide hosts. The model: EEVDF by weight on each CPU, with the lag
kept (and clamped) when weights change; a group's weight divided over its busy
vCPUs; a load balancer that moves unpinned vCPUs; and programs that progress
only while all busy vCPUs of their VM run. With two CPUs its results are those
of the lab with real guests, except that switches between windows are free.

``python -m nova_vhpc.tests.unit.control.simulated_host`` compares stock and
gang windows, with and without reserved CPUs, on random hosts.
"""

import dataclasses
import random
import statistics
from collections.abc import Iterable

from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.control.gang import policy, reserved_cpus
from nova_vhpc.control.pinning import balance
from nova_vhpc.control.predictors import last_value

TICK_MS = 100
SLICE_MS = 4
SELDOM = 0.04
SHARES = 1_024
LIMITS = model.ActuatorLimits(
    effective_min_slice_us=4_000, min_shares=2, max_shares=262_144
)


class Vcpu:
    """One thread; its virtual time and deadline are relative to its CPU."""

    def __init__(self, vm):
        self.vm = vm
        self.pin = None
        self.cpu = -1
        self.weight = vm.shares / max(1, vm.busy)
        self.time = self.deadline = 0.0
        self.run_ms = self.wait_ms = 0

    def begin(self):
        self.deadline = self.time + SLICE_MS * SHARES / self.weight

    def lag(self, mean):
        """Return the lag, clamped to two slices as in the kernel."""
        most = 2 * SLICE_MS * SHARES / self.weight
        return max(-most, min(most, self.time - mean))


class Vm:
    """A VM some of whose vCPUs always want to run, the others never.

    :ivar busy: number of vCPUs that always want to run.
    :ivar cpus: CPUs that the VM is bound to; None for all.
    :ivar parallel: whether the VM is managed, and progresses only while all
        its busy vCPUs run.
    :ivar done_ms: progress of a parallel VM, CPU time of any other.
    """

    def __init__(self, name, size, cluster=None, busy=None, cpus=None):
        self.name = name
        self.size = size
        self.busy = size if busy is None else busy
        self.cpus = cpus
        self.cluster = cluster
        self.parallel = cluster is not None
        self.shares = SHARES
        self.vcpus = [Vcpu(self) for _ in range(size)]
        self.counted = [(0, 0)] * size
        self.in_force = None
        self.done_ms = 0

    def sample(self):
        before = self.counted
        self.counted = [(one.run_ms, one.wait_ms) for one in self.vcpus]
        run, wait = (
            tuple(
                1_000.0 * (now[which] - then[which])
                for now, then in zip(self.counted, before, strict=True)
            )
            for which in (0, 1)
        )
        return model.Sample(
            0.0, 0.0, run, wait, (10,) * self.size, 1_000.0 * TICK_MS
        )


class Host:
    """CPUs, VMs, and the controller, if any.

    :param managed: whether a controller plans, or stock Linux alone.
    """

    def __init__(self, cpus, vms, managed=True, seed=1):
        self.cpus = tuple(
            model.Cpu(n, socket=2 * n // cpus, llc=2 * n // cpus, core=n)
            for n in range(cpus)
        )
        self.vms = list(vms)
        self._chance = random.Random(seed)
        config = control_config.ControlConfig()
        self.slices = policy.GangPolicy(config)
        self._controller = managed and controller.Controller(
            config,
            self.slices,
            balance.BalancePolicy(config),
            last_value.LastValuePredictor,
        )
        self._queues = [[] for _ in self.cpus]
        self._running = [None] * cpus
        self._ran = [None] * cpus
        self._windows = None
        self._now_ms = 0
        everywhere = (frozenset(range(cpus)),)
        for vm in self.vms:
            vm.in_force = self._original(vm, everywhere)
            for vcpu in vm.vcpus[: vm.busy]:
                vcpu.pin = vm.cpus
                vcpu.begin()
                self._put(
                    vcpu,
                    min(
                        vm.cpus or range(cpus),
                        key=lambda cpu: (
                            len(self._queues[cpu]),
                            self._chance.random(),
                        ),
                    ),
                )

    def run(self, warm_ms, ms):
        """Run for a while; measure after a warm-up.

        :returns: progress of each VM by name, in parts of the time.
        """
        for vm in self.vms:
            vm.done_ms = 0
        for step in range(warm_ms + ms):
            self._step()
            if step < warm_ms:
                continue
            running_ids = set(map(id, self._ran))
            for vm in self.vms:
                running = sum(id(vcpu) in running_ids for vcpu in vm.vcpus)
                if vm.parallel:
                    running = int(0 < running == vm.busy)
                vm.done_ms += running
        return {vm.name: vm.done_ms / ms for vm in self.vms}

    def end(self, vm):
        """Remove a VM."""
        self.vms.remove(vm)
        for vcpu in vm.vcpus[: vm.busy]:
            self._queues[vcpu.cpu].remove(vcpu)
            if self._running[vcpu.cpu] is vcpu:
                self._running[vcpu.cpu] = None

    def efficiency(self, got):
        """Return the part of all CPU time in which parallel VMs progress."""
        return sum(
            got[vm.name] * vm.size for vm in self.vms if vm.parallel
        ) / len(self.cpus)

    def cpus_of(self, vm):
        return {vcpu.cpu for vcpu in vm.vcpus}

    def _step(self):
        if self._controller and self._now_ms % TICK_MS == 0:
            self._decide()
        if self._windows is not None:
            turn, _ = self._windows.turn_at(1_000 * self._now_ms)
            self._weigh(self._windows.turns[turn].shares)
        if self._now_ms % SLICE_MS == 0:
            self._balance()
        for cpu, queue in enumerate(self._queues):
            self._serve(cpu, queue)
        self._now_ms += 1

    def _original(self, vm, pins):
        return model.CpuTune(100_000, -1, SHARES, pins * vm.size)

    def _decide(self):
        everywhere = (frozenset(cpu.id for cpu in self.cpus),)
        managed = [vm for vm in self.vms if vm.parallel]
        plan = self._controller.decide(
            model.HostView(
                self._now_ms // TICK_MS,
                1_000 * self._now_ms,
                1_000 * TICK_MS,
                self.cpus,
                tuple(
                    model.VmView(
                        vm.name,
                        vm.size,
                        workload=model.Workload.PARALLEL,
                        cluster=vm.cluster,
                        original=self._original(vm, everywhere),
                        in_force=vm.in_force,
                        sample=vm.sample(),
                    )
                    for vm in managed
                ),
                wall_us=1_000 * self._now_ms,
                limits=LIMITS,
                others=tuple(
                    model.OtherVm(
                        vm.name,
                        vm.size,
                        SHARES,
                        vm.sample(),
                        vcpu_pins=(vm.cpus or everywhere[0],) * vm.size,
                    )
                    for vm in self.vms
                    if not vm.parallel
                ),
                window_late_us=500.0,
            )
        )
        for vm in managed:
            if plan.vms[vm.name].writes is not None:
                vm.in_force = plan.vms[vm.name].tune
                for vcpu, pin in zip(
                    vm.vcpus, vm.in_force.vcpu_pins, strict=True
                ):
                    vcpu.pin = pin
                    if vcpu.cpu not in pin and vcpu.cpu >= 0:
                        self._put(vcpu, min(pin))
        if plan.windows is None and self._windows is not None:
            self._weigh(self._windows.shares_after)
        self._windows = plan.windows

    def _weigh(self, shares):
        for vm in self.vms:
            new = shares.get(vm.name, vm.shares)
            if new == vm.shares:
                continue
            vm.shares = new
            for vcpu in vm.vcpus[: vm.busy]:
                mean = self._mean(vcpu.cpu)
                old, weight = vcpu.weight, new / vm.busy
                vcpu.time = mean + vcpu.lag(mean) * old / weight
                vcpu.weight = weight
                vcpu.begin()

    def _mean(self, cpu, but=None):
        """Return the virtual time of a CPU; vCPUs below it are eligible."""
        queue = [vcpu for vcpu in self._queues[cpu] if vcpu is not but]
        weights = sum(vcpu.weight for vcpu in queue)
        if not weights:
            return 0.0
        return sum(vcpu.weight * vcpu.time for vcpu in queue) / weights

    def _put(self, vcpu, cpu):
        lag = 0.0
        if vcpu.cpu >= 0:
            lag = vcpu.lag(self._mean(vcpu.cpu, vcpu))
            self._queues[vcpu.cpu].remove(vcpu)
            if self._running[vcpu.cpu] is vcpu:
                self._running[vcpu.cpu] = None
        vcpu.cpu = cpu
        vcpu.time = self._mean(cpu) + lag
        vcpu.begin()
        self._queues[cpu].append(vcpu)

    def _balance(self):
        """Move some vCPUs that are not pinned off loaded CPUs."""
        loads = [sum(one.weight for one in queue) for queue in self._queues]
        free = [
            vcpu
            for vm in self.vms
            for vcpu in vm.vcpus[: vm.busy]
            if vcpu.pin is None or len(vcpu.pin) > 1
        ]
        self._chance.shuffle(free)
        for vcpu in free[: max(2, len(loads) // 2)]:
            here, weight = vcpu.cpu, vcpu.weight
            best = min(
                range(len(loads)) if vcpu.pin is None else sorted(vcpu.pin),
                key=lambda cpu, here=here, weight=weight: (
                    loads[cpu] - (weight if cpu == here else 0),
                    self._chance.random(),
                ),
            )
            pulled = not self._queues[best] and len(self._queues[here]) > 1
            # After each failed attempt the kernel halves the load that it
            # compares, so that heavy tasks move, too, only later.
            counted = weight if self._chance.random() > SELDOM else 0
            if best != here and (
                pulled or loads[best] + counted < 0.8 * loads[here]
            ):
                loads[here] -= weight
                loads[best] += weight
                self._put(vcpu, best)

    def _serve(self, cpu, queue):
        """Run the eligible vCPU of the earliest deadline until it is due."""
        vcpu = self._running[cpu]
        if vcpu is None and queue:
            mean = self._mean(cpu) + 1e-9
            vcpu = min(
                (one for one in queue if one.time <= mean),
                key=lambda one: one.deadline,
            )
        self._running[cpu] = self._ran[cpu] = vcpu
        for one in queue:
            if one is vcpu:
                one.run_ms += 1
            else:
                one.wait_ms += 1
        if vcpu is not None:
            vcpu.time += SHARES / vcpu.weight
            if vcpu.time >= vcpu.deadline - 1e-9:
                vcpu.begin()
                self._running[cpu] = None


def clusters(chance, cpus, overcommit, sizes, members):
    """Return parallel VMs of ``overcommit`` vCPUs per CPU in all."""
    vms = []
    number = 0
    while sum(vm.size for vm in vms) < overcommit * cpus:
        number += 1
        size = chance.choice(sizes)
        vms += [
            Vm(f'c{number}.{member}', size, f'c{number}')
            for member in range(chance.choice(members))
        ]
    return vms


def hogs(sizes):
    """Return unmanaged VMs that never sleep."""
    return [Vm(f'h{number}', size) for number, size in enumerate(sizes)]


def compare(seed):
    """Run a random host under stock Linux, in windows, with reserved CPUs.

    :returns: CPUs, reserved CPUs, and the :class:`Figures` of each of the
        three; None if no CPU was reserved.
    """
    chance = random.Random(seed)
    cpus = chance.choice((8, 12, 16, 24, 32, 48))
    overcommit = chance.choice((1, 1.5, 2, 3))
    sizes = chance.choice(((2, 4), (4,), (4, 8), (2, 4, 8)))
    members = chance.choice(((1,), (1, 2), (2, 4)))
    busy = chance.choice((1, 2, cpus // 8, cpus // 4))
    figures = []
    for managed, reserve in ((False, False), (True, False), (True, True)):
        host = Host(
            cpus,
            clusters(random.Random(seed), cpus, overcommit, sizes, members)
            + hogs([2 - number % 2 for number in range(busy)]),
            managed,
            seed,
        )
        if not reserve:
            # The first evaluation never comes.
            host.slices.reserved_cpus = reserved_cpus.ReservedCpus(10**9)
        got = host.run(14_000, 4_000)
        figures.append(
            Figures(
                host.efficiency(got),
                statistics.geometric_mean(
                    max(0.002, got[vm.name]) for vm in host.vms if vm.parallel
                ),
                sum(got[vm.name] for vm in host.vms if not vm.parallel),
            )
        )
        reserved = len(host.slices.reserved_cpus.cpus)
    return (cpus, reserved, figures) if reserved else None


@dataclasses.dataclass
class Figures:
    """Efficiency, geometric mean of parallel VMs, sum of the others."""

    efficiency: float
    mean: float
    others: float


def report(seeds: Iterable[int]) -> None:
    """Print the figures of each host, and their means."""
    hosts = []
    for seed in seeds:
        compared = compare(seed)
        if compared is None:
            continue
        cpus, reserved, figures = compared
        hosts.append(figures)
        print(
            f'{seed}: {cpus} CPUs, {reserved} reserved:', *figures, flush=True
        )
    for column, name in enumerate(('stock', 'windows', 'reserved')):
        by_host = [figures[column] for figures in hosts]
        mean = statistics.geometric_mean(one.mean for one in by_host)
        print(
            f'{name}: efficiency '
            f'{statistics.fmean(one.efficiency for one in by_host):.2f}, '
            f'mean {mean:.3f}, '
            f'others {statistics.fmean(one.others for one in by_host):.2f}'
        )


if __name__ == '__main__':
    report(range(44))
