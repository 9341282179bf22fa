# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench fairness``: what every VM of simulated hosts receives."""

import argparse
import dataclasses
import os
import sys
from typing import Any

from nova_vhpc.agent import errors
from nova_vhpc_lab.bench import controller as controller_bench
from nova_vhpc_lab.bench.common import cli_types, outputs, plugins, simulations
from nova_vhpc_lab.sim import fairness, random_hosts

HELP = (
    'Measure on random simulated hosts whether any VM receives less CPU time '
    'than under stock Linux, and how much faster parallel VMs are.'
)

WORST_HOSTS = 10
"""Number of the worst hosts whose seeds are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    outputs.add_json(parser)
    cli_types.add_integer(parser, '--hosts', 50, 'number of random hosts')
    cli_types.add_integer(
        parser, '--seed', 0, 'seed from which the hosts are drawn', least=0
    )
    parser.add_argument(
        '--only',
        nargs='+',
        metavar='HOST',
        help='run only these hosts: seeds of single hosts, as printed for the '
        f'worst ones, or names: {", ".join(random_hosts.NAMED)}',
    )
    cli_types.add_integer(
        parser,
        '--jobs',
        os.cpu_count() or 1,
        'number of hosts that are simulated at the same time',
    )
    cli_types.add_seconds(
        parser,
        '--seconds',
        60.0,
        'simulated time that is measured',
        least=10.0,
    )
    cli_types.add_seconds(
        parser, '--warm-up', 15.0, 'simulated time before that', least=0.0
    )
    parser.add_argument(
        '--null',
        action='store_true',
        help='compare stock Linux with stock Linux, to learn how much of the '
        'figures is noise',
    )
    parser.add_argument(
        '-v', '--verbose', action='store_true', help='print every VM'
    )
    plugins.add_arguments(parser)


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """One host to be measured, in a process of its own.

    :ivar host: its seed, or its name.
    :ivar names: policies; None for stock Linux.
    """

    host: str
    names: plugins.PluginNames | None
    warm_up_s: float
    seconds: float

    def run(self) -> fairness.HostResult:
        """Measure the host."""

        names = self.names
        spec, seed = random_hosts.make(self.host)
        return fairness.compare(
            spec,
            seed,
            None if names is None else lambda: controller_bench.make(names),
            self.warm_up_s,
            self.seconds,
        )


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the JSON file.

    :returns: 0; 2 if a plugin cannot be loaded or there is no such host.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    names = plugins.selected(args)
    hosts = args.only or random_hosts.seeds(args.seed, args.hosts)
    try:
        names.check()
        for host in hosts:
            random_hosts.make(host)
    except (errors.ConfigError, ValueError) as error:
        print(f'nova-vhpc-bench fairness: {error}', file=sys.stderr)
        return 2
    jobs = [
        _Job(
            host,
            None if args.null else names,
            args.warm_up,
            args.seconds,
        )
        for host in hosts
    ]
    results = []
    for result in simulations.run_all(jobs, args.jobs):
        results.append(result)
        _print_host(result, args.verbose)
    figures = fairness.summary(results)
    _print_summary(figures, results)
    outputs.write_json(
        args.json,
        {
            **figures,
            'seed': args.seed,
            'null': args.null,
            'by_host': {one.spec.name: _host_json(one) for one in results},
        },
    )
    return 0


def _print_host(result: fairness.HostResult, verbose: bool) -> None:
    spec = result.spec
    print(
        f'{spec.name}: {spec.cpus} CPUs, {len(result.vms)} VMs, worst part '
        f'{result.worst:.2f} (10 s), windows {result.windows_part:.0%} of the '
        'time',
        flush=True,
    )
    if not verbose:
        return
    print(
        f'  {"CPUs":>12}{"ours":>7}{"10 s":>7}{"2 s":>7}{"progress":>10}'
        f'{"ours":>8}{"p99":>7}'
    )
    for vm in sorted(result.vms, key=lambda vm: vm.long_part):
        latency = '' if vm.latency_ratio is None else f'{vm.latency_ratio:.2f}'
        print(
            f'  {vm.entitlement:>12.3f}{vm.received:>7.3f}{vm.long_part:>7.2f}'
            f'{vm.short_part:>7.2f}{vm.stock_progress:>10.3f}'
            f'{vm.progress:>8.3f}{latency:>7}  {vm.spec}'
        )


def _print_summary(
    figures: dict[str, float], results: list[fairness.HostResult]
) -> None:
    print()
    for name, value in figures.items():
        text = f'{value:.3f}' if isinstance(value, float) else str(value)
        print(f'{name:<24}{text:>10}')
    worst = sorted(results, key=lambda one: one.worst)[:WORST_HOSTS]
    print()
    print('Worst hosts, to be run again with --only HOST -v:')
    for one in worst:
        vm = min(one.vms, key=lambda vm: vm.long_part, default=None)
        about = '' if vm is None else f' ({vm.spec})'
        print(f'  {one.spec.name}: {one.worst:.2f}{about}')


def _host_json(result: fairness.HostResult) -> dict[str, Any]:
    return {
        'cpus': result.spec.cpus,
        'windows_part': result.windows_part,
        'worst': result.worst,
        'vms': {
            vm.spec.name: {
                'about': str(vm.spec),
                'opted_in': vm.spec.opted_in,
                'entitlement_cpus': vm.entitlement,
                'received_cpus': vm.received,
                'part_10s': vm.long_part,
                'part_2s': vm.short_part,
                'progress': vm.progress,
                'stock_progress': vm.stock_progress,
                'latency_ratio': vm.latency_ratio,
            }
            for vm in result.vms
        },
    }
