# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-top``: shows what agents do, by virtual cluster, like top."""

import argparse
import contextlib
import functools
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from nova_vhpc import version
from nova_vhpc.agent import errors
from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.cli import agents, arguments
from nova_vhpc.conf import nova_api, types
from nova_vhpc.top import model, reader, sources

PIPE_WIDTH = 200
"""Width in characters if standard output is no terminal and ``COLUMNS`` is
not set."""


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
        type=arguments.name,
        help='show one virtual cluster on all of its hosts, over the message '
        "bus; ID is the server group's UUID, or PROJECT/NAME as another view "
        'shows it',
    )
    where.add_argument(
        '--host',
        action='append',
        metavar='HOST',
        type=arguments.name,
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
        choices=[one.value for one in model.Order],
        default=model.Order.NAME.value,
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


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Check arguments together, and convert them; exit if they do not fit.

    ``where`` becomes what is asked, for messages.
    """
    if args.json and not args.once:
        parser.error('--json goes with --once')
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
        from rich import console

        if console.Console().is_dumb_terminal:
            parser.error('TERM=dumb cannot be drawn on; --once prints')


def main(argv: list[str] | None = None) -> int:
    """Show what agents do.

    :returns: exit status: 0; 1 if no agent answers; 2 on invalid arguments.
    """
    arguments.take_any_name()
    parser = make_parser()
    args = parser.parse_args(argv)
    _check(parser, args)
    try:
        with _source(args) as fetch:
            answers = fetch()
            if args.once:
                _print(args, answers)
                return 0
            return _screen(args, fetch, answers)
    except agents.UnreachableError as error:
        print(f'nova-vhpc-top: {error}', file=sys.stderr)
        return 2
    except sources.SourceError as error:
        print(f'nova-vhpc-top: {error}', file=sys.stderr)
    except OSError as error:
        print(f'nova-vhpc-top: cannot print: {error}', file=sys.stderr)
    except errors.UNREADABLE as error:
        # For instance an agent that was not restarted after an upgrade.
        text = errors.unreadable(error)
        print(f'nova-vhpc-top: {args.where}: {text}', file=sys.stderr)
    except KeyboardInterrupt:
        return 0
    return 1


@contextlib.contextmanager
def _source(args: argparse.Namespace) -> Iterator[sources.Fetch]:
    """Give what asks the agents that the arguments name.

    :raises agents.UnreachableError: agents cannot be asked from here.
    """
    if args.input:
        yield functools.partial(sources.read_file, args.input)
    elif args.cluster or args.host:
        with agents.Agents(args) as bus:
            yield _over_bus(args, bus)
    else:
        yield functools.partial(sources.read_socket, args.where)


def _over_bus(args: argparse.Namespace, bus: agents.Agents) -> sources.Fetch:
    if args.host:
        return functools.partial(
            sources.ask_hosts, bus.statuses, args.host, args.cluster
        )

    def here() -> Any:
        try:
            return status_socket.fetch(args.where)
        except (OSError, ValueError):
            return None

    nova_api.register_opts(bus.conf)
    members = sources.NovaMembers(bus.conf, args.cluster)
    return functools.partial(
        sources.ask_cluster, bus.statuses, args.cluster, members.find, here
    )


def _print(args: argparse.Namespace, answers: sources.Answers) -> None:
    if args.json:
        arguments.print_json(answers.as_json(), sort_keys=True)
        return
    # Only here, so that --json does without the library.
    from rich import console

    from nova_vhpc.top import report

    # A pipe has no width; with this one no column is left out.
    piped = not sys.stdout.isatty() and 'COLUMNS' not in os.environ
    out = console.Console(width=PIPE_WIDTH if piped else None)
    snapshot = reader.snapshot(answers)
    clusters = model.group(
        snapshot.servers, model.Order(args.sort), words=args.filter
    )
    for line in report.report(snapshot, clusters, out.width):
        out.print(line, soft_wrap=True)


def _screen(
    args: argparse.Namespace, fetch: sources.Fetch, answers: sources.Answers
) -> int:
    # Only here, so that --once does without Textual.
    from nova_vhpc.top import app

    top = app.TopApp(
        fetch, answers, args.interval, model.Order(args.sort), args.filter
    )
    if args.screenshot is None:
        return app.run(top)
    svg = app.picture(top, args.size)
    try:
        pathlib.Path(args.screenshot).write_text(svg, 'utf-8')
    except OSError as error:
        print(
            f'nova-vhpc-top: cannot write --screenshot: {error}',
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
