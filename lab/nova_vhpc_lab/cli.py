# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench``: measured figures, with the peer in the same run.

Every subcommand is a module of ``nova_vhpc_lab.bench`` with ``HELP``,
``add_arguments(parser)`` and ``run(args) -> int``. It calls
``outputs.check`` before it measures and writes after it has printed.
"""

import argparse
import contextlib
import errno
import importlib
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator

from nova_vhpc import version
from nova_vhpc.cli import arguments
from nova_vhpc_lab.bench.common import outputs, simulations

SUBCOMMANDS = {
    'scheduler': 'scheduler.run',
    'agent': 'agent.driver',
    'controller': 'controller',
    'predictors': 'predictors.run',
    'lab': 'lab.cli',
    'peers': 'phase_exchange',
    'fairness': 'fairness',
    'calibration': 'calibration',
    'xen': 'xen',
    'cloud': 'cloud',
    'network': 'network.cli',
    'wait': 'wait',
}
"""Module of each subcommand, below ``nova_vhpc_lab.bench``."""

ENDS = (signal.SIGTERM, signal.SIGHUP)
"""From a job's time limit, and from a terminal that is closed."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""No room on a disk, or none for this user."""


def make_parser(
    names: Iterable[str] = SUBCOMMANDS,
) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    :param names: subcommands that it knows.
    """
    parser = arguments.ArgumentParser(
        prog='nova-vhpc-bench', description='Measure nova-vhpc.'
    )
    version.add_argument(parser)
    subparsers = parser.add_subparsers(dest='command', required=True)
    for name in names:
        module = importlib.import_module(
            f'nova_vhpc_lab.bench.{SUBCOMMANDS[name]}'
        )
        subparser = subparsers.add_parser(
            name, help=module.HELP, description=module.HELP
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one benchmark.

    :returns: 0, or 1 when it could not be measured or written, 2 on bad
        arguments, 130 when it was interrupted.
    """
    argv = sys.argv[1:] if argv is None else argv
    # Only what is asked for is imported: a bench that measures its own
    # memory must not carry the others'.
    wanted = [name for name in SUBCOMMANDS if name in argv[:1]]
    program = ' '.join(('nova-vhpc-bench', *wanted))
    try:
        args = make_parser(wanted or SUBCOMMANDS).parse_args(argv)
        with _cleaning_up(), outputs.tables():
            status: int = args.run(args)
    except outputs.OutputError as error:
        print(f'{program}: {error}', file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(
            f'{program}: {error.strerror}; what it needs meanwhile it writes '
            f'to {tempfile.gettempdir()} (TMPDIR)',
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print(f'{program}: interrupted', file=sys.stderr)
        return 128 + signal.SIGINT
    return status


@contextlib.contextmanager
def _cleaning_up() -> Iterator[None]:
    """Let a run that a signal ends clean up first.

    Brokers, guests, bridges and control groups must not stay behind.
    """
    before = {
        number: signal.signal(number, _leave)
        for number in ENDS
        # nohup has SIGHUP ignored.
        if signal.getsignal(number) is signal.SIG_DFL
    }
    try:
        yield
    except BaseException:
        simulations.end_workers()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: object) -> None:
    # A second one must not cut the cleaning up short.
    for each in ENDS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == '__main__':
    sys.exit(main())
