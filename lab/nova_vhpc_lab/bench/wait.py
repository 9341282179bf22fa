# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Measure MPI programs that nap while they wait, and the library as shipped.

Each cluster is an MPI program of two ranks in a control group of its own, all
of equal weight, on two CPUs. Its ranks compute, wait for each other, and so
on. Every round runs all modes, and is compared within itself.
"""

import argparse
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from nova_vhpc_lab.bench.common import cli_types, outputs
from nova_vhpc_lab.testbed import cpu_controller, errors, mpi_programs

HELP = 'Barriers per second of MPI clusters that spin, and of those that nap.'
SOURCE = 'barriers.c'
RANKS = 2
MODES: dict[str, str | None] = {
    'shipped': None,
    'wait': 'wait',
    'yield': 'yield',
}
"""Library of each mode; ``yield`` is for Open MPI, as MPICH never yields."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the bench."""
    parser.add_argument(
        '--mpi', choices=sorted(mpi_programs.LAUNCHERS), default='mpich'
    )
    parser.add_argument(
        '--clusters',
        type=cli_types.integer(),
        nargs='+',
        default=[1, 3, 6],
        help='clusters that share the two CPUs',
    )
    parser.add_argument(
        '--work-us',
        type=cli_types.number(1),
        nargs='+',
        default=[200.0, 1000.0],
        help='CPU time between two barriers, in microseconds',
    )
    parser.add_argument(
        '--uneven',
        action='store_true',
        help='let one rank of each cluster wait all the time',
    )
    parser.add_argument('--seconds', type=cli_types.number(), default=3.0)
    parser.add_argument('--rounds', type=cli_types.integer(), default=3)
    outputs.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print.

    :returns: 0, or 1 if it could not be measured.
    """
    outputs.check(args.json)
    modes = [
        mode for mode in MODES if mode != 'yield' or args.mpi == 'openmpi'
    ]
    try:
        with tempfile.TemporaryDirectory(prefix='vhpc-wait-') as name:
            programs = mpi_programs.Programs.build(
                args.mpi, pathlib.Path(name), SOURCE
            )
            rows = [
                _measure(programs, modes, work_us, clusters, args)
                for work_us in args.work_us
                for clusters in args.clusters
            ]
    except (errors.LabError, errors.ImageError) as error:
        print(f'nova-vhpc-bench wait: {error}', file=sys.stderr)
        return 1
    outputs.write_json(
        args.json,
        {
            'mpi': args.mpi,
            'seconds': args.seconds,
            'uneven': args.uneven,
            'rows': rows,
        },
    )
    return 0


def _measure(
    programs: mpi_programs.Programs,
    modes: list[str],
    work_us: float,
    clusters: int,
    args: argparse.Namespace,
) -> dict[str, object]:
    """Measure all modes in turn, in an order of chance in each round."""
    rates: dict[str, list[float]] = {mode: [] for mode in modes}
    for _ in range(int(args.rounds)):
        for mode in random.sample(modes, len(modes)):
            rates[mode].append(
                _rate(programs, MODES[mode], work_us, clusters, args)
            )
    for mode, values in rates.items():
        ratios = [
            value / shipped
            for value, shipped in zip(values, rates['shipped'], strict=True)
        ]
        print(
            f'{args.mpi} {work_us:6.0f} us, {clusters} clusters, {mode:7s}: '
            f'{statistics.median(values):6.0f} barriers/s '
            f'({min(values):.0f} to {max(values):.0f}), '
            f'{statistics.median(ratios):.3f} of shipped '
            f'({min(ratios):.3f} to {max(ratios):.3f})',
            flush=True,
        )
    return {'work_us': work_us, 'clusters': clusters, 'barriers_per_s': rates}


def _rate(
    programs: mpi_programs.Programs,
    library: str | None,
    work_us: float,
    clusters: int,
    args: argparse.Namespace,
) -> float:
    """Return the barriers per second of all clusters together."""
    controller = cpu_controller.CpuController.find()
    groups = []
    running = []
    try:
        for number in range(clusters):
            group = controller.make_group(f'vhpc-wait-{number}', 20.0)
            groups.append(group)
            running.append(
                subprocess.Popen(
                    # The shell enters the group before the program starts.
                    (
                        *('sh', '-c', 'echo $$ >"$0"/cgroup.procs; exec "$@"'),
                        str(group),
                        *programs.words(
                            *(SOURCE, RANKS, str(args.seconds), str(work_us)),
                            *(('uneven',) if args.uneven else ()),
                        ),
                    ),
                    env=programs.environment(library),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        total = 0.0
        for process in running:
            out, problem = process.communicate(timeout=60 + 20 * args.seconds)
            if process.returncode:
                raise errors.LabError(f'{SOURCE}: {problem[-1000:]}')
            total += float(out)
        return total
    finally:
        for process in running:
            process.kill()
        for group in groups:
            controller.remove_group(group)
