# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-hosts``: files for launchers and job schedulers, in a guest.

What launchers of MPI read, and a report for people, are made of the
vendordata of a member; how programs waited, of what they counted.

Part of the program that runs in guests (:mod:`.script`): Python 3.6 and its
standard library.
"""

import argparse
import difflib
import os
import re
import sys
from typing import Any

from nova_vhpc.vendordata.guest.launcher_files import (
    LAUNCHER_FORMATS,
    environment,
)
from nova_vhpc.vendordata.guest.metadata import (
    CONFIG_DRIVE,
    URL,
    HostsError,
    complete_answer,
    read_answer,
)
from nova_vhpc.vendordata.guest.report import plain, report
from nova_vhpc.vendordata.guest.topology_files import (
    TOPOLOGY_FORMATS,
    with_nodes,
)
from nova_vhpc.vendordata.guest.waiting import (
    LIBRARY,
    WAIT_FLAGS,
    WAIT_MODES,
    shell_lines,
    wait_environment,
)
from nova_vhpc.vendordata.guest.waiting_statistics import waited

STATISTICS = 'VHPC_WAIT_STATS'
"""Variable that names the file to which ranks write how they waited."""

_HELP = """\
Print files for launchers of MPI and for job schedulers, from what the
metadata service says of this server's virtual cluster.
"""

_EPILOG = """\
"env --wait" prints what makes programs nap while they wait, as the flavor
says, or by "env --wait passive" and others: eval "$(nova-vhpc-hosts env
--wait)", or mpirun $(nova-vhpc-hosts env --wait --launcher openmpi) ./program.
"waited" sums up how they waited, from the file that VHPC_WAIT_STATS names.
"""

_ENVIRONMENT = ('env', 'environment')


def main(argv: 'list[str] | None' = None) -> int:
    """Print one file.

    :returns: 0; 1 if there is nothing to print, or with ``--wait`` no
        complete cluster; 2 for bad arguments; 130 if it is interrupted.
    """
    args = _arguments(argv)
    try:
        _print(_text_of(args))
    except KeyboardInterrupt:
        return 130
    except (HostsError, ValueError) as error:
        reason = str(error)
    except OSError as error:
        reason = f'standard output: {error}'
    except (LookupError, TypeError, AttributeError) as error:
        reason = (
            'the vendordata is not that of nova-vhpc-vendordata '
            f'({error!r}); is it of another version?'
        )
    else:
        return 0
    _say(reason)
    return 1


def _say(text: str) -> None:
    sys.stderr.write(f'nova-vhpc-hosts: {plain(text)}\n')


def _text_of(args: argparse.Namespace) -> str:
    """Return the text that is asked for.

    :raises HostsError: there is no vendordata, or no member to name.
    """
    if args.format == 'waited':
        return _waited(args.file)
    if args.format in _ENVIRONMENT:
        return _environment(args)
    answer = complete_answer(args) if args.wait else read_answer(args)
    if args.format in TOPOLOGY_FORMATS:
        nodes = args.nodes.split(',') if args.nodes else []
        members = with_nodes(answer['members'], nodes)
        if not any(member['host'] for member in members) and any(
            member['running'] for member in answer['members']
        ):
            raise HostsError(
                'the cloud does not tell which members share a host, a switch '
                'or a rack: ask the operator to give nova-vhpc-vendordata a '
                'secret for their IDs'
            )
        return TOPOLOGY_FORMATS[args.format](members)
    if args.format == 'report':
        return report(answer)
    text = LAUNCHER_FORMATS[args.format](answer)
    if not text:
        raise HostsError(
            'no member runs and has an address yet: try it again later, or '
            'wait for all by --wait SECONDS'
        )
    return text


def _waited(file: 'str | None') -> str:
    """Return a line about how the ranks of programs waited.

    :raises HostsError: no file is named, or it cannot be read.
    """
    source = file or os.environ.get(STATISTICS)
    if not source:
        raise HostsError(
            'name the file to which the ranks wrote, by --file or '
            + STATISTICS
        )
    try:
        with open(source) as lines:
            return waited(lines)
    except OSError as error:
        raise HostsError(f'{source}: {error.strerror}') from None
    except ValueError as error:
        raise HostsError(f'{source}: {error}') from None


def _environment(args: argparse.Namespace) -> str:
    """Return variables, for ``eval`` of a shell or as a launcher's flags.

    What makes programs wait well needs nothing of the cloud: it is there
    without vendordata, too.
    """
    answer: dict[str, Any] = {}
    try:
        answer = complete_answer(args) if args.wait else read_answer(args)
    except HostsError as error:
        if args.mode is None:
            raise
        _say(f'{error}. Variables of the cluster are left out')
    if args.mode is None:
        return shell_lines(environment(answer))
    mode = args.mode or answer.get('wait', {}).get('mode')
    if mode not in WAIT_MODES:
        mode = 'auto'
    preload = {} if mode == 'active' else _preload(args.library)
    if args.launcher:
        others = dict(answer['mpi']['environment']) if answer else {}
        others.update(preload)
        if os.environ.get(STATISTICS):
            others[STATISTICS] = os.environ[STATISTICS]
        return ' '.join(WAIT_FLAGS[args.launcher](mode, others)) + '\n'
    variables = environment(answer) if answer else {}
    variables.update(wait_environment(mode))
    variables.update(preload)
    return shell_lines(variables)


def _preload(library: 'str | None') -> 'dict[str, str]':
    """Return the variable that loads the library for MPI, if it is here.

    :param library: its file; None for :data:`LIBRARY`.
    :raises HostsError: it is not in the file that was named.
    """
    if library and not os.path.exists(library):
        raise HostsError(f'--library: there is no {library}')
    path = os.path.abspath(library or LIBRARY)
    if os.path.exists(path):
        loaded = re.split('[ :]+', os.environ.get('LD_PRELOAD', ''))
        others = [one for one in loaded if one and one != path]
        return {'LD_PRELOAD': ':'.join([path, *others])}
    _say(
        f'{LIBRARY} is not here, so MPI calls spin as before; install '
        'it on all members, or name it by --library'
    )
    return {}


def _print(text: str) -> None:
    """Print text, with "?" for what the encoding of the terminal lacks.

    :raises OSError: standard output cannot be written to.
    """
    encoding = sys.stdout.encoding or 'utf-8'
    try:
        sys.stdout.write(text.encode(encoding, 'replace').decode(encoding))
        sys.stdout.flush()
    except OSError:
        # Python would try it again at its end, and complain at length.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _arguments(argv: 'list[str] | None') -> argparse.Namespace:
    """Return the arguments; ``mode`` is how programs are to wait.

    It is None if that is not asked for, and empty for the flavor's.
    """
    parser = make_parser()
    args = parser.parse_args(argv)
    args.mode = None
    if not isinstance(args.wait, float):
        args.mode, args.wait = args.wait or '', 0.0
        if args.format not in _ENVIRONMENT:
            parser.error(
                f'{args.format} --wait: give a number of seconds; '
                + ', '.join(WAIT_MODES)
                + ', or none, are for env'
            )
    elif args.launcher or args.library:
        parser.error('--launcher and --library are for env --wait')
    return args


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog='nova-vhpc-hosts',
        description=_HELP,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument(
        'format',
        nargs='?',
        default='report',
        type=_format,
        choices=_formats(),
        help='what to print (default: %(default)s)',
    )
    parser.add_argument(
        '--url',
        default=URL,
        help='metadata service (default: %(default)s)',
    )
    parser.add_argument(
        '--file',
        help=f'read this file instead, such as {CONFIG_DRIVE} of a '
        'config drive, which is as old as the server',
    )
    parser.add_argument(
        '--target',
        default='vhpc',
        help="name of the service in Nova's vendordata_dynamic_targets "
        '(default: %(default)s)',
    )
    parser.add_argument(
        '--nodes',
        metavar='NAME,...',
        help='names of all nodes of the job scheduler: those that are no '
        'servers yet are in the topology, too',
    )
    parser.add_argument(
        '--wait',
        nargs='?',
        type=_wait,
        default=0.0,
        metavar='SECONDS|MODE',
        help='wait so long at most until the cluster is complete; with env, '
        'how programs are to wait for each other: '
        + ', '.join(WAIT_MODES)
        + ' (default: as the flavor says)',
    )
    parser.add_argument(
        '--launcher',
        choices=sorted(WAIT_FLAGS),
        help='with env --wait: print flags of this launcher',
    )
    parser.add_argument(
        '--library',
        metavar='FILE',
        help='with env --wait: the library that lets MPI calls nap '
        f'(default: {LIBRARY}, if it is there)',
    )
    return parser


def _formats() -> 'list[str]':
    others = ('report', 'waited', *_ENVIRONMENT)
    return sorted([*LAUNCHER_FORMATS, *TOPOLOGY_FORMATS, *others])


def _format(text: str) -> str:
    """Return the name of a format, which the command line gives."""
    if text not in _formats():
        near = difflib.get_close_matches(text, _formats(), 1)
        hint = f'did you mean {near[0]!r}? ' if near else ''
        raise argparse.ArgumentTypeError(
            f'{text!r} is no format: {hint}There are ' + ', '.join(_formats())
        )
    return text


def _wait(text: str) -> 'float | str':
    """Return a duration of the command line in seconds, or a mode."""
    if text in WAIT_MODES:
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no number of seconds, 0 or more, and none of '
            + ', '.join(WAIT_MODES)
        )
    return value


if __name__ == '__main__':
    sys.exit(main())
