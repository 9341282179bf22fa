# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc host pause|resume``: calls to agents."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from nova_vhpc.agent import errors
from nova_vhpc.agent.rpc import control
from nova_vhpc.cli import agents, base


class _Control(base.Command, command.Lister):
    """A command to agents over the message bus."""

    method = ''
    _failed = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'host', metavar='<host>', nargs='+', help='host of an agent'
        )
        parser.set_defaults(server=None)
        agents.add_arguments(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command; the exit code is 1 if anything was not done."""
        return super().run(parsed_args) or int(self._failed)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Call the agents, and return a row for each host."""
        hosts = list(dict.fromkeys(parsed_args.host))
        arguments = {}
        if parsed_args.server is not None:
            if len(hosts) > 1:
                raise exceptions.CommandError(
                    '--server: name the one host on which the server runs'
                )
            arguments['server'] = parsed_args.server
        with agents.Agents(parsed_args) as bus:
            answers, failures = bus.call(hosts, self.method, **arguments)
        rows = []
        for name in hosts:
            problems = [failures[name]] if name in failures else []
            servers = 0
            if name in answers:
                try:
                    servers, problems = self._outcome(
                        parsed_args, name, answers[name]
                    )
                except errors.UNREADABLE as error:
                    problems = [agents.unreadable(name, error)]
            self._failed |= bool(problems)
            rows.append((name, not problems, servers, base.Lines(problems)))
        return ('Host', 'Done', 'Servers', 'Problems'), rows

    def _outcome(
        self, args: argparse.Namespace, host: str, answer: Mapping[str, Any]
    ) -> tuple[int, list[str]]:
        """Return for how many servers it was done, and what was not."""
        problems = control.find_failures(
            self.method, args.server, {host: answer}
        )
        done = answer.get('restored') or answer.get('resumed') or ()
        return len(done), problems


class PauseHost(_Control):
    """Restore all servers of hosts, whose agents then write nothing.

    The hosts are as without nova-vhpc until they are resumed.
    """

    method = 'pause'


class ResumeHost(_Control):
    """Have agents manage servers again after a pause."""

    method = 'resume'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--server',
            metavar='<uuid>',
            help='only this server, as one that was handed back after an '
            'external change',
        )
        return parser
