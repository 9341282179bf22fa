# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench calibration``: simulated beside real guests."""

import argparse
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console
import rich.table

from nova_vhpc.agent import errors
from nova_vhpc.control import controller
from nova_vhpc_lab.bench import controller as controller_bench
from nova_vhpc_lab.bench.common import cli_types, outputs, plugins
from nova_vhpc_lab.bench.lab import measured_ranges, mixes, simulated

HELP = (
    "Run the lab's mixes on simulated hosts, and show the figures beside what "
    'the lab measured on real guests.'
)

RANGES = pathlib.Path(measured_ranges.__file__).with_name(measured_ranges.FILE)
"""File of measured ranges in a checkout of the sources."""

TITLES: Mapping[str, str] = {
    'efficiency': 'efficiency',
    'fairness': 'fairness',
    'others': 'others',
    'p99_ms': 'p99 ms',
    'late_ms': 'late ms',
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    outputs.add_json(parser)
    parser.add_argument(
        '--mixes',
        metavar='NAMES',
        help='mixes to run, separated by commas (default: all that were '
        'measured and can be simulated)',
    )
    cli_types.add_integer(parser, '--seeds', 8, 'runs of each mix')
    parser.add_argument(
        '--renew',
        type=pathlib.Path,
        metavar='FILE',
        help='only write the ranges of this JSON of nova-vhpc-bench lab into '
        'the file of measured ranges (in a checkout of the sources)',
    )
    plugins.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate, print, and write the JSON file.

    :returns: 0; 2 if a plugin or a file cannot be loaded, or there is no such
        mix.
    :raises OutputError: if a file cannot be written.
    """
    outputs.check(args.json)
    if args.renew is not None:
        return _renew(args.renew)
    names = plugins.selected(args)
    measured = measured_ranges.load()
    chosen = [name for name in simulated.MIXES if name in measured]
    if args.mixes is not None:
        chosen = args.mixes.split(',')
    try:
        names.check()
        _check(chosen, simulated.MIXES)
    except (errors.ConfigError, ValueError) as error:
        print(f'nova-vhpc-bench calibration: {error}', file=sys.stderr)
        return 2
    result = {
        name: simulate(
            mixes.MIXES[name], measured.get(name, {}), args.seeds, names
        )
        for name in chosen
    }
    with outputs.tables():
        print_table(result, measured)
    outputs.write_json(
        args.json,
        {'seeds': args.seeds, 'simulated': result, 'measured': measured},
    )
    return 0


def _check(chosen: Sequence[str], known: Sequence[str]) -> None:
    for name in chosen:
        if name not in known:
            raise ValueError(
                f"the mix '{name}' is not one of those that can be "
                f'simulated: {", ".join(known)}'
            )


def simulate(
    mix: mixes.Mix,
    measured: Mapping[str, Any],
    seeds: int,
    names: plugins.PluginNames,
) -> dict[str, dict[str, measured_ranges.Range]]:
    """Return the ranges of a mix on simulated hosts, by policy.

    :param measured: what was measured, of which the times are taken.
    :param names: plugins of the policy ``default``.
    """

    def make() -> controller.Controller:
        return controller_bench.make(names)

    return {
        policy: measured_ranges.of_runs(
            mix,
            [
                simulated.run(
                    mix,
                    seed,
                    None if policy == 'stock' else make,
                    _timing(measured.get(policy, {})),
                )
                for seed in range(1, seeds + 1)
            ],
        )
        for policy in measured_ranges.POLICIES
    }


def _timing(measured: Mapping[str, Any]) -> simulated.Timing:
    return simulated.Timing(
        measured.get('settle_s', 8.0), measured.get('measure_s', 4.0)
    )


def print_table(
    result: Mapping[str, Mapping[str, Mapping[str, measured_ranges.Range]]],
    measured: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> None:
    """Print one line per mix and policy, and figure."""
    table = rich.table.Table(
        'mix', 'policy', 'figure', 'measured', 'simulated'
    )
    for mix, by_policy in result.items():
        for policy, ranges in by_policy.items():
            real = measured.get(mix, {}).get(policy, {})
            for figure, title in TITLES.items():
                if figure in ranges:
                    table.add_row(
                        mix,
                        policy,
                        title,
                        _text(real.get(figure)),
                        _text(ranges[figure]),
                    )
    rich.console.Console().print(table)


def _text(values: Sequence[float] | None) -> str:
    """Return median and range; '-' if it was not measured."""
    if values is None:
        return '-'
    median, least, most = values
    if least == most:
        return f'{median:.2f}'
    return f'{median:.2f} ({least:.2f}-{most:.2f})'


def _renew(path: pathlib.Path) -> int:
    """Write the ranges of a lab's JSON into the file of measured ranges."""
    try:
        document = json.loads(path.read_text())
        ranges = measured_ranges.renewed(measured_ranges.load(), document)
    except (OSError, ValueError, KeyError) as error:
        print(
            f'nova-vhpc-bench calibration: {path} is no JSON of '
            f'nova-vhpc-bench lab: {error!r}',
            file=sys.stderr,
        )
        return 2
    outputs.write_json(RANGES, ranges)
    print(f'{RANGES}: ranges of {", ".join(document["mixes"])} renewed')
    return 0
