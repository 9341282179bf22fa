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

"""A simulated host: VMs on a kernel's CPU scheduler."""

import dataclasses
from typing import Any

import numpy as np

from nova_vhpc.sim import programs
from nova_vhpc.sim.kernel import engine, state

_NS = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """Interrupts and stolen time: each CPU is taken now and then.

    :ivar every_us: mean time between two on one CPU; 0 for none.
    :ivar lasts_us: mean time that one takes.
    """

    every_us: float = 5_000.0
    lasts_us: float = 15.0


_DEFAULT_NOISE = Noise()


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Vm:
    group: int
    threads: range
    program: programs.Program


class Host:
    """A host; the same seed and calls give the same results.

    Written values take effect at once; what they cost is the player's.

    :param cpus: number of CPUs, evenly split over the sockets.
    :param hz: ticks per second, each CPU's in a phase of its own.
    :param noise: None for none.
    :param switch_us: time that a thread loses when it begins to run.
    :param player: who writes, or None if writes cost nothing.
    :param machine_weight: weight of a group that holds all VMs, as systemd's
        ``machine.slice`` does; None if VMs compete with the host's threads.
    :param max_vms: of all, also of those that ended.
    """

    def __init__(
        self,
        cpus: int,
        *,
        hz: int = 250,
        seed: int = 0,
        sockets: int = 1,
        noise: Noise | None = _DEFAULT_NOISE,
        switch_us: float = 3.0,
        player: Player | None = None,
        machine_weight: int | None = None,
        max_vms: int | None = None,
    ) -> None:
        if cpus % sockets:
            raise ValueError(f'{cpus} CPUs cannot be split over {sockets}')
        vms = max_vms or 6 * cpus + 32
        noise = noise or Noise(every_us=0.0)
        self.cpus = cpus
        self._state = state.allocate(cpus, 12 * cpus + 128, vms + 2)
        self._barriers: dict[str, int] = {}
        self._vms: list[_Vm] = []
        self._player: int | None = None
        k: Any = self._state.k[0]
        k['cpus'] = cpus
        k['sockets'] = sockets
        k['per_socket'] = cpus // sockets
        k['max_threads'] = len(self._state.threads)
        k['max_barriers'] = len(self._state.barriers)
        k['tick'] = 1_000_000_000 // hz
        # sysctl_sched_base_slice, scaled by get_update_sysctl_factor().
        k['slice'] = 700_000 * (1 + int(np.log2(min(cpus, 8))))
        k['switch_cost'] = round(switch_us * _NS)
        k['noise_every'] = round(noise.every_us * _NS)
        k['noise_lasts'] = round(noise.lasts_us * _NS)
        self._state.random[0] = np.uint64(seed * 0x9E3779B9 + 12345)
        self._add_group(0, state.UNIT)
        self._parent = 0
        self._run(engine.BOOT)
        if machine_weight is not None:
            self._parent = self._add_group(0, machine_weight)
        if player is not None:
            self._player = self._add(
                programs.Serve(0, player.write_us),
                1,
                0,
                player.weight,
                None,
                None,
            )

    @property
    def now_us(self) -> int:
        return int(self._state.k[0]['now']) // _NS

    @property
    def events(self) -> int:
        """Number of events so far."""
        return int(self._state.k[0]['events'])

    @property
    def migrations(self) -> int:
        """Number of moves of threads between CPUs so far."""
        return int(self._state.k[0]['migrations'])

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
        group = self._add_group(self._parent, weight)
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

    @property
    def vms(self) -> int:
        """Number of VMs and loads; their numbers begin at 0."""
        return len(self._vms)

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
            group = self._add_group(0, weight)
            return self._add(
                load, threads, group, state.UNIT, allowed_cpus, None
            )
        return self._add(load, threads, 0, weight, allowed_cpus, None)

    def remove_vm(self, vm: int) -> None:
        """End a VM; its counters stay."""
        for thread in self._vms[vm].threads:
            self._run(engine.END, thread)
        self._update_round(self._vms[vm])

    def set_weight(self, vm: int, weight: int) -> None:
        """Write ``cpu.shares``; 1,024 is the default.

        :raises OSError: ``cpu.idle`` is 1, as on Linux.
        """
        group = self._vms[vm].group
        if self._state.groups[group]['idle']:
            raise OSError(22, 'cpu.shares cannot be set while cpu.idle is 1')
        self._run(engine.SET_WEIGHT, group, weight)
        self._charge()

    def set_idle(self, vm: int, idle: bool) -> None:
        """Write ``cpu.idle``; 0 leaves the default weight."""
        self._run(engine.SET_IDLE, self._vms[vm].group, int(idle))
        self._charge()

    def set_pins(self, vm: int, pins: tuple[frozenset[int], ...]) -> None:
        """Set where each vCPU may run."""
        for thread, pin in zip(self._vms[vm].threads, pins, strict=True):
            self._state.allowed[thread, :] = False
            self._state.allowed[thread, sorted(pin)] = True
            self._run(engine.REPIN, thread)
        self._charge()

    def set_bandwidth(self, vm: int, period_us: int, quota_us: int) -> None:
        """Set the quota of each vCPU; 0 or less for none."""
        for thread in self._vms[vm].threads:
            self._run(
                engine.SET_QUOTA, thread, period_us * _NS, quota_us * _NS
            )
        self._charge()

    def advance(self, until_us: int) -> None:
        """Simulate until a time."""
        until = until_us * _NS
        if until < self._state.k[0]['now']:
            raise ValueError('a simulated host cannot go back in time')
        self._run(engine.ADVANCE, 0, until)

    def counters(self, vm: int) -> Counters:
        """Return what became of a VM until now."""
        this = self._vms[vm]
        threads = self._state.threads[this.threads.start : this.threads.stop]
        record = self._state.vms[vm]
        if isinstance(this.program, programs.Barrier):
            barrier = self._state.barriers[int(record['barrier'])]
            progress = self._passed(barrier) * this.program.work_us
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
            io_events=int(record['io_events']),
            wake_ups=int(self._state.wakeups[vm].sum()),
            latency_p50_us=p50_us,
            latency_p99_us=p99_us,
            latency_max_us=max_us,
            requests=int(record['requests']),
            response_us=_percentiles(self._state.responses[vm]),
            cpus=tuple(threads['cpu'].tolist()),
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
        self._state.wakeups[:] = 0
        self._state.responses[:] = 0

    def stolen_us(self) -> tuple[float, ...]:
        """Return what noise took of each CPU so far."""
        stolen = self._state.cpus['stolen'] / _NS
        return tuple(stolen.tolist())

    def _run(
        self, command: int, which: int = 0, value: int = 0, other: int = 0
    ) -> None:
        engine.run(self._state, command, which, value, other)

    def _charge(self) -> None:
        if self._player is not None:
            self._run(engine.REQUEST, self._player)

    def _add_group(self, parent: int, weight: float) -> int:
        k: Any = self._state.k[0]
        number = int(k['groups'])
        if number >= len(self._state.groups):
            raise ValueError('too many VMs: see max_vms')
        self._state.groups[number]['parent'] = parent
        self._state.groups[number]['weight'] = weight
        k['groups'] = number + 1
        self._run(engine.ADD_GROUP, number)
        return number

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
        k: Any = self._state.k[0]
        number = len(self._vms)
        first = int(k['threads'])
        if first + count > len(self._state.threads):
            raise ValueError('too many vCPUs for this simulated host')
        vm = _Vm(group, range(first, first + count), program)
        self._vms.append(vm)
        k['threads'] = first + count
        record = self._state.vms[number]
        record['barrier'] = -1
        if isinstance(program, programs.Barrier):
            record['barrier'] = self._barrier(program, number, barrier_group)
        for index, thread in enumerate(vm.threads):
            self._fill(thread, number, vm, busy is None or index < busy)
            self._state.entities[thread]['weight'] = weight
            if allowed_cpus is not None:
                self._state.allowed[thread, :] = False
                self._state.allowed[thread, sorted(allowed_cpus)] = True
            self._run(engine.START, thread)
        self._update_round(vm)
        if isinstance(program, programs.Serve) and program.interval_us:
            record['arrival'] = max(
                1, round(program.interval_us * _NS / (busy or count))
            )
            self._run(engine.REQUEST, number)
        return number

    def _barrier(
        self, program: programs.Barrier, vm: int, name: str | None
    ) -> int:
        """Return the number of the VM's, or its cluster's, barrier."""
        k: Any = self._state.k[0]
        if name is not None and name in self._barriers:
            return self._barriers[name]
        number = int(k['barriers'])
        k['barriers'] = number + 1
        barrier = self._state.barriers[number]
        barrier['at'] = k['now']
        barrier['head'] = -1
        barrier['work'] = round(program.work_us * _NS)
        barrier['spread'] = program.spread
        barrier['round_ns'] = barrier['work']
        match program:
            case programs.Spin():
                barrier['spin'] = -1
            case programs.SpinThenBlock():
                barrier['spin'] = round(program.spin_us * _NS)
            case programs.Block():
                barrier['spin'] = 0
        if name is not None:
            self._barriers[name] = number
        return number

    def _update_round(self, vm: _Vm) -> None:
        """Set how long a round lasts: the longest of all members' works."""
        number = int(self._state.threads[vm.threads.start]['barrier'])
        if not isinstance(vm.program, programs.Barrier):
            return
        barrier = self._state.barriers[number]
        members = int(barrier['members'])
        spread = vm.program.spread
        if spread > 1.0:
            factor = sum(1.0 / n for n in range(1, members + 1))
        else:
            factor = 1.0 + spread * (members - 1) / (members + 1)
        barrier['round_ns'] = float(barrier['work']) * factor

    def _fill(self, thread: int, number: int, vm: _Vm, busy: bool) -> None:
        """Fill the record of a thread that does the VM's program."""
        record = self._state.threads[thread]
        record['group'] = vm.group
        record['vm'] = number
        record['barrier'] = self._state.vms[number]['barrier']
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
    p50, p99, most = (
        0.1 * (2.0 ** ((bucket + 0.5) / 16.0) - 1.0) for bucket in buckets
    )
    return p50, p99, most
