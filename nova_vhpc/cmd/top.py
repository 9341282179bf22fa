# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``nova-vhpc-top``: shows what agents do, by virtual cluster, like top."""

import argparse
import os
import pathlib
import re
import sys

from rich import console

from nova_vhpc import version
from nova_vhpc.agent import errors
from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.cmd import arguments, output
from nova_vhpc.conf import types
from nova_vhpc.top import order, reader, report, sources

PIPE_WIDTH = 200
"""Width in characters if standard output is no terminal and ``COLUMNS`` is
not set."""


def main(argv: list[str] | None = None) -> int:
    """Show what agents do.

    :returns: exit status: 0; 1 if no agent answers; 2 on invalid arguments.
    """
    output.take_any_name()
    parser = make_parser()
    args = parser.parse_args(argv)
    _check(parser, args)
    try:
        source = _source(args)
        answers = source.fetch()
        if args.once:
            _print(args, answers)
            return 0
        return _screen(args, source, answers)
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


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with a message if arguments do not fit together."""
    if args.json and not args.once:
        parser.error('--json goes with --once')
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
    if not (args.once or args.screenshot) and not (
        sys.stdout.isatty() and not console.Console().is_dumb_terminal
    ):
        parser.error(
            'standard output is no terminal to draw on; --once prints'
        )


def _source(args: argparse.Namespace) -> sources.Source:
    if args.input:
        return sources.FileSource(args.input)
    return sources.SocketSource(args.where)


def _print(args: argparse.Namespace, answers: sources.Answers) -> None:
    if args.json:
        output.print_json(answers.as_json(), sort_keys=True)
        return
    # A pipe has no width; with this one no column is left out.
    piped = not sys.stdout.isatty() and 'COLUMNS' not in os.environ
    out = console.Console(width=PIPE_WIDTH if piped else None)
    snapshot = reader.snapshot(answers)
    clusters = order.clusters(
        snapshot.servers, order.Order(args.sort), words=args.filter
    )
    for line in report.report(snapshot, clusters, out.width):
        out.print(line, soft_wrap=True)


def _screen(
    args: argparse.Namespace, source: sources.Source, answers: sources.Answers
) -> int:
    # Only here, so that --once does without Textual.
    from nova_vhpc.top import app

    top = app.TopApp(
        source, answers, args.interval, order.Order(args.sort), args.filter
    )
    if args.screenshot is None:
        return app.run(top)
    picture = app.screenshot(top, args.size)
    try:
        pathlib.Path(args.screenshot).write_text(picture, 'utf-8')
    except OSError as error:
        print(
            f'nova-vhpc-top: cannot write --screenshot: {error}',
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
