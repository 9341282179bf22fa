# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``nova-vhpc-ctl``: controls agents over the message bus."""

import argparse
import socket
import sys
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc import version
from nova_vhpc.agent import errors, health
from nova_vhpc.agent.rpc import control, transport
from nova_vhpc.cli import arguments
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.conf import peers as peers_conf

COMMANDS = {
    'status': 'show what agents know and do',
    'pause': 'restore all servers and write nothing until resume',
    'resume': 'manage servers again after pause or restore, or one that was '
    'handed back after an external change',
    'restore': 'restore one server, or all, and write nothing to them',
}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = arguments.ArgumentParser(
        prog='nova-vhpc-ctl',
        description='Control agents over the message bus of transport_url.',
    )
    version.add_argument(parser)
    _add_options(parser, 'config_file')
    commands = parser.add_subparsers(dest='command', required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        # Also after the command, where people add an option later.
        _add_options(command, 'more_files', default=argparse.SUPPRESS)
        command.add_argument(
            '--host',
            action='append',
            type=_name,
            metavar='HOST',
            help='host of an agent, may be repeated; default: this host',
        )
        if name in ('resume', 'restore'):
            command.add_argument(
                'server',
                nargs='?',
                type=_name,
                metavar='SERVER',
                help='UUID of the only server that is meant',
            )
        if name == 'restore':
            command.add_argument(
                '--server',
                type=_name,
                dest='server_option',
                metavar='UUID',
                help='the same as SERVER',
            )
    return parser


def _name(text: str) -> str:
    """Return the name of a host or server.

    :raises ArgumentTypeError: it is empty, as by an unset script variable.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError(f"'{text}' is no name")
    return text


def _add_options(
    parser: argparse.ArgumentParser, files: str, **default: Any
) -> None:
    """Add the options that all commands have.

    :param files: attribute for the configuration files; argparse would
        otherwise replace files before the command by those after it.
    """
    parser.add_argument(
        '--config-file',
        action='append',
        dest=files,
        metavar='FILE',
        help="the agents' configuration; without it the usual places, "
        'such as /etc/nova-vhpc/nova-vhpc.conf',
        **default,
    )
    parser.add_argument(
        '--timeout',
        metavar='SECONDS',
        help='how long to wait for an answer, from 0.1; without it '
        '[vhpc_peers]call_timeout',
        **default,
    )
    parser.add_argument(
        '--json',
        action='store_true',
        help='print whole answers as JSON',
        **default,
    )


def make_conf(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Read the agents' configuration.

    :raises cfg.Error: a file cannot be read, or a value is invalid.
    :raises ValueError: ``--timeout`` is invalid.
    """
    files = [*(args.config_file or ()), *getattr(args, 'more_files', ())]
    conf = cfg.ConfigOpts()
    agent_conf.register_opts(conf)
    peers_conf.register_opts(conf)
    conf(
        [],
        project='nova-vhpc',
        prog='nova-vhpc-ctl',
        default_config_files=files or None,
    )
    conf_package.report_missing_files(conf)
    if args.timeout is not None:
        try:
            conf.set_override('call_timeout', args.timeout, group='vhpc_peers')
        except ValueError as error:
            raise ValueError(f'--timeout: {error}') from None
    return conf


def describe(host: str, answer: dict[str, Any]) -> str:
    """Return the answer to ``status`` as text of a few lines."""
    agent = answer.get('agent', {})
    judged = answer.get('health') or {}
    lines = [
        f'{host}: agent {answer.get("version", "?")}'
        + (', paused' if agent.get('paused') else '')
        + (', dry run' if agent.get('dry_run') else '')
        + ('' if agent.get('libvirt_up', True) else ', libvirt is away')
        + ('' if judged.get('healthy', True) else ', not healthy')
    ]
    lines += [f'  {sentence}' for sentence in health.sentences(judged)]
    for part in ('publishing', 'groups', 'peers', 'metrics'):
        state = answer.get(part) or {}
        words = [str(state.get('state', 'off'))]
        if state.get('age_s') is not None:
            words.append(f'{state["age_s"]} s old')
        if state.get('detail'):
            words.append(str(state['detail']))
        lines.append(f'  {part}: {", ".join(words)}')
    clusters = (answer.get('peers') or {}).get('clusters') or {}
    for name, cluster in sorted(clusters.items()):
        hosts = ', '.join(
            f'{other} {statement["phase"]}'
            for other, statement in sorted(cluster['hosts'].items())
        )
        lines.append(
            f'  cluster {name}: {cluster["phase"]}'
            f' (here {cluster["own"]}; {hosts or "no other host"})'
        )
    lines += _unsteered(answer.get('binding') or {})
    vms = answer.get('vms') or []
    lines.append(f'  servers: {len(vms)}')
    return '\n'.join(lines)


def _unsteered(binding: Mapping[str, Any]) -> list[str]:
    """Return a line for each server whose claims steer no packets."""
    lines = []
    known = binding.get('unsteered') or {}
    for uuid, problem in sorted((binding.get('problems') or {}).items()):
        name = known.get(uuid, {}).get('name', uuid)
        server = uuid if name == uuid else f'{name} ({uuid})'
        lines.append(f'  claims of {server} steer nothing: {problem}')
    return lines


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    :returns: exit status: 0; 1 if a host failed, or a server was not restored
        or is unknown; 2 on invalid arguments.
    """
    arguments.take_any_name()
    args = make_parser().parse_args(argv)
    try:
        conf = make_conf(args)
        client = control.ControlClient(conf)
        if getattr(conf, 'transport_url', None) == transport.NO_URL:
            raise errors.ConfigError(
                'transport_url is not set, so no agent can be called; name '
                "the agents' configuration by --config-file"
            )
    except (cfg.Error, ValueError, OSError, errors.AgentError) as error:
        text = conf_package.reason(error)
        print(f'nova-vhpc-ctl: {text}', file=sys.stderr)
        return 2
    hosts = args.host or [conf.vhpc_agent.host or socket.gethostname()]
    given = {}
    if _server(args) is not None:
        given['server'] = _server(args)
    try:
        answers, failures = control.call_all(
            list(dict.fromkeys(hosts)),
            lambda host: client.call(host, args.command, **given),
        )
    finally:
        client.close()
    problems = [
        *failures.values(),
        *show(args, answers),
        *control.find_failures(args.command, _server(args), answers),
    ]
    for text in problems:
        print(f'nova-vhpc-ctl: {text}', file=sys.stderr)
    return 1 if problems else 0


def _server(args: argparse.Namespace) -> str | None:
    """Return the UUID of the only server that is meant, or None."""
    server: str | None = getattr(args, 'server', None)
    return server or getattr(args, 'server_option', None)


def show(args: argparse.Namespace, answers: dict[str, Any]) -> list[str]:
    """Print the answers of the hosts.

    :returns: for each answer that cannot be read, which is taken out of
        ``answers``, what is wrong.
    """
    if args.json:
        arguments.print_json(answers, sort_keys=True)
    problems = []
    for host, answer in list(answers.items()):
        try:
            text = _text(args, host, answer)
            control.find_failures(args.command, _server(args), {host: answer})
        except errors.UNREADABLE as error:
            del answers[host]
            problems.append(f'host {host}: {errors.unreadable(error)}')
            continue
        if not args.json:
            print(text, end='')
    return problems


def _text(args: argparse.Namespace, host: str, answer: dict[str, Any]) -> str:
    """Return the answer to a command as lines."""
    if args.command == 'status':
        return describe(host, answer) + '\n'
    text = ''
    if args.command != 'restore' and 'resumed' not in answer:
        text += f'{host}: {args.command}: done\n'
    if answer.get('resumed'):
        text += ' '.join([f'{host}: resumed', *answer['resumed']]) + '\n'
    if 'restored' in answer:
        servers = answer['restored']
        words = [f'{host}: restored {len(servers)} servers', *servers]
        text += ' '.join(words) + '\n'
    return text


if __name__ == '__main__':
    sys.exit(main())
