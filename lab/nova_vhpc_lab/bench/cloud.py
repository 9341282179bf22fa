# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""``nova-vhpc-bench cloud``: virtual clusters on many simulated hosts."""

import argparse
import itertools
import json
import os
import pathlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc_lab.bench import (
    cloud_inventory,
    cloud_job,
    cloud_plot,
    cloud_report,
)
from nova_vhpc_lab.bench.common import cli_types, outputs, plugins, simulations
from nova_vhpc_lab.sim.cloud import comparison, inventory, npc09, spec

HELP = (
    'Run virtual clusters on many simulated hosts: the scheduler plans where '
    'their members go, and policies are compared with stock Linux and with '
    'perfect co-scheduling.'
)

SCENARIOS = ('atc-a', 'atc-b', 'atc-mixed', 'npc09', 'inventory')

POLICIES = (
    'stock',
    'balance',
    'dss',
    'vslicer',
    'atc-30ms',
    'atc-6ms',
    'cs',
    'ours',
    'bound',
)

KERNELS = {
    'linux': frozenset(POLICIES) - {'cs'},
    'xen': frozenset(POLICIES) - {'balance', 'ours'},
}
"""Policies of each kernel."""

GROUP_POLICIES = (
    'soft-affinity',
    'soft-anti-affinity',
    'affinity',
    'anti-affinity',
    'none',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    outputs.add_json(parser)
    parser.add_argument(
        '--scenarios',
        type=_names(SCENARIOS),
        default=('atc-b',),
        metavar='NAME,...',
        help=f'clouds to run: {", ".join(SCENARIOS)} (default: atc-b)',
    )
    parser.add_argument(
        '--inventory',
        type=pathlib.Path,
        metavar='FILE',
        help="JSON file with the operator's own hosts, clusters and VMs, for "
        'the scenario of that name',
    )
    parser.add_argument(
        '--os-cloud',
        metavar='NAME',
        help='cloud in clouds.yaml whose hosts, servers and server groups '
        'are read instead of a FILE; envvars for that of the OS_* variables. '
        'Needs the rights of an administrator',
    )
    parser.add_argument(
        '--write-inventory',
        type=pathlib.Path,
        metavar='FILE',
        help='file to write what was read from the cloud to, to be changed '
        'and given to --inventory',
    )
    parser.add_argument(
        '--overcommit',
        type=cli_types.number(least=0.1),
        metavar='N',
        help='vCPUs per host CPU that Nova allows, instead of what the '
        'inventory says',
    )
    cli_types.add_integer(
        parser,
        '--more-hosts',
        0,
        'hosts to add, like the first of the inventory',
        least=0,
    )
    cli_types.add_integer(
        parser,
        '--more-clusters',
        0,
        'clusters to add, like the first of the inventory',
        least=0,
    )
    parser.add_argument(
        '--policies',
        type=_names(POLICIES),
        default=('stock', 'ours', 'bound'),
        metavar='NAME,...',
        help=f'of {", ".join(POLICIES)} (default: stock,ours,bound)',
    )
    parser.add_argument(
        '--kernel',
        choices=[*KERNELS],
        default='linux',
        help="the hosts' CPU scheduler: Linux's, or Xen's credit scheduler, "
        'on which slices can be set and VMs co-scheduled (default: linux)',
    )
    cli_types.add_integer(
        parser, '--seeds', 3, 'number of clouds that are drawn of each'
    )
    cli_types.add_integer(parser, '--seed', 0, 'the first seed', least=0)
    cli_types.add_integer(
        parser,
        '--hosts',
        32,
        'hosts of 8 CPUs; with 64 and more, as many times the clusters of '
        'the paper',
        least=2,
    )
    parser.add_argument(
        '--group-policy',
        choices=GROUP_POLICIES,
        default=GROUP_POLICIES[0],
        help="policy of the clusters' server groups, but in atc-a "
        '(default: %(default)s)',
    )
    cli_types.add_seconds(
        parser, '--seconds', 20.0, 'simulated time that is measured'
    )
    cli_types.add_seconds(
        parser, '--warm-up', 10.0, 'simulated time before that', least=0.0
    )
    _add_number(
        parser, '--skew-ms', 1.0, "standard deviation of the hosts' clocks"
    )
    _add_number(
        parser, '--latency-us', 50.0, 'time of a message between two hosts'
    )
    _add_number(parser, '--loss', 0.0, 'part of the messages that is lost')
    cli_types.add_integer(
        parser,
        '--jobs',
        os.cpu_count() or 1,
        'number of clouds that are simulated at the same time',
    )
    parser.add_argument(
        '--plot',
        type=pathlib.Path,
        metavar='DIR',
        help="draw execution times as the ATC paper's figures 10 to 14 into "
        'DIR, as far as their scenarios ran (needs matplotlib)',
    )
    plugins.add_arguments(parser)


def _add_number(
    parser: argparse.ArgumentParser, name: str, default: float, about: str
) -> None:
    parser.add_argument(
        name,
        type=cli_types.number(),
        default=default,
        metavar='N',
        help=f'{about} (default: %(default)s)',
    )


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return the argparse type of names with commas between."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(','))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"'{name}' is not one of {', '.join(known)}"
                )
        return names

    return parse


