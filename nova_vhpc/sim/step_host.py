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

"""A simulated host: the facade of the compiled kernel."""

import dataclasses
import math

import numpy as np

from nova_vhpc.sim import step_kernel as kernel
from nova_vhpc.sim import step_programs as programs

_ALONE = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one VM since its start; those of latencies may be reset.

    :ivar run_us: CPU time by vCPU.
    :ivar wait_us: time that each vCPU was runnable but not running.
    :ivar runs: number of times that each vCPU was put on a CPU.
    :ivar progress_us: progress of its program.
    :ivar wake_ups: number of wake-ups that the latency is known of.
    :ivar cpus: CPU of each vCPU now.
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
    cpus: tuple[int, ...]


@dataclasses.dataclass(slots=True)
class _Vm:
    program: programs.Program
    vcpus: int
    weight: int
    bandwidth: tuple[int, int] | None
    allowed_cpus: frozenset[int]
    group: str | None


class Host:
    """CPUs with VMs and threads. All VMs must be added before it runs.

    :param hz: frequency of the kernel's tick.
    :param seed: for everything random.
    :param noise_us: mean time between two interruptions of each CPU by the
        system; 0 for none.
    """

    def __init__(
        self,
        cpus: int,
        *,
        hz: int = 250,
        seed: int = 0,
        sockets: int = 1,
        noise_us: float = 0.0,
    ) -> None:
        self._cpus = cpus
        self._hz = hz
        self._seed = seed
        self._sockets = sockets
        self._noise_us = noise_us
        self._vms: list[_Vm] = []
        self._state: kernel.State | None = None
        self._ahead_us = 0

    @property
    def now_us(self) -> int:
        """The simulated time, in microseconds."""
        return self._ahead_us

    def add_vm(
        self,
        program: programs.Program,
        vcpus: int,
        *,
        weight: int = 1024,
        bandwidth: tuple[int, int] | None = None,
        allowed_cpus: frozenset[int] | None = None,
        barrier_group: str | None = None,
    ) -> int:
        """Add a VM; return its number."""
        everywhere = frozenset(range(self._cpus))
        self._vms.append(
            _Vm(
                program,
                vcpus,
                weight,
                bandwidth,
                allowed_cpus or everywhere,
                barrier_group,
            )
        )
        return len(self._vms) - 1

    def add_outside_load(self, program: programs.Program, threads: int) -> int:
        """Add threads that belong to no VM."""
        return self.add_vm(program, threads, weight=1024 * threads)

    def set_weight(self, vm: int, weight: int) -> None:
        """Set a VM's weight."""
        state = self._running()
        state.v_shares[vm] = weight
        kernel.reweight(state, vm)

    def set_idle(self, vm: int, idle: bool) -> None:
        """Set ``cpu.idle`` of a VM's group."""
        state = self._running()
        state.v_idle[vm] = int(idle)
        kernel.reweight(state, vm)

    def set_pins(self, vm: int, pins: tuple[frozenset[int], ...]) -> None:
        """Set the CPUs that each vCPU may use."""
        state = self._running()
        first = state.v_first[vm]
        for vcpu, pin in enumerate(pins):
            state.t_allowed[first + vcpu] = _mask(pin)
            kernel.repin(state, first + vcpu)

    def set_bandwidth(self, vm: int, period_us: int, quota_us: int) -> None:
        """Set period and quota of each vCPU; a negative quota is none."""
        state = self._running()
        first = state.v_first[vm]
        threads = slice(first, first + state.v_threads[vm])
        state.t_quota[threads] = max(0, quota_us)
        state.t_period[threads] = period_us
        state.timer_us[0] = 0.0

    def advance(self, until_us: int) -> None:
        """Run until a time, in microseconds."""
        state = self._running()
        kernel.advance(state, float(until_us))
        self._ahead_us = until_us

    def reset_latencies(self) -> None:
        """Forget the latencies of all wake-ups."""
        self._running().v_latencies[:] = 0

    def counters(self, vm: int) -> Counters:
        """Return the counters of a VM."""
        state = self._running()
        first = int(state.v_first[vm])
        threads = slice(first, first + int(state.v_threads[vm]))
        now_us = state.now_us[0]
        running = set(state.c_running.tolist())
        wait_us = [
            float(state.t_wait[t])
            + (
                now_us - float(state.t_since[t])
                if state.t_state[t] == kernel.QUEUED and t not in running
                else 0.0
            )
            for t in range(threads.start, threads.stop)
        ]
        p50_us, p99_us, max_us = _percentiles(state.v_latencies[vm])
        return Counters(
            run_us=tuple(state.t_run[threads].tolist()),
            wait_us=tuple(wait_us),
            runs=tuple(state.t_runs[threads].tolist()),
            progress_us=float(state.v_progress[vm]),
            io_events=int(state.v_events[vm]),
            wake_ups=int(state.v_latencies[vm].sum()),
            latency_p50_us=p50_us,
            latency_p99_us=p99_us,
            latency_max_us=max_us,
            cpus=tuple(state.t_cpu[threads].tolist()),
        )

    def _running(self) -> kernel.State:
        if self._state is None:
            self._state = self._start()
        return self._state

    def _start(self) -> kernel.State:
        chance = np.random.default_rng(self._seed)
        vms, cpus = self._vms, self._cpus
        threads = sum(vm.vcpus for vm in vms)
        numbers: dict[str, int] = {}
        groups = []
        for number, vm in enumerate(vms):
            if isinstance(
                vm.program,
                programs.Spin | programs.SpinThenBlock | programs.Block,
            ):
                name = vm.group or f' {number}'
                groups.append(numbers.setdefault(name, len(numbers)))
            else:
                groups.append(_ALONE)
        firsts = np.cumsum([0] + [vm.vcpus for vm in vms])[:-1]
        owner = np.repeat(np.arange(len(vms)), [vm.vcpus for vm in vms])
        encoded = [_encode(vm.program) for vm in vms]
        limits = np.ones(max(1, len(numbers)))
        for group, (_, work, _) in zip(groups, encoded, strict=True):
            if group >= 0:
                limits[group] = work
        siblings = [
            [thread for thread in range(threads) if groups[owner[thread]] == g]
            for g in range(len(numbers))
        ]
        g_threads = np.full((len(limits), threads), -1, np.int64)
        for group, members in enumerate(siblings):
            g_threads[group, : len(members)] = members
        tick_us = 1e6 / self._hz

        def of_threads(values: list[float]) -> kernel.Floats:
            return np.array(values, float)[owner]

        periods = of_threads(
            [vm.bandwidth[0] if vm.bandwidth else 100_000 for vm in vms]
        )
        state = kernel.State(
            now_us=np.zeros(1),
            chance=chance.integers(1, 2**63, 1, dtype=np.uint64),
            timer_us=np.zeros(1),
            v_shares=np.array([vm.weight for vm in vms], float),
            v_idle=np.zeros(len(vms), np.int64),
            v_first=firsts.astype(np.int64),
            v_threads=np.array([vm.vcpus for vm in vms], np.int64),
            v_kind=np.array([one[0] for one in encoded], np.int64),
            v_work=np.array([one[1] for one in encoded], float),
            v_pause=np.array([one[2] for one in encoded], float),
            v_progress=np.zeros(len(vms)),
            v_events=np.zeros(len(vms), np.int64),
            v_latencies=np.zeros((len(vms), kernel.LATENCY_BINS), np.int64),
            v_group=np.array(groups, np.int64),
            t_vm=owner.astype(np.int64),
            t_cpu=np.full(threads, -1, np.int64),
            t_state=np.zeros(threads, np.int64),
            t_allowed=np.array(
                [_mask(vms[vm].allowed_cpus) for vm in owner], np.uint64
            ),
            t_time=np.zeros(threads),
            t_deadline=np.zeros(threads),
            t_weight=of_threads([vm.weight / vm.vcpus for vm in vms]),
            t_lag=np.zeros(threads),
            t_load=np.ones(threads),
            t_quota=of_threads(
                [vm.bandwidth[1] if vm.bandwidth else 0.0 for vm in vms]
            ),
            t_period=periods,
            t_used=np.zeros(threads),
            t_period_end=chance.uniform(0, 1, threads) * periods,
            t_run=np.zeros(threads),
            t_wait=np.zeros(threads),
            t_since=np.zeros(threads),
            t_runs=np.zeros(threads, np.int64),
            t_woken=np.full(threads, -1.0),
            # All start within the first 50 ms.
            t_wake_at=chance.uniform(0, 50_000, threads),
            t_left=np.zeros(threads),
            t_done=np.zeros(threads),
            t_spun=np.zeros(threads),
            t_budget=np.zeros(threads),
            g_limit=limits,
            g_active=np.zeros(len(limits), np.int64),
            g_length=np.array([len(one) for one in siblings] or [0], np.int64),
            g_threads=g_threads,
            c_running=np.full(cpus, -1, np.int64),
            c_queue=np.full((cpus, threads + 1), -1, np.int64),
            c_length=np.zeros(cpus, np.int64),
            c_tick=chance.uniform(0, tick_us, cpus),
            c_balance=chance.uniform(0, 1_000.0 * cpus, cpus),
            c_failed=np.zeros(cpus, np.int64),
            c_stolen=np.zeros(cpus),
            c_noise=chance.uniform(0, max(1.0, self._noise_us), cpus),
            c_socket=np.arange(cpus) * self._sockets // cpus,
            tick_us=tick_us,
            slice_us=750.0 * (1 + math.log2(min(8, cpus))),
            noise_us=self._noise_us,
        )
        for thread in range(threads):
            state.t_cpu[thread] = chance.integers(cpus)
        return state


