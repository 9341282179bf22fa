# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What each VM of a host receives with nova-vhpc, against stock Linux.

The same host runs three times: twice under stock Linux, with different random
numbers, and once with nova-vhpc. A VM's *entitlement* is the mean of the CPU
time that it received in the runs under stock Linux: that is what its weight,
pins, quota and demand are worth there.

Stock Linux itself does not give a VM its mean in every window of ten seconds:
unpinned vCPUs meet others by chance, and programs do not always demand the
same. What counts as given in windows of some length is therefore the mean less
three standard deviations of such windows in all runs; but at most the least
of them, because that much is given by stock Linux, too, and not less than nine
tenths of it, because a VM that has two faces under stock Linux would be judged
by neither. A VM's *part* is what it received with nova-vhpc in the worst
window, divided by that. VMs to which stock Linux gives steadily what is theirs
have no such leeway. Some hosts also settle into one of several states that
last for a whole run; so if a VM seems harmed, its host runs four times more
under stock Linux, and all six runs count. :func:`compare` with one more run
under stock Linux, in place of that with nova-vhpc, tells what noise alone
does.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from nova_vhpc_lab.sim import host_spec, measurement, programs
from nova_vhpc_lab.sim.measurement import (
    SAMPLE_US,
    MakeController,
    Record,
    VmRecord,
)

LONG_US = 10_000_000
SHORT_US = 2_000_000

LONG_FLOOR = 0.95
"""The contract: no VM has less over any ten seconds."""

SHORT_FLOOR = 0.90
"""The contract: no VM has less over any two seconds."""

PROGRESS_FLOOR = 0.98

DEVIATIONS = 3.0
"""Standard deviations that are put down to noise."""

LEAST_SEEN = 0.9
"""Part of the least that stock Linux gave, below which nothing is noise."""

LATENCY_CEILING = 1.1

LATENCY_FLOOR_US = 200.0
"""Latencies below this count as this: multiples of next to nothing say
nothing."""

LEAST_PROGRESS = 0.002
"""Least progress that counts, as a part of the time: logarithms are taken."""

LEAST_CPUS = 0.005
"""VMs that receive less than this do not count: they are idle."""

FEW_RUNS = 2
MANY_RUNS = 6
"""Runs under stock Linux: of every host, and where a VM seems harmed."""

_SEED_STEP = 1_000_003
_NULL_RUN = MANY_RUNS


@dataclasses.dataclass(frozen=True, slots=True)
class VmResult:
    """What one VM received, against stock Linux.

    :ivar entitlement: CPUs that it has under stock Linux.
    :ivar received: CPUs that it has with nova-vhpc, on the mean.
    :ivar stock_received: the same in the first run under stock Linux.
    :ivar long_part: its part in windows of ten seconds.
    :ivar short_part: its part in windows of two seconds.
    :ivar stock_progress: progress under stock Linux, as a part of the time.
    :ivar progress_floor: progress below which it is worse off.
    :ivar latency_ratio: 99th percentile of wake-up latency, as a multiple of
        the greater one under stock Linux; None if it seldom wakes up.
    """

    spec: host_spec.VmSpec
    entitlement: float
    received: float
    stock_received: float
    long_part: float
    short_part: float
    progress: float
    stock_progress: float
    progress_floor: float
    latency_ratio: float | None

    @property
    def is_worse_off(self) -> bool:
        """Whether it opted in and progresses less than without nova-vhpc."""
        return self.spec.opted_in and self.progress < self.progress_floor

    @property
    def is_harmed(self) -> bool:
        """Whether anything of the contract seems to be broken."""
        return self.below_095 or self.below_090 or self.is_worse_off

    @property
    def below_095(self) -> bool:
        """Whether it has less than the contract says over ten seconds."""
        return self.long_part < LONG_FLOOR

    @property
    def below_090(self) -> bool:
        """Whether it has less than 0.90 over ten or over two seconds."""
        return min(self.long_part, self.short_part) < SHORT_FLOOR


@dataclasses.dataclass(frozen=True, slots=True)
class HostResult:
    """The VMs of one host.

    :ivar windows_part: part of the time in which gang windows were played.
    """

    spec: host_spec.HostSpec
    vms: tuple[VmResult, ...]
    windows_part: float

    @property
    def worst(self) -> float:
        """Least part of any VM in windows of ten seconds."""
        return min((vm.long_part for vm in self.vms), default=1.0)

    def spreads(self) -> list[tuple[float, float]]:
        """Return for each group of equal VMs how unequal their CPU time is.

        Equal are VMs of the same size, weight, program, pins and quota.

        :returns: with nova-vhpc and under stock Linux, (greatest - least) /
            mean of the CPU time in the whole measurement.
        """
        groups: dict[object, list[VmResult]] = {}
        for vm in self.vms:
            key = dataclasses.replace(vm.spec, name='', cluster=None)
            groups.setdefault(key, []).append(vm)
        return [
            (
                _spread([vm.received for vm in group]),
                _spread([vm.stock_received for vm in group]),
            )
            for group in groups.values()
            if len(group) > 1
        ]


