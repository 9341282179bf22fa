# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-ctl`` and ``openstack vhpc host pause ...``: call agents.

Both run the same classes, over the message bus. The program runs on hosts, so
it means its own host if none is named; the client must name one.
"""

import argparse
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc.agent import errors, health
from nova_vhpc.agent.rpc import control
from nova_vhpc.cli import agents, arguments, base, program
from nova_vhpc.control import model


class _Control(base.Command):
    """A command to agents; the exit code is 1 if anything was not done.

    :cvar method: the call, of :class:`nova_vhpc.agent.rpc.control.Control`.
    :cvar takes_server: whether it may be for a single server.
    """

    auth_required = False
    method = ''
    takes_server = False
    _failed = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add hosts, server, and how agents are reached."""
        on_hosts = isinstance(self.app, program.App)
        if on_hosts:
            parser.add_argument(
                '--host',
                action='append',
                type=arguments.name,
                metavar='HOST',
                help='host of an agent, may be repeated; default: this host',
            )
        else:
            parser.add_argument(
                'host',
                metavar='<host>',
                nargs='+',
                type=arguments.name,
                help='host of an agent',
            )
        if self.takes_server:
            if on_hosts:
                parser.add_argument(
                    'positional_server',
                    nargs='?',
                    type=arguments.name,
                    metavar='SERVER',
                    help='the same as --server',
                )
            parser.add_argument(
                '--server',
                type=arguments.name,
                metavar='<uuid>',
                help='only this server, as one that was handed back after an '
                'external change',
            )
        agents.add_arguments(parser)
        base.add_json(parser)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command and return its exit code."""
        return super().run(parsed_args) or int(self._failed)

    def call(
        self, args: argparse.Namespace
    ) -> tuple[list[str], dict[str, Any], dict[str, str]]:
        """Return the hosts, their answers, and reasons for failures."""
        server = _server(args)
        given = {} if server is None else {'server': server}
        with agents.Agents(args) as bus:
            hosts = args.host or [
                bus.conf.vhpc_agent.host or socket.gethostname()
            ]
            answers, failures = bus.call(hosts, self.method, **given)
        self._failed = bool(failures)
        self.whole = answers
        return list(dict.fromkeys(hosts)), answers, failures


def _server(args: argparse.Namespace) -> str | None:
    """Return the UUID of the only server that is meant, or None."""
    found: str | None = getattr(args, 'server', None) or getattr(
        args, 'positional_server', None
    )
    return found


class StatusHost(_Control):
    """Show what agents know and do, as they judge themselves."""

    method = 'status'

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print some lines for each host, or whole answers as JSON."""
        _, answers, failures = self.call(parsed_args)
        for host, answer in answers.items():
            try:
                text = describe(host, answer)
            except errors.UNREADABLE as error:
                failures[host] = agents.unreadable(host, error)
                self._failed = True
                continue
            if not parsed_args.json:
                self.app.stdout.write(text + '\n')
        if parsed_args.json:
            arguments.print_json(answers, sort_keys=True, file=self.app.stdout)
        for text in failures.values():
            self.note(text)


class _Change(_Control, base.Lister):
    """A command that has agents do something."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Call the agents, and return a row for each host."""
        hosts, answers, failures = self.call(parsed_args)
        done: dict[str, list[str]] = {}
        problems = {host: [text] for host, text in failures.items()}
        for host, answer in answers.items():
            try:
                problems[host] = control.find_failures(
                    self.method, None, {host: answer}
                )
                servers = answer.get('restored') or answer.get('resumed')
                done[host] = list(map(str, servers or ()))
            except errors.UNREADABLE as error:
                problems[host] = [agents.unreadable(host, error)]
        self._tell_unknown_server(_server(parsed_args), done, problems)
        self._failed = any(problems.values())
        if parsed_args.json:
            for host in hosts:
                self.app.stderr.writelines(f'{t}\n' for t in problems[host])
        return ('Host', 'Done', 'Servers', 'Problems'), [
            (
                host,
                not problems[host],
                base.Lines(done.get(host, [])),
                base.Lines(problems[host]),
            )
            for host in hosts
        ]

    def _tell_unknown_server(
        self,
        server: str | None,
        done: Mapping[str, Any],
        problems: dict[str, list[str]],
    ) -> None:
        """Add a problem to hosts if none of them knows the server."""
        answers = {host: self.whole[host] for host in done}
        found = control.find_failures(self.method, server, answers)
        unknown = found[sum(len(problems[host]) for host in done) :]
        for host in done:
            problems[host] += unknown


class PauseHost(_Change):
    """Restore all servers of hosts, whose agents then write nothing.

    The hosts are as without nova-vhpc until they are resumed.
    """

    method = 'pause'


class ResumeHost(_Change):
    """Have agents manage servers again, after a pause or restore."""

    method = 'resume'
    takes_server = True


class RestoreHost(_Change):
    """Restore one server, or all, to which agents then write nothing."""

    method = 'restore'
    takes_server = True


def describe(host: str, answer: Mapping[str, Any]) -> str:
    """Return the answer to ``status`` as text of a few lines."""
    agent = answer.get('agent', {})
    judged = answer.get('health') or {}
    lines = [
        f'{host}: agent {answer.get("version", "?")}'
        + (', paused' if agent.get('paused') else '')
        + (', dry run' if agent.get('dry_run') else '')
        + ('' if agent.get('libvirt_up', True) else ', libvirt is away')
        + _health(judged)
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
    binding = answer.get('binding') or {}
    known = binding.get('unsteered') or {}
    for uuid, problem in sorted((binding.get('problems') or {}).items()):
        name = known.get(uuid, {}).get('name', uuid)
        server = uuid if name == uuid else f'{name} ({uuid})'
        lines.append(f'  claims of {server} steer nothing: {problem}')
    vms = answer.get('vms') or []
    lines.append(f'  servers: {len(vms)}')
    for vm in vms:
        waiting = vm.get('waiting') or {}
        if waiting.get('state') == model.WaitState.HELD_UP:
            lines.append(
                f'  {vm["server_name"] or vm["name"]} {waiting["finding"]}: '
                f'{waiting["remedy"]}'
            )
    return '\n'.join(lines)


def _health(judged: Mapping[str, Any]) -> str:
    if not judged:
        return ', health unknown'
    return '' if judged.get('healthy') else ', not healthy'


def _add_options(parser: argparse.ArgumentParser) -> None:
    agents.add_arguments(parser)
    base.add_json(parser)


PROGRAM = program.Program(
    'nova-vhpc-ctl',
    'Control agents over the message bus of transport_url.',
    {
        'status': StatusHost,
        'pause': PauseHost,
        'resume': ResumeHost,
        'restore': RestoreHost,
    },
    _add_options,
)
main = PROGRAM.main
make_parser = PROGRAM.make_parser


if __name__ == '__main__':
    sys.exit(main())