def _mask(cpus: frozenset[int]) -> np.uint64:
    return np.uint64(sum(1 << cpu for cpu in cpus))


def _encode(program: programs.Program) -> tuple[int, float, float]:
    """Return kind, work and pause as the kernel knows them."""
    match program:
        case programs.Run():
            return kernel.RUN, 0.0, 0.0
        case programs.Spin(work_us):
            return kernel.SPIN, work_us, 0.0
        case programs.SpinThenBlock(work_us, spin_us):
            return kernel.SPIN_THEN_BLOCK, work_us, spin_us
        case programs.Block(work_us):
            return kernel.BLOCK, work_us, 0.0
        case programs.Sleep(run_us, sleep_us):
            return kernel.SLEEP, run_us, sleep_us
        case programs.Serve(interval_us, service_us):
            return kernel.SERVE, service_us, interval_us
        case programs.Io(run_us, wait_us):
            return kernel.IO, run_us, wait_us


def _percentiles(
    bins: 'np.typing.NDArray[np.int64]',
) -> tuple[float, float, float]:
    counted = np.cumsum(bins)
    total = int(counted[-1])
    if not total:
        return 0.0, 0.0, 0.0
    found = []
    for part in (0.5, 0.99, 1.0):
        index = int(np.searchsorted(counted, part * total))
        found.append(
            kernel.MIN_LATENCY_US * kernel.LATENCY_RATIO ** (index + 0.5)
        )
    return found[0], found[1], found[2]
