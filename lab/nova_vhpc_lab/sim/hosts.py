# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Simulated hosts that share one clock, and the messages between them."""

import dataclasses
import math
from typing import Any

import numpy as np

from nova_vhpc_lab.sim import kernels, programs
from nova_vhpc_lab.sim.kernel import engine, state

_NS = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """Interrupts and stolen time: each CPU is taken now and then.

    :ivar every_us: mean time between two on one CPU; 0 for none.
    :ivar lasts_us: mean time that one takes.
    """

    every_us: float = 5_000.0
    lasts_us: float = 15.0


DEFAULT_NOISE = Noise()


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """What a message between two hosts takes.

    :ivar latency_us: mean time of a small message, of sender and receiver too.
    :ivar message_us: time that one host's link needs for one message.
    :ivar loss: part of the messages that is lost.
    :ivar resend_us: time after which a lost message is sent again.
    """

    latency_us: float = 50.0
    message_us: float = 10.0
    loss: float = 0.0
    resend_us: float = 200_000.0

    def flight_us(self, pattern: programs.Pattern, hosts: int) -> float:
        """Return how long a round's messages are under way."""
        if hosts < 2:
            return 0.0
        match pattern:
            case programs.Pattern.ALL_TO_ALL:
                return self.latency_us + (hosts - 1) * self.message_us
            case programs.Pattern.WAVEFRONT:
                return (hosts - 1) * (self.latency_us + self.message_us)
            case programs.Pattern.BARRIER:
                steps = math.ceil(math.log2(hosts))
                return steps * (self.latency_us + self.message_us)

    def resend_part(self, pattern: programs.Pattern, hosts: int) -> float:
        """Return the part of the rounds that wait for a lost message."""
        sent = hosts * messages(pattern, hosts)
        return float(1.0 - (1.0 - self.loss) ** sent)


DEFAULT_NETWORK = Network()


def messages(pattern: programs.Pattern, hosts: int) -> int:
    """Return how many messages each host sends in a round."""
    if hosts < 2:
        return 0
    match pattern:
        case programs.Pattern.ALL_TO_ALL:
            return hosts - 1
        case programs.Pattern.WAVEFRONT:
            return 1
        case programs.Pattern.BARRIER:
            return math.ceil(math.log2(hosts))


@dataclasses.dataclass(frozen=True, slots=True)
class Vm:
    """A VM, or threads of a host.

    :ivar host: number of its host.
    :ivar group: its control group.
    """

    host: int
    group: int
    threads: range
    program: programs.Program


