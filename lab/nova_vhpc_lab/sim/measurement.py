# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Runs a simulated host for a while and records what its VMs receive."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from nova_vhpc.control import controller
from nova_vhpc_lab.sim import agent, coscheduler, host_spec
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.sim.host import Host

SAMPLE_US = 100_000

Series = npt.NDArray[np.float64]

MakeController = Callable[[], controller.Controller]


MIN_WAKE_UPS = 200
"""Wake-ups from which on a 99th percentile means something."""


@dataclasses.dataclass(frozen=True, slots=True)
class VmRecord:
    """What one VM received while it was measured.

    :ivar received_us: CPU time of all its vCPUs since the beginning, at the
        beginning and after each :data:`SAMPLE_US`.
    :ivar progress_us: progress of its program, likewise.
    :ivar latency_p99_us: 99th percentile of the latency of its wake-ups; None
        if it woke up too seldom.
    :ivar barrier_wait_us: mean wait of a vCPU at a barrier; None if it passed
        none.
    :ivar response_us: median response time; None if it served no request.
    :ivar responses_us: response times of its requests.
    """

    received_us: Series
    progress_us: Series
    latency_p99_us: float | None
    barrier_wait_us: float | None = None
    response_us: float | None = None
    responses_us: tuple[float, ...] = ()

    @property
    def cpus(self) -> float:
        """CPUs received on the mean."""
        return mean(self.received_us)

    @property
    def progress(self) -> float:
        """Progress, as a part of the time."""
        return mean(self.progress_us)


def mean(series: Series) -> float:
    """Return the mean rate of a series."""
    return float(series[-1] - series[0]) / (SAMPLE_US * (len(series) - 1))


def windows(series: Series, window_us: int) -> Series:
    """Return the rates in all windows of a length, one for each sample.

    :param series: what was received since the beginning.
    """
    samples = min(window_us // SAMPLE_US, len(series) - 1)
    return (series[samples:] - series[:-samples]) / (samples * SAMPLE_US)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What was measured on one host.

    :ivar vms: by name.
    :ivar windows_part: part of the samples in which gang windows were played.
    :ivar window_late_us: mean lateness of windows at the end; 0 if unknown.
    """

    vms: Mapping[str, VmRecord]
    windows_part: float = 0.0
    window_late_us: float = 0.0


def start(spec: host_spec.HostSpec, seed: int) -> tuple[Host, dict[str, int]]:
    """Return the host with all VMs running, and their numbers by name.

    :param seed: for everything that is random in the kernel and programs.
    """
    host = Host(
        spec.cpus,
        kernel=spec.kernel,
        hz=spec.hz,
        seed=seed,
        sockets=spec.sockets,
        switch_us=spec.switch_us,
        wake_us=spec.wake_us,
        machine_weight=spec.machine_weight,
    )
    return host, add_vms(host, spec)


def add_vms(host: Host, spec: host_spec.HostSpec) -> dict[str, int]:
    """Start all VMs and loads of a host; return the VMs' numbers by name."""
    numbers = {}
    for vm in spec.vms:
        numbers[vm.name] = host.add_vm(
            vm.program,
            vm.vcpus,
            weight=vm.weight,
            bandwidth=None
            if vm.quota_us is None
            else (host_spec.PERIOD_US, vm.quota_us),
            allowed_cpus=vm.allowed_cpus,
            barrier_group=vm.cluster if vm.coupled else None,
            busy=vm.busy,
        )
    for load in spec.loads:
        host.add_outside_load(load.program, load.threads)
    return numbers


def measure(
    spec: host_spec.HostSpec,
    seed: int,
    make_controller: MakeController | None,
    warm_up_s: float,
    seconds: float,
    coscheduling: coscheduler.Settings | None = None,
) -> Record:
    """Run a host and record all of its VMs.

    :param seed: for everything random but the host itself.
    :param make_controller: None for the kernel without nova-vhpc.
    :param coscheduling: to co-schedule the VMs that opted in; None for not.
    """
    host, numbers = start(spec, seed)
    agenda = Agenda(host)
    controlling = None
    if make_controller is not None:
        controlling = agent.Agent(
            host, agenda, spec, numbers, make_controller(), seed
        )
    if coscheduling is not None:
        coscheduler.CoScheduler(
            host,
            agenda,
            [numbers[vm.name] for vm in spec.vms if vm.opted_in],
            coscheduling,
        )
    agenda.run(round(warm_up_s * 1e6))
    host.reset_latencies()
    begin = {name: host.counters(number) for name, number in numbers.items()}
    begin_us = agenda.now_us
    count = round(seconds * 1e6) // SAMPLE_US
    received_us = {name: np.zeros(count + 1) for name in numbers}
    progress_us = {name: np.zeros(count + 1) for name in numbers}
    with_windows = 0
    for sample in range(1, count + 1):
        agenda.run(begin_us + sample * SAMPLE_US)
        for name, number in numbers.items():
            now = host.counters(number)
            received_us[name][sample] = sum(now.run_us) - sum(
                begin[name].run_us
            )
            progress_us[name][sample] = (
                now.progress_us - begin[name].progress_us
            )
        with_windows += (
            controlling is not None
            and controlling.plan is not None
            and controlling.plan.windows is not None
        )
    vms = {}
    for name, number in numbers.items():
        end = host.counters(number)
        vms[name] = VmRecord(
            received_us[name],
            progress_us[name],
            end.latency_p99_us if end.wake_ups >= MIN_WAKE_UPS else None,
            end.mean_wait_us(begin[name])
            if end.barriers > begin[name].barriers
            else None,
            end.response_us[0] if end.requests else None,
            host.responses_us(number),
        )
    late_us = controlling.window_late_us if controlling is not None else 0.0
    return Record(vms, with_windows / count, late_us)
