# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Makes the controller's views from the counters of a simulated host.

A view holds what the agent's probes would read: schedstat's run and wait times
and numbers of runs, and I/O events. Progress and the programs stay hidden.
"""

from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc_lab.sim import host_spec, kernels
from nova_vhpc_lab.sim.host import Counters, Host

IO_SCALE_US = 100_000
"""I/O events are counted per 100 ms."""

LIMITS = model.ActuatorLimits(
    effective_min_slice_us=4_000,
    min_shares=2,
    max_shares=262_144,
    can_idle=True,
)
"""What libvirt accepts on cgroup v1."""

XEN_MAX_WEIGHT = 65_535


def limits(kernel: kernels.Kernel) -> model.ActuatorLimits:
    """Return what a simulated host's kernel accepts.

    Under Xen a VM has a time slice without any quota. The control core cuts
    limits down to libvirt's, so that no slice is shorter than 1 ms.
    """
    match kernel:
        case kernels.XenCredit():
            return model.ActuatorLimits(
                effective_min_slice_us=max(1, kernel.ratelimit_us),
                max_shares=XEN_MAX_WEIGHT,
                min_shares=1,
                thread_slices=True,
                can_place=False,
            )
        case kernels.Linux():
            return LIMITS


OUTSIDE_TICKS = 10
"""Control periods between two readings of what runs outside of VMs."""


class _Meter:
    """Turns the counters of one VM into samples.

    :param reads_spins: whether the guest says how long it waits at barriers,
        as the guests of the ATC paper did. Else the synchronisation latency
        is that of vCPUs which wait for a CPU.
    """

    def __init__(
        self, counters: Counters, now_us: int, reads_spins: bool
    ) -> None:
        self._last = counters
        self._reads_spins = reads_spins
        self._last_us = now_us

    def sample(self, counters: Counters, now_us: int) -> model.Sample:
        """Return the increase since the last call."""
        last, self._last = self._last, counters
        elapsed_us = now_us - self._last_us
        self._last_us = now_us
        if elapsed_us <= 0:
            return model.Sample()
        wait_us = _increase(counters.wait_us, last.wait_us)
        return model.Sample(
            sync_latency_us=counters.mean_wait_us(last)
            if self._reads_spins
            else sum(wait_us) / len(wait_us),
            io_events=(counters.io_events - last.io_events)
            * (IO_SCALE_US / elapsed_us),
            vcpu_run_us=_increase(counters.run_us, last.run_us),
            vcpu_wait_us=wait_us,
            vcpu_runs=tuple(
                now - was
                for now, was in zip(counters.runs, last.runs, strict=True)
            ),
            elapsed_us=float(elapsed_us),
        )


def _increase(
    now: tuple[float, ...], was: tuple[float, ...]
) -> tuple[float, ...]:
    return tuple(float(a - b) for a, b in zip(now, was, strict=True))


class Sensor:
    """Reads all VMs of a host once per control period.

    :param spec: the host's CPUs and VMs.
    :param numbers: the simulated host's number of each VM, by name.
    :param clock_offset_us: by which the host's wall clock is fast.
    """

    def __init__(
        self,
        host: Host,
        spec: host_spec.HostSpec,
        numbers: Mapping[str, int],
        period_us: int,
        clock_offset_us: int = 0,
    ) -> None:
        self._host = host
        self._clock_offset_us = clock_offset_us
        self._numbers = numbers
        self._period_us = period_us
        self._cpus = spec.topology()
        self._limits = limits(spec.kernel)
        self._everywhere = frozenset(range(spec.cpus))
        self._managed = [vm for vm in spec.vms if vm.opted_in]
        self._others = [vm for vm in spec.vms if not vm.opted_in]
        self._meters = {
            name: _Meter(
                host.counters(number),
                host.now_us,
                isinstance(spec.kernel, kernels.XenCredit),
            )
            for name, number in numbers.items()
        }
        self._tick = 0
        self._vm_numbers = set(numbers.values())
        self._outside = (host.now_us, 0.0)
        self._outside_mean = 0.0

    def original(self, vm: host_spec.VmSpec) -> model.CpuTune:
        """Return a VM's cputune before the agent writes to it."""
        return model.CpuTune(
            host_spec.PERIOD_US,
            model.UNLIMITED if vm.quota_us is None else vm.quota_us,
            vm.weight,
            (vm.allowed_cpus or self._everywhere,) * vm.vcpus,
        )

    def view(
        self, in_force: Mapping[str, model.CpuTune], late_us: float
    ) -> model.HostView:
        """Return the host as the agent sees it now.

        :param in_force: cputune of each managed VM, by name.
        :param late_us: mean lateness of gang windows; 0 if unknown.
        """
        self._tick += 1
        now_us = self._host.now_us
        return model.HostView(
            self._tick,
            now_us,
            self._period_us,
            self._cpus,
            tuple(
                model.VmView(
                    vm.name,
                    vm.vcpus,
                    workload=vm.workload,
                    time_slice_us=vm.time_slice_us,
                    cluster=vm.cluster,
                    paradigm=vm.paradigm,
                    repin=vm.repin,
                    allowed_cpus=vm.allowed_cpus,
                    original=self.original(vm),
                    in_force=in_force[vm.name],
                    sample=self._sample(vm.name, now_us),
                )
                for vm in self._managed
            ),
            wall_us=now_us + self._clock_offset_us,
            limits=self._limits,
            others=tuple(
                model.OtherVm(
                    vm.name,
                    vm.vcpus,
                    vm.weight,
                    self._sample(vm.name, now_us),
                    self.original(vm).share,
                    self.original(vm).vcpu_pins,
                )
                for vm in self._others
            ),
            window_late_us=late_us,
            outside_cpus=self._outside_cpus(),
        )

    def _outside_cpus(self) -> float:
        """Return the CPUs that loads outside of VMs use; mean of a second."""
        if self._tick % OUTSIDE_TICKS == 1:
            now_us = self._host.now_us
            run_us = sum(
                sum(self._host.counters(number).run_us)
                for number in self._host.numbers
                if number not in self._vm_numbers
            )
            then_us, before_us = self._outside
            self._outside = now_us, run_us
            if now_us > then_us:
                self._outside_mean = (run_us - before_us) / (now_us - then_us)
        return self._outside_mean

    def _sample(self, name: str, now_us: int) -> model.Sample:
        counters = self._host.counters(self._numbers[name])
        return self._meters[name].sample(counters, now_us)
