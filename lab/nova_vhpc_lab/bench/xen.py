# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench xen``: the ATC paper's experiments, simulated."""

import argparse
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from nova_vhpc_lab.bench.common import cli_types, outputs
from nova_vhpc_lab.sim import measurement, xen_trials

HELP = (
    "Simulate the ATC paper's experiments: time slices and policies under "
    "Xen's credit scheduler."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    outputs.add_json(parser)
    cli_types.add_integer(parser, '--seeds', 5, 'number of runs of each host')
    cli_types.add_seconds(
        parser,
        '--seconds',
        20.0,
        'simulated time that is measured',
        least=1.0,
    )
    cli_types.add_seconds(
        parser, '--warm-up', 10.0, 'simulated time before that', least=0.0
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the JSON file.

    :returns: 0.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    results: dict[str, Any] = {'slices': {}, 'parallel': {}, 'mixed': {}}
    for work_us in xen_trials.WORK_US:
        results['slices'][str(work_us)] = _slices(args, work_us)
        results['parallel'][str(work_us)] = _policies(args, work_us, False)
        results['mixed'][str(work_us)] = _policies(args, work_us, True)
    results.update(_over_all(results['slices']))
    outputs.write_json(
        args.json,
        {**results, 'seeds': args.seeds, 'seconds': args.seconds},
    )
    return 0


def _slices(args: argparse.Namespace, work_us: int) -> dict[str, Any]:
    """Measure one slice after the other, the same for all VMs."""

    print(
        f'\nFour parallel VMs of 16 vCPUs that meet each {work_us} us:\n'
        f'{"slice":>9}{"execution time":>22}{"spin latency":>16}'
    )
    found: dict[str, Any] = {}
    first: Sequence[float] = ()
    for slice_us in xen_trials.SLICES_US:
        spec = xen_trials.equal_slices(slice_us, work_us)
        records = [
            xen_trials.Policy().measure(spec, seed, args.warm_up, args.seconds)
            for seed in range(1, args.seeds + 1)
        ]
        progress = [_progress(record) for record in records]
        first = first or progress
        figures = {
            'time': _ratio(first, progress),
            'latency_us': _range(_spin_latencies_us(records)),
        }
        found[str(slice_us)] = figures
        print(
            f'{slice_us / 1_000:>6} ms{_text(figures["time"], 3):>22}'
            f'{figures["latency_us"][0] / 1_000:>13.2f} ms',
            flush=True,
        )
    return found


def _over_all(slices: dict[str, Any]) -> dict[str, Any]:
    """Return what the paper says of all its programs together.

    Section II.B: the correlation of execution time and spin latency. Equation
    (1): how far the programs are from their best at each slice.

    :param slices: by program and slice.
    """
    correlation = {
        work: statistics.correlation(
            [one['time'][0] for one in found.values()],
            [one['latency_us'][0] for one in found.values()],
        )
        for work, found in slices.items()
    }
    best = {
        work: min(one['time'][0] for one in found.values())
        for work, found in slices.items()
    }
    distance = {
        slice_us: math.dist(
            [slices[work][slice_us]['time'][0] for work in slices],
            [best[work] for work in slices],
        )
        for slice_us in next(iter(slices.values()))
    }
    print('\nExecution time and spin latency correlate:')
    for work, value in correlation.items():
        print(f'{work:>6} us{value:>8.3f}')
    print('\nDistance from the best (equation 1):')
    for slice_us, value in distance.items():
        print(f'{int(slice_us) / 1_000:>6} ms{value:>8.3f}')
    return {'correlation': correlation, 'distance': distance}


def _policies(
    args: argparse.Namespace, work_us: int, is_mixed: bool
) -> dict[str, Any]:
    """Measure all policies on one host."""

    print(
        f'\n{"Two" if is_mixed else "Four"} parallel VMs of 8 vCPUs that meet '
        f'each {work_us} us{", a web server, a busy VM" * is_mixed}:\n'
        f'{"policy":>10}{"execution time":>20}'
        + (f'{"response time":>20}{"time of busy VM":>20}' * is_mixed)
    )
    found: dict[str, Any] = {}
    first: dict[str, list[float]] = {}
    for name, policy in xen_trials.POLICIES.items():
        spec = (
            xen_trials.mixed(work_us, policy.other_slice_us)
            if is_mixed
            else xen_trials.parallel_only(work_us)
        )
        records = [
            policy.measure(spec, seed, args.warm_up, args.seconds)
            for seed in range(1, args.seeds + 1)
        ]
        values = {'time': [1 / _progress(record) for record in records]}
        if is_mixed:
            values['response'] = [
                record.vms['web'].response_us or 0.0 for record in records
            ]
            values['busy_time'] = [
                1 / record.vms['busy'].progress for record in records
            ]
        first = first or values
        figures = {key: _ratio(values[key], first[key]) for key in values}
        found[name] = figures
        print(
            f'{name:>10}'
            + ''.join(f'{_text(one, 2):>20}' for one in figures.values()),
            flush=True,
        )
    return found


def _progress(record: measurement.Record) -> float:
    """Return the mean progress of the parallel VMs."""
    return statistics.fmean(
        vm.progress
        for vm in record.vms.values()
        if vm.barrier_wait_us is not None
    )


def _spin_latencies_us(
    records: Iterable[measurement.Record],
) -> list[float]:
    return [
        vm.barrier_wait_us
        for record in records
        for vm in record.vms.values()
        if vm.barrier_wait_us is not None
    ]


def _ratio(
    these: Sequence[float], those: Sequence[float]
) -> tuple[float, float, float]:
    """Return mean, least and greatest of the quotients, seed by seed."""
    return _range([a / b for a, b in zip(these, those, strict=True)])


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.fmean(values), min(values), max(values)


def _text(figures: tuple[float, float, float], digits: int) -> str:
    mean, least, most = figures
    return f'{mean:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})'
