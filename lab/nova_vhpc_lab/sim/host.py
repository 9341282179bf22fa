# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A simulated host: VMs on a kernel's CPU scheduler."""

import dataclasses
from typing import Any, Self

import numpy as np

from nova_vhpc_lab.sim import kernels, programs
from nova_vhpc_lab.sim.hosts import DEFAULT_NOISE, Hosts, Noise
from nova_vhpc_lab.sim.kernel import engine, state

_NS = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class Player:
    """The agent's thread that writes: each write costs it CPU time.

    :ivar weight: of the thread, in no group; 9,548 is nice -10.
    :ivar write_us: mean CPU time of a write.
    """

    weight: int = 9_548
    write_us: float = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Counters:
    """What became of a VM since it started.

    Run, wait and runs are as ``/proc/PID/schedstat`` gives them, by vCPU: run
    is charged at ticks and switches, wait once it is over.

    Latencies are those of wake-ups, since :meth:`Host.reset_latencies`.

    :ivar progress_us: see the program; of a barrier's VM per vCPU, of others
        the sum.
    :ivar wake_ups: number of wake-ups of which the latency is known.
    :ivar response_us: 50th, 99th percentile and maximum of response times.
    :ivar cpus: where each vCPU is.
    :ivar barriers: number of barriers passed.
    :ivar barrier_wait_us: time from a vCPU's arrival at a barrier until it may
        go on, running or not: mean of all members, sum of all barriers. Until
        the last change of who runs.
    """

    run_us: tuple[float, ...]
    wait_us: tuple[float, ...]
    runs: tuple[int, ...]
    progress_us: float
    io_events: int
    wake_ups: int
    latency_p50_us: float
    latency_p99_us: float
    latency_max_us: float
    requests: int
    response_us: tuple[float, float, float]
    cpus: tuple[int, ...]
    barriers: int = 0
    barrier_wait_us: float = 0.0

    def mean_wait_us(self, before: 'Counters') -> float:
        """Return how long a vCPU waited at each barrier since then.

        If none was passed, it is what was waited until now.
        """
        waited_us = self.barrier_wait_us - before.barrier_wait_us
        return waited_us / max(1, self.barriers - before.barriers)


