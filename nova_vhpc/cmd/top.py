# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-top``: shows what agents do, by virtual cluster, like top."""

import argparse
import contextlib
import os
import pathlib
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from oslo_config import cfg
from rich import console

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors
from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.agent.rpc import control, transport
from nova_vhpc.cmd import ctl, output, top_arguments
from nova_vhpc.conf import nova_api
from nova_vhpc.top import (
    bus_source,
    nova_members,
    order,
    reader,
    report,
    sources,
)

make_parser = top_arguments.make_parser

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
    top_arguments.check(parser, args)
    try:
        with _source(args) as source:
            answers = source.fetch()
            if args.once:
                _print(args, answers)
                return 0
            return _screen(args, source, answers)
    except _BusError as error:
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
def _source(args: argparse.Namespace) -> Iterator[sources.Source]:
    """Give the source that the arguments name.

    :raises _BusError: agents cannot be asked from here.
    """
    if args.input:
        yield sources.FileSource(args.input)
    elif args.cluster or args.host:
        with _client(args) as (conf, client):
            yield _bus_source(args, conf, client)
    else:
        yield sources.SocketSource(args.where)


class _BusError(Exception):
    """The message bus is not configured; the text says what is wrong."""


@contextlib.contextmanager
def _client(
    args: argparse.Namespace,
) -> Iterator[tuple[cfg.ConfigOpts, control.ControlClient]]:
    try:
        conf = ctl.make_conf(args)
        nova_api.register_opts(conf)
        client = control.ControlClient(conf)
    except (cfg.Error, ValueError, OSError, errors.AgentError) as error:
        raise _BusError(conf_package.reason(error)) from None
    try:
        if getattr(conf, 'transport_url', None) == transport.NO_URL:
            raise _BusError(
                'transport_url is not set, so no agent can be asked; name '
                "the agents' configuration by --config-file"
            )
        yield conf, client
    finally:
        client.close()


def _bus_source(
    args: argparse.Namespace,
    conf: cfg.ConfigOpts,
    client: control.ControlClient,
) -> sources.Source:
    def call(
        hosts: Collection[str],
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        return ctl.call_all(
            list(hosts), lambda host: client.call(host, 'status')
        )

    if args.host:
        return bus_source.BusSource(call, args.host, args.cluster)

    def here() -> Any:
        try:
            return status_socket.fetch(args.where)
        except (OSError, ValueError):
            return None

    members = nova_members.NovaMembers(conf, args.cluster)
    return bus_source.ClusterSource(call, args.cluster, members, here)


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
    from nova_vhpc.top import app, picture, runner

    top = app.TopApp(
        source, answers, args.interval, order.Order(args.sort), args.filter
    )
    if args.screenshot is None:
        return runner.run(top)
    svg = picture.take(top, args.size)
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
