# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Arguments of ``nova-vhpc-top``."""

import argparse
import re
import sys

from rich import console

from nova_vhpc import version
from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.cmd import arguments
from nova_vhpc.conf import types
from nova_vhpc.top import order


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = arguments.ArgumentParser(
        prog='nova-vhpc-top',
        description='Show what agents do, by virtual cluster, like top.',
    )
    version.add_argument(parser)
    where = parser.add_argument_group('whom to ask')
    where.add_argument(
        '--run-path',
        default='/run/nova-vhpc',
        help="the agent's [vhpc_agent]run_path (default: %(default)s)",
    )
    where.add_argument(
        '--socket',
        metavar='PATH',
        help='path of the status socket, instead of --run-path',
    )
    where.add_argument(
        '--cluster',
        metavar='ID',
        help='show one virtual cluster on all of its hosts, over the message '
        "bus; ID is the server group's UUID, or PROJECT/NAME as another view "
        'shows it',
    )
    where.add_argument(
        '--host',
        action='append',
        metavar='HOST',
        help='ask the agent of this host over the message bus, may be '
        'repeated; with --cluster, instead of those that Nova and other '
        'agents name',
    )
    where.add_argument(
        '--config-file',
        action='append',
        metavar='FILE',
        help="the agents' configuration, for transport_url and [vhpc_nova]; "
        'without it the usual places, such as /etc/nova-vhpc/nova-vhpc.conf',
    )
    where.add_argument(
        '--timeout',
        metavar='SECONDS',
        help='how long to wait for an answer over the message bus, from 0.1; '
        'without it [vhpc_peers]call_timeout',
    )
    where.add_argument(
        '--input',
        metavar='FILE',
        help='show what --once --json has printed to a file, instead of '
        'asking an agent',
    )
    what = parser.add_argument_group('what to show')
    what.add_argument(
        '--sort',
        choices=[one.value for one in order.Order],
        default=order.Order.NAME.value,
        help='what to sort by (default: %(default)s)',
    )
    what.add_argument(
        '--filter',
        default='',
        metavar='WORDS',
        help='show only servers that have all these words in a name, UUID, '
        'host, workload, phase, state or note',
    )
    how = parser.add_argument_group('how to show it')
    how.add_argument(
        '--interval',
        default='1.0',
        metavar='SECONDS',
        help='time between two updates, from 0.1 (default: %(default)s)',
    )
    how.add_argument(
        '--once',
        action='store_true',
        help='print once, as wide as the terminal or COLUMNS, then exit; '
        'needs no Textual',
    )
    how.add_argument(
        '--json',
        action='store_true',
        help='with --once: print whole answers as JSON, for scripts',
    )
    how.add_argument(
        '--screenshot',
        metavar='FILE.svg',
        help='write a picture of the screen to a file, then exit',
    )
    how.add_argument(
        '--size',
        default='120x36',
        metavar='COLUMNSxLINES',
        help='size of that screen (default: %(default)s)',
    )
    return parser


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Check arguments together, and convert them; exit if they do not fit.

    ``where`` becomes what is asked, for messages.
    """
    if args.json and not args.once:
        parser.error('--json goes with --once')
    for option, name in (
        ('--cluster', args.cluster),
        *(('--host', host) for host in args.host or ()),
    ):
        # As by an unset variable of a script.
        if name is not None and not name.strip():
            parser.error(f"{option}: '{name}' is no name")
    over_bus = bool(args.cluster or args.host)
    if over_bus and args.input:
        parser.error('--cluster and --host ask agents, --input does not')
    if not over_bus and (args.config_file or args.timeout):
        parser.error('--config-file and --timeout go with --cluster or --host')
    try:
        args.interval = types.Finite(0.1, 3600.0)(args.interval)
    except ValueError as error:
        parser.error(f'--interval: {error}')
    size = re.fullmatch(r'(\d{2,3})x(\d{1,3})', args.size)
    if size is None or int(size[1]) < 20 or int(size[2]) < 8:
        parser.error(
            f"--size: '{args.size}' must be columns and lines, from 20x8 to "
            '999x999, such as 120x36'
        )
    args.size = int(size[1]), int(size[2])
    args.where = (
        args.input or args.socket or status_socket.socket_path(args.run_path)
    )
    if not (args.once or args.screenshot):
        # Textual reads keys from the first, and draws on the last.
        for name in ('stdin', 'stdout', 'stderr'):
            if not getattr(sys, name).isatty():
                parser.error(f'{name} is no terminal; --once prints')
        if console.Console().is_dumb_terminal:
            parser.error('TERM=dumb cannot be drawn on; --once prints')