def run(args: argparse.Namespace) -> int:
    """Run, print, and write the JSON file.

    :returns: 0; 2 if the kernel has no such policy, or the inventory is
        wrong or cannot be read.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    outputs.check_directory(args.plot)
    for policy in args.policies:
        if policy not in KERNELS[args.kernel]:
            print(
                f"nova-vhpc-bench cloud: there is no policy '{policy}' with "
                f'--kernel {args.kernel}',
                file=sys.stderr,
            )
            return 2
    try:
        clouds = list(_clouds(args, _inventory(args)))
    except (openstack.CloudError, ValueError, OSError) as error:
        print(f'nova-vhpc-bench cloud: {error}', file=sys.stderr)
        return 2
    seeds: dict[str, list[comparison.SeedFigures]] = defaultdict(list)
    document: dict[str, Any] = {}
    for cloud, figures in zip(
        clouds, simulations.run_all(clouds, args.jobs), strict=True
    ):
        seeds[cloud.name].append(figures)
        for job, reason in figures.refused.items():
            print(f'{cloud.name}, seed {cloud.seed}: {job}: {reason}')
        if len(seeds[cloud.name]) == args.seeds:
            document[cloud.name] = {
                policy: comparison.summary(seeds[cloud.name], policy)
                for policy in args.policies
            }
            if cloud.case is None:
                cloud_report.show(cloud.name, args.seeds, document[cloud.name])
    if 'npc09' in args.scenarios:
        cloud_report.show_npc09(args.seeds, args.policies, document)
    results = {
        'scenarios': document,
        'seed': args.seed,
        'kernel': args.kernel,
        'hosts': args.hosts,
        'group_policy': args.group_policy,
        'skew_ms': args.skew_ms,
        'seconds': args.seconds,
    }
    outputs.write_json(args.json, results)
    if args.plot:
        cloud_plot.draw(results, args.plot)
    return 0


def _inventory(args: argparse.Namespace) -> spec.CloudSpec | None:
    """Return the operator's cloud, if the scenario is asked for.

    :raises ValueError: it is wrong, or not one of file and cloud is named.
    :raises CloudError: the cloud cannot be read.
    :raises OSError: the file cannot be read or written.
    """
    if 'inventory' not in args.scenarios:
        return None
    if (args.inventory is None) == (args.os_cloud is None):
        raise ValueError(
            'the scenario inventory needs either --inventory FILE or '
            '--os-cloud NAME'
        )
    if args.inventory is not None:
        document = json.loads(args.inventory.read_text())
    else:
        document = cloud_inventory.read(openstack.connect(args))
    if args.write_inventory is not None:
        args.write_inventory.write_text(json.dumps(document, indent=1) + '\n')
    return inventory.read(
        document,
        None if args.group_policy == 'none' else args.group_policy,
        inventory.WhatIf(args.overcommit, args.more_hosts, args.more_clusters),
    )


def _clouds(
    args: argparse.Namespace, found: spec.CloudSpec | None
) -> Iterator[cloud_job.Cloud]:
    ours = plugins.selected(args)
    for scenario in args.scenarios:
        sizes = [args.hosts]
        if scenario == 'atc-a':
            sizes = [
                2**power
                for power in range(1, args.hosts.bit_length())
                if 2**power <= args.hosts
            ]
        cases = npc09.cases() if scenario == 'npc09' else (None,)
        for hosts, case, seed in itertools.product(
            sizes, cases, range(args.seed, args.seed + args.seeds)
        ):
            name = f'{scenario}-{hosts}' if scenario == 'atc-a' else scenario
            yield cloud_job.Cloud(
                name if case is None else case.name,
                scenario,
                args.kernel,
                seed,
                hosts,
                None if args.group_policy == 'none' else args.group_policy,
                args.policies,
                ours,
                args.seconds,
                args.warm_up,
                1_000.0 * args.skew_ms,
                args.latency_us,
                args.loss,
                found if scenario == 'inventory' else None,
                case,
            )
