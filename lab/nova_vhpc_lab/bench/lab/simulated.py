# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The lab's mixes on a simulated host, measured as the lab measures them.

What is compared with real guests must be computed by the same code: the runs
are the lab's, so that all figures are.
"""

import dataclasses
import random
from collections.abc import Mapping

from nova_vhpc_lab.bench.lab import figures, mixes
from nova_vhpc_lab.sim import host_spec, measurement, programs
from nova_vhpc_lab.testbed import guest

CPUS = 2

WARM_UP_S = 1.0
"""Time that the guests run before the agent starts, or stock is measured."""

START_S = 0.5
"""Time from the agent's start to its third tick, when the lab goes on."""

ALONE_S = 0.7

MACHINE_WEIGHT = 4_096
"""Of all guests together, and of the group of what is not a vCPU."""

AGENT = host_spec.AgentThreads(
    weight=MACHINE_WEIGHT, tick_us=1_000.0, border_us=150.0, write_us=150.0
)
"""With these windows are as late as on real guests."""

OTHER_LOAD = host_spec.LoadSpec(programs.Sleep(100, 10_000, spread=2.0), 2)
"""QEMU's other threads, libvirtd and the host's own: the lab counts 0.01 to
0.05 CPUs."""

PROGRAMS: Mapping[str, programs.Program] = {
    'barrier': programs.Spin(3.0),
    'block': programs.SpinThenBlock(100.0, 10.0),
    'hog': programs.Run(),
    # 0.039 CPUs at 50 requests per second.
    'web': programs.Serve(20_000.0, 780.0, spread=0.2, interval_spread=0.0),
}
"""Programs by the workload of the guest."""


def can_simulate(mix: mixes.Mix) -> bool:
    """Return whether the simulator has programs for all guests of a mix."""
    return not mix.host_load and all(
        one.workload in PROGRAMS for one in mix.guests
    )


MIXES = tuple(name for name, mix in mixes.MIXES.items() if can_simulate(mix))


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """Lengths of the parts of a run, in seconds.

    :ivar settle_s: time for which the agent runs before the measurement.
    """

    settle_s: float
    measure_s: float


def run(
    mix: mixes.Mix,
    seed: int,
    make_controller: measurement.MakeController | None,
    timing: Timing,
) -> figures.Run:
    """Measure a mix on a simulated host.

    :param seed: of the run, and the number of its round.
    :param make_controller: None for stock Linux.
    """
    spec = _host(mix.name, mix.guests)
    warm_up_s = WARM_UP_S
    if make_controller is not None:
        warm_up_s = START_S + timing.settle_s
    record = measurement.measure(
        spec, seed, make_controller, warm_up_s, timing.measure_s
    )
    alone = _alone(mix, seed)
    return figures.Run(
        seed,
        {
            one.name: record.vms[one.name].progress / alone[one.kind]
            for one in mix.guests
        },
        tuple(
            time_us / 1_000
            for one in mix.guests
            if one.workload == 'web'
            for time_us in _shuffled(record.vms[one.name].responses_us, seed)
        ),
        record.window_late_us or None,
        {one.name: record.vms[one.name].cpus for one in mix.guests},
    )


def _shuffled(times: tuple[float, ...], seed: int) -> list[float]:
    """Return times in no order, as a client has them."""
    return random.Random(seed).sample(times, len(times))


def _alone(mix: mixes.Mix, seed: int) -> dict[str, float]:
    """Return the progress of guests by kind when they run alone.

    The lab takes the best of several measurements.
    """
    return {
        one.kind: max(
            measurement.measure(
                _host('alone', (one,)), seed + number, None, 0.1, ALONE_S
            )
            .vms[one.name]
            .progress
            for number in range(2)
        )
        for one in {one.kind: one for one in mix.guests}.values()
    }


def _host(
    name: str, guests: tuple[guest.GuestSpec, ...]
) -> host_spec.HostSpec:
    return host_spec.HostSpec(
        name,
        CPUS,
        tuple(_vm(one) for one in guests),
        loads=(OTHER_LOAD,),
        machine_weight=MACHINE_WEIGHT,
        agent=AGENT,
    )


def _vm(one: guest.GuestSpec) -> host_spec.VmSpec:
    return host_spec.VmSpec(
        one.name,
        one.kind,
        PROGRAMS[one.workload],
        one.vcpus,
        opted_in=one.extra_specs is not None,
        cluster=one.cluster,
        quota_us=one.quota_us,
    )
