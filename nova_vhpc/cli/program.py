# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Programs that run the command classes of ``openstack vhpc``."""

import argparse
import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from nova_vhpc import version
from nova_vhpc.cli import arguments, base
from nova_vhpc.clients import openstack


class App:
    """What a command sees of the program that runs it, as of a cliff app.

    :param args: arguments of the command line; None to make a parser only.
    :param connection: openstacksdk connection; None to make one if needed.
    """

    def __init__(
        self, args: argparse.Namespace | None = None, connection: Any = None
    ) -> None:
        self.stdout, self.stderr = sys.stdout, sys.stderr
        self._args = args
        self._connection = connection
        cloud = getattr(args, 'os_cloud', None)
        self.options = types.SimpleNamespace(cloud=cloud)
        self.client_manager = self

    @property
    def vhpc(self) -> Any:
        """The openstacksdk connection."""
        if self._connection is None:
            assert self._args is not None
            self._connection = openstack.connect(self._args)
        return self._connection


class Program:
    """A console script with the commands of ``openstack vhpc``.

    :param name: name of the script.
    :param about: what it does.
    :param commands: class of each command by the word that chooses it, or
        the only class.
    :param add_options: adds the options that may also precede the command.
    """

    def __init__(
        self,
        name: str,
        about: str,
        commands: Mapping[str, type[base.Command]] | type[base.Command],
        add_options: Callable[[argparse.ArgumentParser], None],
    ) -> None:
        self._name = name
        self._about = about
        self._commands = commands
        self._add_options = add_options

    def make_parser(self) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        return self._parser

    @functools.cached_property
    def _parser(self) -> arguments.ArgumentParser:
        # cliff looks for the plugins of each command, which takes long.
        if isinstance(self._commands, Mapping):
            parser = arguments.ArgumentParser(
                prog=self._name, description=self._about
            )
            words: Any = parser.add_subparsers(dest='command', required=True)
            for word, command_class in self._commands.items():
                command = _command(command_class)
                about = command.get_description()
                subparser = words.add_parser(
                    word,
                    help=about.partition('\n')[0],
                    description=about,
                    parents=[command.get_parser('')],
                    add_help=False,
                )
                if '--json' not in subparser._option_string_actions:
                    base.add_json(subparser)
                subparser.set_defaults(command_class=command_class)
        else:
            parser = arguments.ArgumentParser(
                prog=self._name,
                description=self._about,
                parents=[_command(self._commands).get_parser('')],
                add_help=False,
            )
            parser.set_defaults(command_class=self._commands)
        version.add_argument(parser)
        self._add_options(parser)
        _let_precede(parser)
        return parser

    def main(
        self, argv: list[str] | None = None, connection: Any = None
    ) -> int:
        """Run a command and return its exit code.

        :param argv: arguments; None for those of the process.
        :param connection: openstacksdk connection; None to make one if
            needed.
        """
        arguments.take_any_name()
        args = self._parser.parse_args(argv)
        for name in [name for name in vars(args) if name in _MORE]:
            earlier = getattr(args, _MORE[name]) or []
            setattr(args, _MORE[name], [*earlier, *getattr(args, name)])
        if args.json and hasattr(args, 'formatter'):
            args.formatter = 'json'
        command = args.command_class(App(args, connection), None)
        try:
            status: int = command.run(args)
        except base.CommandError as error:
            print(f'{self._name}: {error}', file=sys.stderr)
            return error.status
        except BrokenPipeError:
            arguments.drop_output()
            return 1
        return status


def add_cloud(parser: argparse.ArgumentParser) -> None:
    """Add the options of programs that ask a cloud."""
    openstack.add_arguments(parser)
    if '--json' not in parser._option_string_actions:
        base.add_json(parser)


_MORE = {'more_config_file': 'config_file'}
"""Where values of an option go that was given after the command, too: argparse
would replace those before the command."""


def _command(command_class: type[base.Command]) -> base.Command:
    app: Any = App()
    return command_class(app, None)


def _let_precede(parser: argparse.ArgumentParser) -> None:
    """Let a command without an option keep what preceded the command."""
    given = {action.dest for action in parser._actions}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                for own in subparser._actions:
                    if own.dest in given and own.option_strings:
                        own.default = argparse.SUPPRESS
                        if f'more_{own.dest}' in _MORE:
                            own.dest = f'more_{own.dest}'
