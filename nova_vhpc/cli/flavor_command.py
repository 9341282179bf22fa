# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``openstack vhpc flavor``: the extra specs of virtual clusters.

The same as ``nova-vhpc-flavor``, except that ``set`` and ``unset`` write at
once, as those of the ``openstack`` client do; ``--dry-run`` only shows.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from osc_lib.cli import format_columns
from osc_lib.command import command

from nova_vhpc.cli import base
from nova_vhpc.cli import flavor as program
from nova_vhpc.clients import openstack
from nova_vhpc.flavor import recipes, validation


class _Change(base.Command, command.ShowOne):
    """A command that changes a flavor."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        _add_flavor(parser)
        self._add_arguments(parser)
        parser.add_argument(
            '--dry-run',
            action='store_true',
            help='only show what would change; try it first',
        )
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Sequence[Any]]:
        """Change the flavor, and return what changed."""
        flavor = openstack.find_flavor(self.connection, parsed_args.flavor)
        change = self._change(parsed_args, dict(flavor.extra_specs))
        written = bool(change) and not parsed_args.dry_run
        if written:
            self._write(flavor, change)
        return _columns(
            flavor=flavor.name,
            set=format_columns.DictColumn(dict(change.write)),
            remove=base.Lines(list(change.remove)),
            after=format_columns.DictColumn(change.after),
            written=written,
            advice=base.Lines(
                validation.advice(change.after) + change.left_behind
            ),
        )

    def _write(self, flavor: Any, change: recipes.Change) -> None:
        compute = self.connection.compute
        default = compute.default_microversion
        try:
            program.write(self.connection, flavor, change)
        finally:
            # An interactive openstack client goes on with this connection.
            compute.default_microversion = default

    def _add_arguments(self, parser: argparse.ArgumentParser) -> None:
        raise NotImplementedError

    def _change(
        self, args: argparse.Namespace, current: Mapping[str, str]
    ) -> recipes.Change:
        raise NotImplementedError


class SetFlavor(_Change):
    """Write a consistent set of extra specs to a flavor.

    What is not named stays. Servers that exist keep what they have until they
    are resized.
    """

    def _add_arguments(self, parser: argparse.ArgumentParser) -> None:
        program.add_set_arguments(parser)

    def _change(
        self, args: argparse.Namespace, current: Mapping[str, str]
    ) -> recipes.Change:
        return program.change_to_set(args, current)


class UnsetFlavor(_Change):
    """Take all extra specs of nova-vhpc out of a flavor."""

    def _add_arguments(self, parser: argparse.ArgumentParser) -> None:
        program.add_unset_arguments(parser)

    def _change(
        self, args: argparse.Namespace, current: Mapping[str, str]
    ) -> recipes.Change:
        return program.change_to_unset(args, current)


class ShowFlavor(base.Command, command.ShowOne):
    """Show a flavor's extra specs, and whether they fit together.

    The exit code is 1 if they do not.
    """

    _flawed = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        _add_flavor(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Show the flavor and return the exit code."""
        return super().run(parsed_args) or int(self._flawed)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Sequence[Any]]:
        """Return the flavor's extra specs and what is wrong with them."""
        flavor = openstack.find_flavor(self.connection, parsed_args.flavor)
        specs = dict(flavor.extra_specs)
        problems = validation.problems(specs)
        self._flawed = bool(problems)
        return _columns(
            flavor=flavor.name,
            extra_specs=format_columns.DictColumn(specs),
            problems=base.Lines(problems),
            advice=base.Lines(validation.advice(specs)),
        )


def _add_flavor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('flavor', metavar='<flavor>', help='name or ID')


def _columns(**values: Any) -> tuple[Sequence[str], Sequence[Any]]:
    """Return names and values as osc-lib takes them."""
    return tuple(values), tuple(values.values())