class Hosts:
    """Equal hosts under one clock; :class:`host.Host` is one of them.

    The same seed and calls give the same results.

    :param count: number of hosts.
    :param cpus: CPUs of each, evenly split over its sockets.
    :param kernel: their CPU scheduler.
    :param hz: Linux's ticks per second, each CPU's in a phase of its own.
    :param noise: None for none.
    :param switch_us: time that a thread loses when it begins to run.
    :param wake_us: time that it loses on top if it slept: what a vCPU's halt
        and wake-up take.
    :param max_vms: of one host on the mean, also of those that ended.
    :param max_threads: likewise.
    :ivar kernel: their CPU scheduler.
    :ivar vms: VMs of all hosts, by number.
    :ivar messages_by_barrier: messages that each host sends in a round.
    """

    def __init__(
        self,
        count: int,
        cpus: int,
        *,
        kernel: kernels.Kernel = kernels.LINUX,
        hz: int = 250,
        seed: int = 0,
        sockets: int = 1,
        noise: Noise | None = DEFAULT_NOISE,
        switch_us: float = 3.0,
        wake_us: float = 0.0,
        max_vms: int | None = None,
        max_threads: int | None = None,
        network: Network = DEFAULT_NETWORK,
    ) -> None:
        if cpus % sockets:
            raise ValueError(f'{cpus} CPUs cannot be split over {sockets}')
        noise = noise or Noise(every_us=0.0)
        self.count = count
        self.kernel = kernel
        self.cpus = cpus
        self.vms: list[Vm] = []
        self.state = state.allocate(
            count,
            cpus,
            count * (max_threads or 12 * cpus + 128),
            count * ((max_vms or 6 * cpus + 32) + 2),
        )
        self._network = network
        self._barriers: dict[str, int] = {}
        self.messages_by_barrier: dict[int, int] = {}
        k: Any = self.state.k[0]
        k['cpus'] = count * cpus
        k['per_host'] = cpus
        k['sockets'] = sockets
        k['per_socket'] = cpus // sockets
        k['max_threads'] = len(self.state.threads)
        k['max_barriers'] = len(self.state.barriers)
        match kernel:
            case kernels.Linux():
                k['scheduler'] = state.EEVDF
                k['tick'] = 1_000_000_000 // hz
                # sysctl_sched_base_slice and get_update_sysctl_factor().
                k['slice'] = 700_000 * (1 + int(np.log2(min(cpus, 8))))
            case kernels.XenCredit():
                k['scheduler'] = state.CREDIT
                k['tick'] = k['slice'] = kernel.slice_us * _NS
                k['ratelimit'] = kernel.ratelimit_us * _NS
                self.state.hosts['period'] = k['slice']
        k['switch_cost'] = round(switch_us * _NS)
        k['wake_cost'] = round(wake_us * _NS)
        k['noise_every'] = round(noise.every_us * _NS)
        k['noise_lasts'] = round(noise.lasts_us * _NS)
        self.state.random[0] = np.uint64(seed * 0x9E3779B9 + 12345)
        for host in range(count):
            # The root groups come first: see kernel.layout.
            self.add_group(host, 0, state.UNIT)
        self.run(engine.BOOT)

    @property
    def now_us(self) -> int:
        """Return the time, in microseconds."""
        return int(self.state.k[0]['now']) // _NS

    @property
    def events(self) -> int:
        """Return the number of events so far."""
        return int(self.state.k[0]['events'])

    @property
    def migrations(self) -> int:
        """Return the number of moves of threads between CPUs so far."""
        return int(self.state.k[0]['migrations'])

    def advance(self, until_us: int) -> None:
        """Simulate until a time."""
        until = until_us * _NS
        if until < self.state.k[0]['now']:
            raise ValueError('a simulated host cannot go back in time')
        self.run(engine.ADVANCE, 0, until)

    def run(
        self, command: int, which: int = 0, value: int = 0, other: int = 0
    ) -> None:
        """Have the compiled kernel do something."""
        engine.run(self.state, command, which, value, other)

    def reset_latencies(self) -> None:
        """Forget the latencies so far, as after a warm-up."""
        self.state.wakeups[:] = 0
        self.state.responses[:] = 0

    def add_group(self, host: int, parent: int, weight: float) -> int:
        """Add a control group of one host and return its number."""
        k: Any = self.state.k[0]
        number = int(k['groups'])
        if number >= len(self.state.groups):
            raise ValueError('too many VMs: see max_vms')
        self.state.groups[number]['parent'] = parent
        self.state.groups[number]['host'] = host
        self.state.groups[number]['weight'] = weight
        k['groups'] = number + 1
        self.run(engine.ADD_GROUP, number)
        return number

    def add(
        self,
        program: programs.Program,
        count: int,
        host: int,
        group: int,
        weight: float,
        allowed_cpus: frozenset[int] | None,
        barrier_group: str | None,
        busy: int | None = None,
    ) -> int:
        """Start the threads of a VM, or of a host, and return its number.

        :param allowed_cpus: as the host numbers them; None for all.
        :param busy: how many run the program; None for all.
        """
        k: Any = self.state.k[0]
        number = len(self.vms)
        first = int(k['threads'])
        if first + count > len(self.state.threads):
            raise ValueError('too many vCPUs for the simulated hosts')
        added = Vm(host, group, range(first, first + count), program)
        self.vms.append(added)
        k['threads'] = first + count
        record = self.state.vms[number]
        record['begin'], record['end'] = first, first + count
        record['barrier'] = -1
        if isinstance(program, programs.Barrier):
            record['barrier'] = self._barrier(program, barrier_group)
        for index, thread in enumerate(added.threads):
            self._fill(thread, number, added, busy is None or index < busy)
            self.state.entities[thread]['weight'] = weight
            if allowed_cpus is not None:
                self.state.allowed[thread, :] = False
                self.state.allowed[thread, sorted(allowed_cpus)] = True
            self.run(engine.START, thread)
        self.update_round(added)
        if isinstance(program, programs.Serve) and program.interval_us:
            record['arrival'] = max(
                1, round(program.interval_us * _NS / (busy or count))
            )
            record['arrival_spread'] = program.interval_spread
            self.run(engine.REQUEST, number)
        return number

    def end(self, number: int) -> None:
        """End a VM; its counters stay."""
        for thread in self.vms[number].threads:
            self.run(engine.END, thread)
        self.update_round(self.vms[number])

    def _barrier(self, program: programs.Barrier, name: str | None) -> int:
        """Return the number of the VM's, or its cluster's, barrier."""
        k: Any = self.state.k[0]
        spin = _spin_ns(program)
        if name is not None and name in self._barriers:
            barrier = self.state.barriers[self._barriers[name]]
            if barrier['spin'] < 0 <= spin or 0 <= spin < barrier['spin']:
                barrier['spin'] = spin
            return self._barriers[name]
        number = int(k['barriers'])
        k['barriers'] = number + 1
        barrier = self.state.barriers[number]
        barrier['at'] = k['now']
        barrier['head'] = -1
        barrier['work'] = round(program.work_us * _NS)
        barrier['spread'] = program.spread
        barrier['round_ns'] = barrier['work']
        barrier['resend'] = round(self._network.resend_us * _NS)
        barrier['spin'] = spin
        if name is not None:
            self._barriers[name] = number
        return number

    def update_round(self, vm: Vm) -> None:
        """Set how long a round lasts, and its messages are under way.

        It lasts as long as the longest of all members' works.
        """
        if not isinstance(vm.program, programs.Barrier):
            return
        number = int(self.state.threads[vm.threads.start]['barrier'])
        barrier = self.state.barriers[number]
        members = int(barrier['members'])
        spread = vm.program.spread
        if spread > 1.0:
            factor = sum(1.0 / n for n in range(1, members + 1))
        else:
            factor = 1.0 + spread * (members - 1) / (members + 1)
        pattern, hosts = vm.program.pattern, self.hosts_of(number)
        flight = round(self._network.flight_us(pattern, hosts) * _NS)
        loss = self._network.resend_part(pattern, hosts)
        self.messages_by_barrier[number] = messages(pattern, hosts)
        barrier['flight'] = flight
        barrier['loss'] = loss
        barrier['round_ns'] = (
            float(barrier['work']) * factor
            + flight
            + loss * float(barrier['resend'])
        )

    def hosts_of(self, barrier: int) -> int:
        """Return on how many hosts a barrier has members."""
        hosts = set()
        thread = int(self.state.barriers[barrier]['head'])
        while thread >= 0:
            group = int(self.state.threads[thread]['group'])
            hosts.add(int(self.state.groups[group]['host']))
            thread = int(self.state.member[thread])
        return len(hosts)

    def _fill(self, thread: int, number: int, vm: Vm, busy: bool) -> None:
        """Fill the record of a thread that does the VM's program."""
        record = self.state.threads[thread]
        record['group'] = vm.group
        record['vm'] = number
        record['barrier'] = self.state.vms[number]['barrier']
        program = vm.program
        if not busy:
            record['kind'] = state.ABSENT
            return
        match program:
            case programs.Run():
                record['kind'] = state.HOG
            case programs.Sleep():
                record['kind'] = state.TIMER
                record['work'] = round(program.run_us * _NS)
                record['sleep'] = round(program.sleep_us * _NS)
                record['spread'] = program.spread
            case programs.Serve():
                record['kind'] = state.SERVER
                record['work'] = round(program.service_us * _NS)
                record['spread'] = program.spread
            case programs.Io():
                record['kind'] = state.IO
                record['work'] = round(program.run_us * _NS)
                record['sleep'] = round(program.wait_us * _NS)
                record['spread'] = program.spread
                record['phase_work'] = round(program.compute_us * _NS)
                record['phase_io'] = round((program.phase_us or 1e12) * _NS)
                record['io_each'] = program.events
            case _:
                record['kind'] = state.BARRIER
                spin = _spin_ns(program)
                record['spin'] = state.NEVER if spin < 0 else spin


def _spin_ns(program: programs.Barrier) -> int:
    """Return how long a member spins before it sleeps; -1 if it never does."""
    match program:
        case programs.Spin():
            return -1
        case programs.SpinThenBlock():
            return round(program.spin_us * _NS)
        case programs.Block():
            return 0