def compare(
    spec: host_spec.HostSpec,
    seed: int,
    make_controller: MakeController | None,
    warm_up_s: float = 15.0,
    seconds: float = 60.0,
) -> HostResult:
    """Run a host under stock Linux and with nova-vhpc.

    :param make_controller: None to compare stock Linux with itself.
    """

    def run_stock(runs: range) -> list[Record]:
        return [
            measurement.measure(
                spec, seed + run * _SEED_STEP, None, warm_up_s, seconds
            )
            for run in runs
        ]

    ours = measurement.measure(
        spec,
        seed if make_controller else seed + _NULL_RUN * _SEED_STEP,
        make_controller,
        warm_up_s,
        seconds,
    )
    stock = run_stock(range(FEW_RUNS))
    results = _compare_all(spec, stock, ours)
    if any(vm.is_harmed for vm in results):
        stock += run_stock(range(FEW_RUNS, MANY_RUNS))
        results = _compare_all(spec, stock, ours)
    return HostResult(spec, results, ours.windows_part)


def _compare_all(
    spec: host_spec.HostSpec, stock: Sequence[Record], ours: Record
) -> tuple[VmResult, ...]:
    """Return the results of all VMs that are not idle."""
    results = (
        _compare_vm(vm, [one.vms[vm.name] for one in stock], ours.vms[vm.name])
        for vm in spec.vms
    )
    return tuple(vm for vm in results if vm.entitlement >= LEAST_CPUS)


def _compare_vm(
    spec: host_spec.VmSpec, stock: Sequence[VmRecord], ours: VmRecord
) -> VmResult:
    def part(window_us: int) -> float:
        rates = np.concatenate(
            [
                measurement.windows(record.received_us, window_us)
                for record in stock
            ]
        )
        given = _noise_floor(rates.mean(), rates.std(), rates.min())
        least = measurement.windows(ours.received_us, window_us).min()
        return float(least) / given if given > 0 else 1.0

    latency_ratio = None
    latencies_us = [
        max(LATENCY_FLOOR_US, record.latency_p99_us)
        for record in (ours, *stock)
        if record.latency_p99_us is not None
    ]
    if len(latencies_us) == 1 + len(stock):
        latency_ratio = latencies_us[0] / max(latencies_us[1:])
    return VmResult(
        spec,
        entitlement=statistics.fmean(record.cpus for record in stock),
        received=ours.cpus,
        stock_received=stock[0].cpus,
        long_part=part(LONG_US),
        short_part=part(SHORT_US),
        progress=ours.progress,
        stock_progress=statistics.fmean(record.progress for record in stock),
        progress_floor=PROGRESS_FLOOR
        * _noise_floor(
            statistics.fmean(record.progress for record in stock),
            _error(stock, ours),
            min(record.progress for record in stock),
        ),
        latency_ratio=latency_ratio,
    )


def _noise_floor(mean: float, deviation: float, least: float) -> float:
    """Return what stock Linux gives, less what may be noise."""
    return float(
        max(min(mean - DEVIATIONS * deviation, least), LEAST_SEEN * least)
    )


def _error(stock: Sequence[VmRecord], ours: VmRecord) -> float:
    """Return the standard error of a difference in progress.

    Windows of ten seconds count as independent of each other, unless whole
    runs differ by more.
    """
    rates = np.concatenate(
        [measurement.windows(record.progress_us, LONG_US) for record in stock]
    )
    runs = len(stock)
    count = max(1.0, (len(ours.progress_us) - 1) * SAMPLE_US / LONG_US)
    error = float(rates.std()) * math.sqrt(1 / count + 1 / (count * runs))
    if runs > FEW_RUNS:
        between = statistics.stdev(record.progress for record in stock)
        error = max(error, between * math.sqrt(1 + 1 / runs))
    return error


def summary(hosts: Iterable[HostResult]) -> dict[str, float]:
    """Return the figures of all hosts together, by their JSON keys."""
    hosts = list(hosts)
    vms = [vm for host in hosts for vm in host.vms]
    parallel = [vm for vm in vms if vm.spec.opted_in]
    gangs = [
        vm
        for vm in parallel
        if vm.spec.vcpus > 1 and isinstance(vm.spec.program, programs.Spin)
    ]
    spreads = [spread for host in hosts for spread in host.spreads()]
    latencies = [vm.latency_ratio for vm in vms if vm.latency_ratio]
    return {
        'hosts': len(hosts),
        'vms': len(vms),
        'opted_in': len(parallel),
        'worst': min((vm.long_part for vm in vms), default=1.0),
        'worst_2s': min((vm.short_part for vm in vms), default=1.0),
        'below_090': sum(vm.below_090 for vm in vms),
        'below_095': sum(vm.below_095 for vm in vms),
        'worse_off': sum(vm.is_worse_off for vm in parallel),
        'progress_geomean': _geomean(vm.progress for vm in parallel),
        'stock_geomean': _geomean(vm.stock_progress for vm in parallel),
        'gangs': len(gangs),
        'gangs_geomean': _geomean(vm.progress for vm in gangs),
        'stock_gangs_geomean': _geomean(vm.stock_progress for vm in gangs),
        'equal_spread': max((ours for ours, _ in spreads), default=0.0),
        'equal_spread_mean': _mean(ours for ours, _ in spreads),
        'stock_equal_spread': max(
            (stock for _, stock in spreads), default=0.0
        ),
        'stock_equal_spread_mean': _mean(stock for _, stock in spreads),
        'latency_worst': max(latencies, default=0.0),
        'latency_above_110': sum(one > LATENCY_CEILING for one in latencies),
        'windows_part': _mean(host.windows_part for host in hosts),
    }


def _spread(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return (max(values) - min(values)) / mean if mean else 0.0


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return statistics.fmean(numbers) if numbers else 0.0


def _geomean(parts: Iterable[float]) -> float:
    logarithms = [math.log(max(LEAST_PROGRESS, part)) for part in parts]
    return math.exp(statistics.fmean(logarithms)) if logarithms else 0.0
