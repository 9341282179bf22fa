# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What all commands have in common, whichever door they are run by."""

import argparse
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cliff import columns, command, lister, show
from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors
from nova_vhpc.cli import arguments
from nova_vhpc.clients import openstack

WRONG_ARGUMENTS = 2
"""Exit code of programs for wrong arguments or a wrong configuration."""


class CommandError(Exception):
    """A command cannot do what it should; the text says why, in one line.

    :param status: exit code of a program; that of ``openstack`` is always 1.
    """

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class Command(command.Command):
    """A command that reports failures in one line.

    :ivar whole: what ``--json`` prints instead of the table; None if that is
        the table itself.
    """

    auth_required = True
    """Whether the ``openstack`` client logs in before it runs the command."""

    whole: Any = None

    # argparse does not know cliff's own, which programs would need.
    conflict_handler = 'error'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        # As for the programs: half an option must not do a whole thing.
        parser.allow_abbrev = False
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command and return its exit code.

        :raises CommandError: the command fails.
        """
        try:
            with self.asked():
                return super().run(parsed_args)
        except errors.ConfigError as error:
            raise CommandError(str(error), WRONG_ARGUMENTS) from None
        except BrokenPipeError:
            raise
        except (openstack.CloudError, cfg.Error, OSError) as error:
            raise CommandError(conf_package.plain(str(error))) from None

    @property
    def connection(self) -> Any:
        """The openstacksdk connection of the user."""
        app: Any = self.app
        return app.client_manager.vhpc

    def asked(self) -> contextlib.AbstractContextManager[None]:
        """Turn what client libraries raise into CloudError."""
        return openstack.asked(
            getattr(self.app.options, 'cloud', None),
            lambda: getattr(self.connection, 'session', None),
        )

    def note(self, text: str) -> None:
        """Print a remark where it does not disturb a script: on stderr."""
        self.app.stderr.write(f'{text}\n')

    def produce_output(
        self,
        parsed_args: argparse.Namespace,
        column_names: Sequence[str],
        data: Any,
    ) -> int:
        """Print the table; what is unknown is empty, but null in JSON."""
        if self.whole is not None and parsed_args.json:
            arguments.print_json(self.whole, file=self.app.stdout)
            return 0
        own: Any = self
        if parsed_args.formatter not in ('json', 'yaml'):
            own.formatter = _EmptyIfUnknown(own.formatter)
        parent: Any = super()
        status: int = parent.produce_output(parsed_args, column_names, data)
        return status


class Lister(Command, lister.Lister):
    """A command that prints a table."""


class ShowOne(Command, show.ShowOne):
    """A command that prints the fields of one thing."""


class _EmptyIfUnknown:
    """A formatter of cliff that prints nothing for None, instead of "None"."""

    def __init__(self, formatter: Any) -> None:
        self._formatter = formatter

    def emit_list(
        self, names: Any, data: Iterable[Any], stdout: Any, args: Any
    ) -> None:
        rows = [[_shown(value) for value in row] for row in data]
        self._formatter.emit_list(names, rows, stdout, args)

    def emit_one(
        self, names: Any, data: Iterable[Any], stdout: Any, args: Any
    ) -> None:
        values = [_shown(value) for value in data]
        self._formatter.emit_one(names, values, stdout, args)


def _shown(value: Any) -> Any:
    return '' if value is None else value


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints JSON, with all that the command knows."""
    parser.add_argument(
        '--json',
        action='store_true',
        help='print JSON, with all that the command knows',
    )


def add_tier_keys(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the keys of switch and rack."""
    parser.add_argument(
        '--switch-key',
        metavar='<key>',
        default='vhpc:switch',
        help='key of aggregate metadata that names the switch of a host, as '
        '[vhpc_scheduler] switch_key (default: %(default)s)',
    )
    parser.add_argument(
        '--rack-key',
        metavar='<key>',
        default='vhpc:rack',
        help='the same for the rack (default: %(default)s)',
    )


class Lines(columns.FormattableColumn[Sequence[str]]):
    """A list of sentences: one per line for people, a list for scripts."""

    def human_readable(self) -> str:
        """Return the sentences, each on a line."""
        return '\n'.join(self._value)


class Pairs(columns.FormattableColumn[Mapping[str, str]]):
    """Keys with values: one per line for people, an object for scripts."""

    def human_readable(self) -> str:
        """Return the pairs, each on a line, by key."""
        return '\n'.join(f'{k}={v}' for k, v in sorted(self._value.items()))


class Records(columns.FormattableColumn[Sequence[Mapping[str, Any]]]):
    """Records: one per line for people, a list of objects for scripts."""

    def human_readable(self) -> str:
        """Return the records, each on a line, without unknown fields."""
        return '\n'.join(
            ', '.join(
                f'{name} {_text(value)}'
                for name, value in record.items()
                if value not in (None, [])
            )
            for record in self._value
        )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ' '.join(map(str, value))
    return str(value)
