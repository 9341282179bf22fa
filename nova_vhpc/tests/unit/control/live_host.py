# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Random hosts whose VMs run for long and take plans into effect."""

import dataclasses
import random

from nova_vhpc.control import model
from nova_vhpc.tests.unit.control import plan_checks

TICK_US = 100_000
TURN = 40
"""Ticks for which latencies rise; for as many they are zero afterwards."""

CPU_TURN = 55
"""Ticks after which some CPUs of the host vanish, or come back."""

WORKLOADS = (*model.Workload, *(model.Workload.PARALLEL,) * 3)
"""Most are parallel, because slices, windows and pins are for these."""


@dataclasses.dataclass(frozen=True)
class Course:
    """Measurements of a VM over time.

    :ivar latency_us: synchronisation latency at the beginning of each rise.
    :ivar slope_us: rise of the latency per tick.
    :ivar little: I/O events per tick while there is little I/O.
    :ivar much: I/O events per tick while there is much I/O.
    :ivar rest: ticks of little I/O, followed by as many of much.
    :ivar runnable: part of the time that its vCPUs are runnable, 0.0 to 1.0.
    """

    latency_us: float
    slope_us: float
    little: float
    much: float
    rest: int
    runnable: float

    def sample(self, tick: int, vcpus: int) -> model.Sample:
        """Return the measurements of one tick."""
        rising = tick // TURN % 2 == 0
        half_us = TICK_US * self.runnable / 2
        return model.Sample(
            sync_latency_us=self.latency_us + self.slope_us * (tick % TURN)
            if rising
            else 0.0,
            io_events=self.much if tick // self.rest % 2 else self.little,
            vcpu_run_us=(half_us,) * vcpus,
            vcpu_wait_us=(half_us,) * vcpus,
            vcpu_runs=(tick % 7 + 3,) * vcpus,
            elapsed_us=float(TICK_US),
        )


@dataclasses.dataclass(frozen=True)
class Setup:
    """A random host; a :class:`LiveHost` begins in this state.

    :ivar fewer: number of its CPUs in every other :data:`CPU_TURN` ticks.
    :ivar late_us: lateness of the switches between gang windows.
    """

    cpus: tuple[model.Cpu, ...]
    fewer: int
    vms: tuple[model.VmView, ...]
    others: tuple[model.OtherVm, ...]
    courses: tuple[Course, ...]
    limits: model.ActuatorLimits
    late_us: float


def _original(
    source: random.Random, vcpus: int, cpus: frozenset[int]
) -> model.CpuTune:
    """Return a flavor's cputune; most have a quota."""
    period_us = source.choice((100_000, 33_333, 10_000, 1_000_000))
    quota_us = source.randint(1_000, period_us * 5 // 4)
    return model.CpuTune(
        period_us,
        source.choice((model.UNLIMITED, quota_us, quota_us)),
        source.choice((1_024, 2, 100, 10_000)),
        (cpus,) * vcpus,
    )


def _vm(
    source: random.Random, uuid: str, cpus: frozenset[int]
) -> model.VmView:
    """Return a random valid VM."""
    vcpus = source.choice((1, 1, 2, 2, 3, 4))
    some = frozenset(source.sample(sorted(cpus), source.randint(1, len(cpus))))
    allowed = source.choice((None, None, some))
    original = _original(source, vcpus, allowed or cpus)
    return model.VmView(
        uuid,
        vcpus,
        workload=source.choice(WORKLOADS),
        paradigm=source.choice(tuple(model.Paradigm)),
        io_pool=source.choice((*model.IoPoolUse, model.IoPoolUse.AUTO)),
        time_slice_us=source.choice((None, None, None, 6_000, 500_000)),
        cluster=source.choice((None, None, 'x', 'y')),
        repin=source.random() < 0.8,
        allowed_cpus=allowed,
        original=original,
        in_force=original,
    )


def _course(source: random.Random) -> Course:
    return Course(
        latency_us=source.uniform(0, 50_000),
        slope_us=source.uniform(0, 3_000),
        little=source.uniform(0, 60),
        much=source.uniform(100, 3_000),
        rest=source.randint(3, 30),
        runnable=source.choice((1.0, 1.0, 1.0, 1.0, 0.5, 0.02)),
    )


def make_setup(source: random.Random) -> Setup:
    """Return a random host with one to four managed VMs.

    It is not drawn by Hypothesis, which prefers extreme values: on most of
    its hosts there would be nothing to control.
    """
    count = source.choice((1, 2, 2, 4, 4, 6, 8))
    cpus = frozenset(range(count))
    uuids = 'abcd'[: source.choice((1, 2, 3, 4, 4))]
    return Setup(
        tuple(model.Cpu(n, n // 4, n // 2, n) for n in range(count)),
        source.choice((count, count, (count + 1) // 2)),
        tuple(_vm(source, uuid, cpus) for uuid in uuids),
        source.choice(
            ((), (model.OtherVm('o', 2, 1_024),), (model.OtherVm('o', 1),))
        ),
        tuple(_course(source) for _ in range(5)),
        model.ActuatorLimits(
            effective_min_slice_us=source.choice((1_000, 4_000)),
            can_idle=True,
        ),
        source.choice((0.0, 5_000.0)),
    )


class LiveHost:
    """Provides the view of each tick; plans applied to it take effect."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._tick = 0
        self._in_force = {one.uuid: one.in_force for one in setup.vms}

    def view(self) -> model.HostView:
        """Return the view of the next tick."""
        setup, tick = self._setup, self._tick
        self._tick += 1
        samples = [course.sample for course in setup.courses]
        return model.HostView(
            tick,
            tick * TICK_US,
            TICK_US,
            setup.cpus[: setup.fewer if tick // CPU_TURN % 2 else None],
            tuple(
                dataclasses.replace(
                    one,
                    in_force=self._in_force[one.uuid],
                    sample=sample(tick, one.vcpus),
                )
                for one, sample in zip(setup.vms, samples, strict=False)
            ),
            wall_us=tick * TICK_US,
            limits=setup.limits,
            others=tuple(
                dataclasses.replace(one, sample=samples[-1](tick, one.vcpus))
                for one in setup.others
            ),
            window_late_us=setup.late_us,
        )

    def apply(self, plan: model.Plan) -> None:
        """Put the writes of a plan into force."""
        for uuid, planned in plan.vms.items():
            if planned.writes is not None and uuid in self._in_force:
                self._in_force[uuid] = plan_checks.after(
                    self._in_force[uuid], planned.writes
                )
