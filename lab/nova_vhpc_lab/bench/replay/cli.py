# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench replay``: run the controller on a recorded trace."""

import argparse
import pathlib
import sys

from nova_vhpc.agent import errors
from nova_vhpc_lab.bench.common import cli_types, outputs, traces
from nova_vhpc_lab.bench.replay import plot
from nova_vhpc_lab.bench.replay.result import Replay
from nova_vhpc_lab.bench.replay.run import RULES, replay

MAX_VCPUS = 4_096
"""More vCPUs than any hypervisor gives a VM."""

HELP = (
    'Run the controller on a trace of I/O events as the agent does, and show '
    'its predictions and when it moves VMs.'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument(
        'trace',
        type=pathlib.Path,
        help='CSV file: a header of VM names, then the I/O events of each VM, '
        'a row per 100 ms',
    )
    outputs.add_json(parser)
    parser.add_argument(
        '--plot',
        type=plot.picture,
        metavar='FILE',
        help='draw a timeline (.svg or .png; needs the extra "plot")',
    )
    parser.add_argument(
        '--leave-rule',
        choices=sorted(RULES),
        default='ours',
        help='rule whose pools the panels show (default: %(default)s); both '
        'are run',
    )
    parser.add_argument(
        '--predictor',
        default='adaptive',
        metavar='NAME',
        help='predictor of I/O states (default: %(default)s)',
    )
    parser.add_argument(
        '--pinning-policy',
        default='io_pool',
        metavar='NAME',
        help='pinning policy (default: %(default)s)',
    )
    cli_types.add_integer(
        parser,
        '--cpus',
        4,
        'CPUs of the host, in two sockets',
        most=MAX_VCPUS,
    )
    cli_types.add_integer(parser, '--vcpus', 2, 'vCPUs per VM', most=MAX_VCPUS)


def run(args: argparse.Namespace) -> int:
    """Replay a trace, print the figures, write the files.

    :returns: 0; 1 if the trace cannot be read; 2 if a plugin cannot be loaded.
    :raises OutputError: if a file cannot be written.
    """
    outputs.check(args.json, args.plot)
    if args.plot:
        outputs.check_matplotlib(args.plot)
    try:
        trace = traces.read_gapped(args.trace)
        replays = {
            rule: replay(
                trace,
                rule,
                args.predictor,
                args.pinning_policy,
                args.cpus,
                args.vcpus,
            )
            for rule in RULES
        }
    except (traces.TraceError, errors.ConfigError) as error:
        print(f'nova-vhpc-bench replay: {error}', file=sys.stderr)
        return 2 if isinstance(error, errors.ConfigError) else 1
    _report(trace, replays, args.predictor)
    outputs.write_json(
        args.json,
        {
            'trace': trace.name,
            'predictor': args.predictor,
            'leave_rule': args.leave_rule,
            'rules': {
                rule: result.as_json() for rule, result in replays.items()
            },
        },
    )
    if args.plot:
        plot.plot(trace, replays, args.leave_rule, args.predictor, args.plot)
    return 0


def _report(
    trace: traces.GappedTrace,
    replays: dict[str, Replay],
    predictor: str,
) -> None:
    """Print the figures of each leave rule and each VM."""
    print(
        f'{trace.name}: {len(trace.vms)} VMs, {len(trace.rows)} periods of '
        f'100 ms, predictor {predictor}'
    )
    if trace.gaps:
        print(
            f'{trace.gaps} cells are not a number of I/O events and count as '
            'not measured'
        )
    print(
        f'{"leave rule":<12}{"moves":>7}{"in I/O pool":>13}{"writes":>8}'
        f'{"in I/O phase":>14}'
    )
    for rule, result in replays.items():
        print(
            f'{rule:<12}{len(result.moves):>7}{result.io_fraction:>13.1%}'
            f'{result.writes:>8}{result.io_phase_fraction:>14.1%}'
        )
    for rule, result in replays.items():
        for reason, vm_periods in result.not_followed.items():
            print(
                f'{rule}: phase not followed {result.share(vm_periods):.1%} '
                f'of the time: {reason}'
            )
    print(f'\n{"VM":<12}{"predicted right":>16}{"threshold":>11}')
    for name, line in next(iter(replays.values())).vms.items():
        precision, threshold = line.precision, line.threshold_events[-1]
        print(
            f'{name[:11]:<12}'
            f'{"-" if precision is None else f"{precision:.1%}":>16}'
            f'{"-" if threshold is None else f"{threshold:.0f}":>11}'
        )
