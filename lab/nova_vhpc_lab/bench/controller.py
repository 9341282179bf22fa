# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench controller``: CPU time of one decision.

Without a policy on the command line, two sets of policies are measured: the
defaults, which need no predictor, and the most expensive ones, which do.
"""

import argparse
import contextlib
import dataclasses
import gc
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from nova_vhpc.agent import errors, process_limits
from nova_vhpc.agent.daemon import controller_factory
from nova_vhpc.control import controller, model
from nova_vhpc.control.config import ControlConfig
from nova_vhpc_lab.bench.common import cli_types, outputs, plugins

HELP = (
    'Measure the CPU time of one decision for 100 to 1,000 VMs: with the '
    'default policies and, unless a policy is given, with the most expensive.'
)

VCPUS = 8
MEMBERS = 4
"""Number of VMs per virtual cluster."""

HOST = tuple(
    model.Cpu(number, socket=number // 32, llc=number // 16, core=number)
    for number in range(64)
)

PERIOD_US = 100_000

DEAREST = {'slice_policy': 'gang', 'pinning_policy': 'io_pool'}
"""The policies whose decisions take longest: windows and predictions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    outputs.add_json(parser)
    parser.add_argument(
        '--vms',
        type=cli_types.integer(),
        nargs='+',
        metavar='N',
        default=[100, 200, 500, 1000],
        help='numbers of VMs to measure (default: %(default)s)',
    )
    cli_types.add_integer(
        parser, '--ticks', 150, 'decisions per measurement', least=2
    )
    plugins.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the JSON file.

    :returns: 0, or 2 if a plugin cannot be loaded.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    try:
        with _agent_garbage_collection():
            document = _table(plugins.selected(args), args.vms, args.ticks)
            if args.slice_policy is None and args.pinning_policy is None:
                print()
                document['dearest'] = _table(
                    dataclasses.replace(plugins.selected(args), **DEAREST),
                    args.vms,
                    args.ticks,
                )
    except errors.ConfigError as error:
        print(f'nova-vhpc-bench controller: {error}', file=sys.stderr)
        return 2
    outputs.write_json(args.json, document)
    return 0


@contextlib.contextmanager
def _agent_garbage_collection() -> Iterator[None]:
    """Collect garbage by the agent's thresholds in a ``with`` block.

    With Python's own thresholds a sixth of the time for 1,000 VMs is spent on
    collections that free nothing.
    """
    thresholds = gc.get_threshold()
    process_limits.settle_memory()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _table(
    names: plugins.PluginNames, vms: list[int], ticks: int
) -> dict[str, Any]:
    """Measure and print one table.

    :param vms: numbers of VMs; the table has one row for each.
    :param ticks: number of decisions per row.
    :returns: the figures of the table, for the JSON file.
    :raises ConfigError: if a plugin cannot be loaded.
    """
    predicts = make(names).predicts
    text = f'{names.slice_policy} / {names.pinning_policy} / ' + (
        names.predictor if predicts else 'nothing predicted'
    )
    print(f'decide(), {text}, {VCPUS} vCPUs per VM, CPU time of one core')
    print(
        f'{"VMs":>6}{"mean ms":>10}{"median":>10}{"p99":>10}{"us per VM":>11}'
    )
    results: dict[str, dict[str, float]] = {}
    for count in vms:
        figures = results[str(count)] = measure(make(names), count, ticks)
        print(
            f'{count:>6}{figures["mean_ms"]:>10.2f}'
            f'{figures["median_ms"]:>10.2f}{figures["p99_ms"]:>10.2f}'
            f'{figures["us_per_vm"]:>11.1f}'
        )
    return {
        **dataclasses.asdict(names),
        'predicts': predicts,
        'vcpus_per_vm': VCPUS,
        'vms': results,
    }