class Host:
    """A host; the same seed and calls give the same results.

    Written values take effect at once; what they cost is the player's.

    :param cpus: number of CPUs, evenly split over the sockets.
    :param kernel: its CPU scheduler.
    :param hz: Linux's ticks per second, each CPU's in a phase of its own.
    :param noise: None for none.
    :param switch_us: time that a thread loses when it begins to run.
    :param wake_us: time that it loses on top if it slept.
    :param player: who writes, or None if writes cost nothing.
    :param machine_weight: weight of a group that holds all VMs, as systemd's
        ``machine.slice`` does; None if VMs compete with the host's threads.
    :param max_vms: of all, also of those that ended.
    :ivar numbers: of its VMs and loads, those that ended included.
    """

    def __init__(
        self,
        cpus: int,
        *,
        kernel: kernels.Kernel = kernels.LINUX,
        hz: int = 250,
        seed: int = 0,
        sockets: int = 1,
        noise: Noise | None = DEFAULT_NOISE,
        switch_us: float = 3.0,
        wake_us: float = 0.0,
        player: Player | None = None,
        machine_weight: int | None = None,
        max_vms: int | None = None,
    ) -> None:
        self._join(
            Hosts(
                1,
                cpus,
                kernel=kernel,
                hz=hz,
                seed=seed,
                sockets=sockets,
                noise=noise,
                switch_us=switch_us,
                wake_us=wake_us,
                max_vms=max_vms,
            ),
            0,
            player,
            machine_weight,
        )

    @classmethod
    def of(
        cls,
        hosts: Hosts,
        index: int,
        *,
        player: Player | None = None,
        machine_weight: int | None = None,
    ) -> Self:
        """Return one of several hosts that share a clock.

        :param index: its number among them.
        """
        host = cls.__new__(cls)
        host._join(hosts, index, player, machine_weight)
        return host

    def _join(
        self,
        hosts: Hosts,
        index: int,
        player: Player | None,
        machine_weight: int | None,
    ) -> None:
        self._hosts = hosts
        self._index = index
        self._state = hosts.state
        self._parent = index
        self._player: int | None = None
        self.cpus = hosts.cpus
        self.numbers: list[int] = []
        if machine_weight is not None:
            self._parent = hosts.add_group(index, index, machine_weight)
        if player is not None:
            self._player = self._add(
                programs.Serve(0, player.write_us),
                1,
                index,
                player.weight,
                None,
                None,
            )

    @property
    def now_us(self) -> int:
        return self._hosts.now_us

    @property
    def events(self) -> int:
        """Number of events so far."""
        return self._hosts.events

    @property
    def migrations(self) -> int:
        """Number of moves of threads between CPUs so far."""
        return self._hosts.migrations

    def add_vm(
        self,
        program: programs.Program,
        vcpus: int,
        *,
        weight: int = 1_024,
        bandwidth: tuple[int, int] | None = None,
        allowed_cpus: frozenset[int] | None = None,
        barrier_group: str | None = None,
        busy: int | None = None,
    ) -> int:
        """Start a VM.

        :param bandwidth: period and quota of each vCPU, in microseconds.
        :param allowed_cpus: None for all.
        :param barrier_group: VMs of the same name meet at the same barriers.
        :param busy: how many vCPUs run the program; the others sleep.
        :returns: its number.
        """
        group = self._hosts.add_group(self._index, self._parent, weight)
        vm = self._add(
            program,
            vcpus,
            group,
            state.UNIT,
            allowed_cpus,
            barrier_group,
            busy,
        )
        if bandwidth is not None:
            self.set_bandwidth(vm, *bandwidth)
        return vm

    def add_outside_load(
        self,
        load: programs.Program,
        threads: int,
        *,
        weight: int = 1_024,
        grouped: bool = True,
        allowed_cpus: frozenset[int] | None = None,
    ) -> int:
        """Start threads of the host.

        :param grouped: in a control group of their own, or in none.
        :param weight: of the group, or of each thread.
        :returns: a number as of a VM.
        """
        if grouped:
            group = self._hosts.add_group(self._index, self._index, weight)
            return self._add(
                load, threads, group, state.UNIT, allowed_cpus, None
            )
        return self._add(
            load, threads, self._index, weight, allowed_cpus, None
        )

    def remove_vm(self, vm: int) -> None:
        """End a VM; its counters stay."""
        self._hosts.end(vm)

    def set_weight(self, vm: int, weight: int) -> None:
        """Write ``cpu.shares``; 1,024 is the default.

        :raises OSError: ``cpu.idle`` is 1, as on Linux.
        """
        group = self._hosts.vms[vm].group
        if self._state.groups[group]['idle']:
            raise OSError(22, 'cpu.shares cannot be set while cpu.idle is 1')
        self._run(engine.SET_WEIGHT, group, weight)
        self._charge()

    def set_slice(self, vm: int, slice_us: int | None) -> None:
        """Set a VM's time slice under Xen, from its next turn on.

        :param slice_us: None for that of the host.
        """
        kernel = self._require_xen('time slice of a VM')
        slices = self._state.vms['slice']
        slices[vm] = (slice_us or 0) * _NS
        if kernel.accounting_follows:
            default = self._state.k[0]['slice']
            own = slices[self.numbers]
            self._state.hosts[self._index]['period'] = min(
                default, *own[own > 0], default
            )

    def set_coscheduling(self, vm: int, mode: kernels.CoScheduling) -> None:
        """Have a VM's vCPUs run at the same time, from their next turn on."""
        self._require_xen('co-scheduling')
        self._state.vms[vm]['together'] = mode.value

    def _require_xen(self, what: str) -> kernels.XenCredit:
        kernel = self._hosts.kernel
        if not isinstance(kernel, kernels.XenCredit):
            raise ValueError(f'Linux has no {what}')
        return kernel

    def set_idle(self, vm: int, idle: bool) -> None:
        """Write ``cpu.idle``; 0 leaves the default weight.

        :raises ValueError: Xen has nothing like it.
        """
        if isinstance(self._hosts.kernel, kernels.XenCredit):
            raise ValueError('Xen has no cpu.idle')
        self._run(engine.SET_IDLE, self._hosts.vms[vm].group, int(idle))
        self._charge()

    def set_pins(self, vm: int, pins: tuple[frozenset[int], ...]) -> None:
        """Set where each vCPU may run."""
        for thread, pin in zip(self._hosts.vms[vm].threads, pins, strict=True):
            self._state.allowed[thread, :] = False
            self._state.allowed[thread, sorted(pin)] = True
            self._run(engine.REPIN, thread)
        self._charge()

    def set_bandwidth(self, vm: int, period_us: int, quota_us: int) -> None:
        """Set the quota of each vCPU; 0 or less for none."""
        for thread in self._hosts.vms[vm].threads:
            self._run(
                engine.SET_QUOTA, thread, period_us * _NS, quota_us * _NS
            )
        self._charge()

    def request(self, number: int) -> None:
        """Send a request to a VM or load that serves requests."""
        self._run(engine.REQUEST, number)

    def served(self, number: int) -> int:
        """Return the number of requests served so far."""
        return int(self._state.vms[number]['requests'])

    def responses_us(self, vm: int) -> tuple[float, ...]:
        """Return all response times since :meth:`reset_latencies`, sorted."""
        histogram = self._state.responses[vm]
        return tuple(
            time_us
            for bucket in np.flatnonzero(histogram).tolist()
            for time_us in [_bucket_us(bucket)] * int(histogram[bucket])
        )

    def advance(self, until_us: int) -> None:
        """Simulate until a time."""
        self._hosts.advance(until_us)

    def counters(self, vm: int) -> Counters:
        """Return what became of a VM until now."""
        this = self._hosts.vms[vm]
        threads = self._state.threads[this.threads.start : this.threads.stop]
        record = self._state.vms[vm]
        passed, waited_us, received_and_sent = 0, 0.0, 0
        if isinstance(this.program, programs.Barrier):
            barrier = self._state.barriers[int(record['barrier'])]
            passed = self._passed(barrier)
            received_and_sent = (
                2
                * passed
                * self._hosts.messages_by_barrier[int(record['barrier'])]
            )
            progress = passed * this.program.work_us
            members = max(1, int(barrier['members']))
            waited_us = float(barrier['waited']) / _NS / members
        else:
            now = self._state.k[0]['now']
            done = threads['done'] + np.where(
                threads['executing'], now - threads['exec_since'], 0
            )
            progress = float(done.sum()) / _NS
        p50_us, p99_us, max_us = _percentiles(self._state.wakeups[vm])
        return Counters(
            run_us=tuple((threads['run'] / _NS).tolist()),
            wait_us=tuple((threads['wait'] / _NS).tolist()),
            runs=tuple(threads['runs'].tolist()),
            progress_us=progress,
            io_events=int(record['io_events']) + received_and_sent,
            wake_ups=int(self._state.wakeups[vm].sum()),
            latency_p50_us=p50_us,
            latency_p99_us=p99_us,
            latency_max_us=max_us,
            requests=int(record['requests']),
            response_us=_percentiles(self._state.responses[vm]),
            cpus=tuple((threads['cpu'] % self.cpus).tolist()),
            barriers=passed,
            barrier_wait_us=waited_us,
        )

    def _passed(self, barrier: Any) -> int:
        """Return the barriers passed, without bringing them up to now.

        That would draw random numbers, and reading would change the results.
        """
        passed = int(barrier['passed'])
        if barrier['members'] and barrier['executing'] == barrier['members']:
            spread = min(float(barrier['spread']), 4.0)
            if not 0 <= barrier['spin'] <= 2.0 * spread * barrier['work']:
                elapsed = int(self._state.k[0]['now'] - barrier['at'])
                # The first round may end late, the last one has begun.
                passed += max(0, int(elapsed / barrier['round_ns']) - 2)
        return passed

    def reset_latencies(self) -> None:
        """Forget the latencies so far, as after a warm-up."""
        self._hosts.reset_latencies()

    def stolen_us(self) -> tuple[float, ...]:
        """Return what noise took of each CPU so far."""
        first = self._index * self.cpus
        cpus = self._state.cpus[first : first + self.cpus]
        stolen = cpus['stolen'] / _NS
        return tuple(stolen.tolist())

    def _run(
        self, command: int, which: int = 0, value: int = 0, other: int = 0
    ) -> None:
        self._hosts.run(command, which, value, other)

    def _charge(self) -> None:
        if self._player is not None:
            self._run(engine.REQUEST, self._player)

    def _add(
        self,
        program: programs.Program,
        count: int,
        group: int,
        weight: float,
        allowed_cpus: frozenset[int] | None,
        barrier_group: str | None,
        busy: int | None = None,
    ) -> int:
        number = self._hosts.add(
            program,
            count,
            self._index,
            group,
            weight,
            allowed_cpus,
            barrier_group,
            busy,
        )
        self.numbers.append(number)
        return number


def _percentiles(histogram: Any) -> tuple[float, float, float]:
    """Return median, 99th percentile and maximum, in microseconds."""
    total = int(histogram.sum())
    if not total:
        return 0.0, 0.0, 0.0
    sums = np.cumsum(histogram)
    buckets = [
        int(np.searchsorted(sums, part * total, side='left'))
        for part in (0.5, 0.99)
    ]
    buckets.append(int(np.flatnonzero(histogram)[-1]))
    p50, p99, most = (_bucket_us(bucket) for bucket in buckets)
    return p50, p99, most


def _bucket_us(bucket: int) -> float:
    """Return the middle of a bucket of a histogram."""
    return float(0.1 * (2.0 ** ((bucket + 0.5) / 16.0) - 1.0))
