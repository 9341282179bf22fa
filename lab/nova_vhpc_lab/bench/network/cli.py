# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench network``: HPCVirt'09's matrix on real MPI libraries."""

import argparse
import pathlib
import sys

from nova_vhpc.scheduler.sources import cost_table_file
from nova_vhpc_lab.bench.common import cli_types, outputs
from nova_vhpc_lab.bench.network import (
    calibration,
    libraries,
    matrix,
    plot,
    results,
)
from nova_vhpc_lab.bench.network import layout as layouts
from nova_vhpc_lab.testbed import errors

HELP = (
    'Measure the network configurations with real MPI libraries, between '
    'network namespaces that stand for guests, on uplinks of limited speed.'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    outputs.add_json(parser)
    parser.add_argument(
        '--clusters',
        nargs='+',
        type=_cluster,
        default=[layouts.Cluster.parse(text) for text in layouts.CLUSTERS],
        metavar='HxG',
        help='numbers of hosts and of guests on each (default: '
        f'{" ".join(layouts.CLUSTERS)})',
    )
    parser.add_argument(
        '--mpi',
        nargs='+',
        choices=libraries.LIBRARIES,
        default=list(libraries.LIBRARIES),
        metavar='LIBRARY',
        help=f'MPI libraries: {", ".join(libraries.LIBRARIES)} (default: '
        'all); what is missing is installed from PyPI into the cache',
    )
    parser.add_argument(
        '--configurations',
        nargs='+',
        choices=layouts.ROWS,
        default=list(layouts.ROWS),
        metavar='CONFIGURATION',
        help=f'network configurations: {", ".join(layouts.CONFIGURATIONS)}; '
        f'{layouts.NATIVE} is without guests (default: all)',
    )
    cli_types.add_integer(parser, '--rounds', 5, 'number of runs of each')
    parser.add_argument(
        '--spare-cpu',
        action='store_true',
        help='measure everything also with a CPU for packet work alone, and '
        'without: all guests on the other CPUs, packets on the last one or '
        'there; takes three times as long',
    )
    parser.add_argument(
        '--link-mbps',
        type=cli_types.number(1.0),
        default=50.0,
        metavar='MBPS',
        help='speed of each uplink in Mbit/s; so slow that CPUs are not the '
        'limit (default: %(default)s)',
    )
    parser.add_argument(
        '--cost-table',
        type=pathlib.Path,
        metavar='FILE',
        help="compare with the planner's order by this cost table instead of "
        "HPCVirt'09's",
    )
    parser.add_argument(
        '--calibrate',
        type=pathlib.Path,
        metavar='FILE',
        help='write a cost table for [vhpc_scheduler] cost_table, of the '
        'first cluster with two or more guests on each host and the first '
        'library',
    )
    parser.add_argument(
        '--plot',
        type=pathlib.Path,
        metavar='DIR',
        help="draw times of exchanges relative to native as HPCVirt'09's "
        'figures 9 to 12 into DIR (needs matplotlib)',
    )
    cli_types.add_seconds(
        parser,
        '--seconds',
        0.1,
        'length of each single measurement',
        least=0.001,
    )


def _cluster(text: str) -> layouts.Cluster:
    try:
        return layouts.Cluster.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the JSON file.

    :returns: 0; 1 if a library cannot be installed, or a program failed in
        any configuration, after the others were measured; 2 if the cost table
        cannot be read, or what it needs is not measured.
    :raises OutputError: if a file cannot be written.
    """
    outputs.check(args.json, args.calibrate)
    outputs.check_directory(args.plot)
    try:
        table = cost_table_file.read(args.cost_table and str(args.cost_table))
        calibrated = _calibrated_cluster(args)
    except ValueError as error:
        print(f'nova-vhpc-bench network: {error}', file=sys.stderr)
        return 2
    try:
        installed = {name: libraries.install(name) for name in args.mpi}
        terms = matrix.all_terms(args.link_mbps, args.seconds, args.spare_cpu)
        clusters = {
            cluster: matrix.measure(
                cluster, installed, args.configurations, args.rounds, terms
            )
            for cluster in args.clusters
        }
    except (errors.ImageError, errors.LabError) as error:
        print(f'nova-vhpc-bench network: {error}', file=sys.stderr)
        return 1
    document = results.document(
        results.Settings(
            args.link_mbps, args.seconds, args.rounds, args.spare_cpu
        ),
        clusters,
        table,
    )
    failed = any(document['failures'].values())
    if calibrated is not None:
        try:
            own = calibration.table(
                clusters[calibrated][args.mpi[0]].runs,
                args.link_mbps,
                document['spare_cpu']
                .get(str(calibrated), {})
                .get(args.mpi[0]),
            )
        except ValueError as error:
            failed = True
            print(f'No cost table: {error}', file=sys.stderr)
        else:
            document['cost_table'] = cost_table_file.document(own)
            outputs.write_json(args.calibrate, document['cost_table'])
    outputs.write_json(args.json, document)
    if args.plot:
        plot.draw(document, args.plot)
    return 1 if failed else 0


def _calibrated_cluster(args: argparse.Namespace) -> layouts.Cluster | None:
    """Return the cluster of which a cost table is made, if any.

    :raises ValueError: the arguments leave out what the table needs.
    """
    if args.calibrate is None:
        return None
    missing = set(calibration.NEEDED) - set(args.configurations)
    if missing:
        raise ValueError(
            '--calibrate needs all configurations; add '
            f'{", ".join(sorted(missing))}'
        )
    for cluster in args.clusters:
        if cluster.hosts > 1 and cluster.guests > 1:
            assert isinstance(cluster, layouts.Cluster)
            return cluster
    raise ValueError(
        '--calibrate needs a cluster of several hosts with two or more guests '
        'on each, best 2x4'
    )