def make(
    names: plugins.PluginNames, config: ControlConfig | None = None
) -> controller.Controller:
    """Return a controller.

    :param config: its settings; None for the defaults.
    :raises ConfigError: if a plugin cannot be loaded.
    """
    config = config or ControlConfig()
    return controller.Controller(
        config,
        controller_factory.load_plugin('slice_policy', names.slice_policy)(
            config
        ),
        controller_factory.load_plugin('pinning_policy', names.pinning_policy)(
            config
        ),
        controller_factory.load_plugin('predictor', names.predictor),
    )


def measure(
    decider: controller.Controller, vms: int, ticks: int
) -> dict[str, float]:
    """Return the CPU time per decision on a busy host.

    A planned setting is in force in the next tick, as in the agent. Building
    the views is not timed.

    :param vms: number of VMs on the host.
    :param ticks: number of decisions.
    """
    times_ms: list[float] = []
    in_force: dict[str, model.CpuTune] = {}
    noise = _noise()
    for tick in range(ticks):
        view = _view(vms, tick, in_force, noise)
        begin = time.process_time_ns()
        plan = decider.decide(view)
        times_ms.append((time.process_time_ns() - begin) / 1e6)
        for uuid, planned in plan.vms.items():
            if planned.writes is not None:
                in_force[uuid] = planned.tune
    times_ms.sort()
    mean_ms = statistics.fmean(times_ms)
    return {
        'mean_ms': mean_ms,
        'median_ms': statistics.median(times_ms),
        'p99_ms': times_ms[min(len(times_ms) - 1, len(times_ms) * 99 // 100)],
        'max_ms': times_ms[-1],
        'us_per_vm': 1e3 * mean_ms / vms,
    }


ORIGINAL = model.CpuTune(
    period_us=100_000,
    quota_us=50_000,
    shares=1_024,
    vcpu_pins=(frozenset(cpu.id for cpu in HOST),) * VCPUS,
)


OTHERS = tuple(
    model.OtherVm(
        f'other{number}',
        1,
        1_024,
        model.Sample(
            vcpu_run_us=(20_000.0,),
            vcpu_wait_us=(80_000.0 if number else 5_000.0,),
            elapsed_us=float(PERIOD_US),
        ),
    )
    for number in range(8)
)
"""Unmanaged VMs; all but the first always want to run."""


def _view(
    vms: int,
    tick: int,
    in_force: dict[str, model.CpuTune],
    noise: Iterator[float],
) -> model.HostView:
    """Return a host whose clusters alternate between computing and I/O.

    Every third cluster has I/O; which ones changes every 10 ticks.
    """
    views: list[model.VmView] = []
    for number in range(vms):
        cluster = number // MEMBERS
        busy = (tick // 10 + cluster) % 3 == 0
        uuid = f'vm{number}'
        views.append(
            model.VmView(
                uuid=uuid,
                vcpus=VCPUS,
                workload=model.Workload.PARALLEL,
                cluster=f'cluster{cluster}',
                original=ORIGINAL,
                in_force=in_force.get(uuid, ORIGINAL),
                sample=model.Sample(
                    sync_latency_us=1_000 * next(noise),
                    io_events=(300 if busy else 10) + 60 * next(noise),
                    # Always runnable, hence candidates for gang windows.
                    vcpu_run_us=(20_000.0,) * VCPUS,
                    vcpu_wait_us=(80_000.0,) * VCPUS,
                    vcpu_runs=(20,) * VCPUS,
                    elapsed_us=float(PERIOD_US),
                ),
            )
        )
    return model.HostView(
        tick=tick,
        now_us=tick * PERIOD_US,
        wall_us=tick * PERIOD_US,
        period_us=PERIOD_US,
        cpus=HOST,
        vms=tuple(views),
        others=OTHERS,
        limits=model.ActuatorLimits(
            effective_min_slice_us=4_000,
            min_shares=2,
            max_shares=262_144,
            can_idle=True,
        ),
    )


def _noise() -> Iterator[float]:
    """Yield repeatable pseudo-random numbers, uniform in 0..1."""
    state = 1
    while True:
        state = (state * 1_103_515_245 + 12_345) % 2**31
        yield state / 2**31
