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

"""``nova-vhpc-top``: shows the live plan of this host, like top.

Reads the agent's status socket only; does not use libvirt.
"""

import argparse
import signal
import sys
import time
from typing import Any, NoReturn

from rich import box, console, live, panel, table, text

from nova_vhpc import version
from nova_vhpc.agent.daemon import health, status_socket
from nova_vhpc.cmd import arguments, output
from nova_vhpc.conf import types

PIPE_WIDTH = 160
"""Width in characters if standard output is no terminal."""

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

COLUMNS = (
    ('VM', 'left'),
    ('workload', 'left'),
    ('phase', 'left'),
    ('slice ms', 'right'),
    ('period ms', 'right'),
    ('quota ms', 'right'),
    ('shares', 'right'),
    ('pins', 'left'),
    ('CPU %', 'right'),
    ('latency us', 'right'),
    ('I/O', 'right'),
    ('writes', 'right'),
    ('note', 'left'),
)


def main(argv: list[str] | None = None) -> int:
    """Show the live plan.

    :returns: exit status: 0; 1 if the agent does not answer.
    """
    output.take_any_name()
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.json and not args.once:
        parser.error('--json goes with --once')
    try:
        interval_s = types.Finite(0.1, 3600.0)(args.interval)
    except ValueError as error:
        parser.error(f'--interval: {error}')
    if not args.once and not (
        sys.stdout.isatty() and not console.Console().is_dumb_terminal
    ):
        parser.error(
            'standard output is no terminal to draw on; --once prints'
        )
    path = args.socket or status_socket.socket_path(args.run_path)
    try:
        if args.once:
            _show(_fetch(path), args.json)
            return 0
        return _follow(path, interval_s)
    except _NoAgentError as error:
        print(
            f'nova-vhpc-top: {path}: {error}; is nova-vhpc-agent running, '
            'and may you open its socket?',
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        print(f'nova-vhpc-top: cannot print: {error}', file=sys.stderr)
        return 1
    except output.UNREADABLE as error:
        # For instance an agent that was not restarted after an upgrade.
        print(
            f'nova-vhpc-top: {path}: its answer is not that of '
            f'nova-vhpc-agent {version.version_string()} '
            f'({type(error).__name__}: {error}); is it of another version?',
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = arguments.ArgumentParser(
        prog='nova-vhpc-top',
        description='Show the live plan of this host, like top.',
    )
    version.add_argument(parser)
    parser.add_argument(
        '--run-path',
        default='/run/nova-vhpc',
        help="the agent's [vhpc_agent]run_path (default: %(default)s)",
    )
    parser.add_argument(
        '--socket',
        metavar='PATH',
        help='path of the status socket, instead of --run-path',
    )
    parser.add_argument(
        '--interval',
        default='1.0',
        metavar='SECONDS',
        help='time between two updates, from 0.1 (default: %(default)s)',
    )
    parser.add_argument(
        '--once', action='store_true', help='show the plan once, then exit'
    )
    parser.add_argument(
        '--json',
        action='store_true',
        help='with --once: print JSON, for scripts',
    )
    return parser


class _NoAgentError(Exception):
    """No agent answers; unlike an OSError of standard output."""


def _fetch(path: str) -> dict[str, Any]:
    try:
        return status_socket.fetch(path)
    except (OSError, ValueError) as error:
        raise _NoAgentError(str(error)) from error


def _show(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(document, sort_keys=True)
        return
    # A pipe has no width; with this one no column name is cut.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    console.Console(width=width).print(render(document))


def _end(number: int, frame: object) -> NoReturn:
    """Exit by an exception, so that the terminal leaves the other screen."""
    raise SystemExit(128 + number)


def _follow(path: str, interval_s: float) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    shown = render(_fetch(path))
    # A signal while the other screen is entered would not leave it.
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    with live.Live(shown, screen=True, auto_refresh=False) as screen:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
        while True:
            time.sleep(interval_s)
            screen.update(render(_fetch(path)), refresh=True)


def render(document: dict[str, Any]) -> panel.Panel:
    """Return the status document as a table.

    :param document: the status document, see
        :mod:`nova_vhpc.agent.daemon.status`.
    :raises Exception: one of :data:`.output.UNREADABLE`, for any other
        document.
    """
    agent = document['agent']
    # Agents of earlier versions have none.
    judged = document.get('health') or {}
    rows = table.Table(box=box.SIMPLE, expand=True, pad_edge=False)
    for name, side in COLUMNS:
        rows.add_column(name, justify='right' if side == 'right' else 'left')
    for vm in document['vms']:
        # Text objects, because rich would take [...] in a reason for markup.
        rows.add_row(*map(text.Text, _row(vm, agent['period_us'])))
    marks = [
        word
        for word, on in (
            ('DRY RUN', agent['dry_run']),
            ('PAUSED', agent['paused']),
            ('NO LIBVIRT', not agent['libvirt_up']),
            ('NOT HEALTHY', not judged.get('healthy', True)),
        )
        if on
    ]
    tick_us = agent['tick_us']
    tick = '-' if tick_us is None else f'{tick_us / 1000:.1f}'
    title = ' '.join(
        [
            f'nova-vhpc {agent["host"]}',
            f'CPUs {agent["cpus"]}',
            f'tick {tick} of {agent["period_us"] / 1000:.0f} ms',
            f'missed {agent["overruns"]}',
            *marks,
        ]
    )
    uplinks = document.get('publishing') or {}
    state = uplinks.get('state', 'off')
    subtitle = text.Text(
        f'uplinks {state}; {_windows(document)}; {_bus(document)}'
    )
    # Sentences go below the table, whose cells would cut them.
    left_alone = agent.get('refused', {}).items()
    below = [f'{uuid}: left alone: {reason}' for uuid, reason in left_alone]
    below += agent.get('remarks', ())
    below += health.sentences(judged) if judged else _problems(document)
    return panel.Panel(
        console.Group(rows, *map(text.Text, below)),
        title=text.Text(title),
        subtitle=subtitle,
    )


def _problems(document: dict[str, Any]) -> list[str]:
    """Return what an agent of an earlier version, without health, says."""
    uplinks = document.get('publishing') or {}
    lines = []
    for name, part in (
        ('uplinks', uplinks),
        ('metrics', document.get('metrics') or {}),
    ):
        if part.get('detail'):
            lines.append(f'{name}: {part["state"]}: {part["detail"]}')
    return lines + [f'uplinks: {p}' for p in uplinks.get('problems', ())]


def _bus(document: dict[str, Any]) -> str:
    peers = document.get('peers') or {}
    words = f'message bus {peers.get("state", "off")}'
    if peers.get('state') == 'up' and peers.get('echo_us') is not None:
        return f'{words}, echo in {peers["echo_us"] / 1000:.1f} ms'
    return f'{words}: {peers["detail"]}' if peers.get('detail') else words


def _windows(document: dict[str, Any]) -> str:
    windows = document.get('windows') or {}
    turns = windows.get('turns') or []
    if not windows.get('playing') or not turns:
        return 'no gang windows'
    widths = ', '.join(f'{turn["width_us"] / 1000:g}' for turn in turns)
    return f'gang windows of {widths} ms'


def _row(vm: dict[str, Any], period_us: int) -> list[str]:
    run_us = vm['run_us']
    note = '; '.join(
        filter(
            None,
            (
                vm['problem'] or vm['hands_off'] or vm['reason'],
                # Agents of earlier versions have none.
                *vm.get('remarks', ()),
            ),
        )
    )
    if vm['released']:
        note = f'external change: {", ".join(vm["released"])}; {note}'
    return [
        vm['name'],
        vm['workload'],
        vm['phase'] or '-',
        _ms(vm['slice_us']),
        _ms(vm['period_us']),
        'none' if (vm['quota_us'] or -1) < 0 else _ms(vm['quota_us']),
        str(vm['shares'] or '-'),
        ' '.join(vm['vcpu_pins'] or []),
        '-' if run_us is None else f'{100 * run_us / period_us:.0f}',
        _number(vm['sync_latency_us']),
        _number(vm['io_events']),
        str(vm['writes']),
        note,
    ]


def _ms(value_us: int | None) -> str:
    return '-' if value_us is None else f'{value_us / 1000:g}'


def _number(value: float | None) -> str:
    return '-' if value is None else f'{value:.0f}'


if __name__ == '__main__':
    sys.exit(main())
