# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``nova-vhpc-flavor`` and ``openstack vhpc flavor``: extra specs of flavors.

Both run the same classes. ``set`` and ``unset`` write at once, as other
commands of the ``openstack`` client do, and only show with ``--dry-run``.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from osc_lib import exceptions
from osc_lib.cli import format_columns
from osc_lib.command import command

from nova_vhpc import version
from nova_vhpc.cli import arguments, base, program
from nova_vhpc.clients import openstack
from nova_vhpc.flavor import extra_specs, recipes, request_groups, validation


def add_set_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`change_to_set` reads."""
    for key in extra_specs.KEYS:
        parser.add_argument(
            '--' + key.name.replace('_', '-'),
            dest=key.name,
            metavar=key.name.upper(),
            help=f'{key.description} Takes {key.allowed}.'.replace('%', '%%'),
        )
    parser.add_argument(
        '--physnet',
        help='Neutron physical network that the uplink must be on',
    )
    parser.add_argument(
        '--alias',
        metavar='NAME[:COUNT]',
        help="PCI alias ([pci] alias in nova.conf) of exported's devices",
    )
    parser.add_argument(
        '--sriov-ports',
        action='store_true',
        help="exported's devices come with the server's ports instead",
    )
    parser.add_argument(
        '--ports',
        action='store_true',
        help="uplinks come with the server's ports, whose QoS policy has a "
        'minimum bandwidth; the flavor then claims none',
    )


def add_unset_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`change_to_unset` reads."""
    parser.add_argument(
        '--alias',
        metavar='NAME',
        help='also take this PCI alias out, which others may use as well',
    )


def change_to_set(
    args: argparse.Namespace, current: Mapping[str, str]
) -> recipes.Change:
    """Return the change that ``set`` makes to a flavor.

    :param args: options of :func:`add_set_arguments`.
    :param current: all extra specs of the flavor.
    :raises RecipeError: the options do not fit together or to the flavor.
    """
    given = {
        key.name: getattr(args, key.name)
        for key in extra_specs.KEYS
        if getattr(args, key.name) is not None
    }
    options = recipes.merged(current, given)
    if not options:
        raise recipes.RecipeError(
            'nothing to set: give at least --workload or --network'
        )
    same_network = 'network' not in given or (
        given['network'] == current.get('vhpc:network')
    )
    # An exported flavor keeps its devices if the command names none.
    named = request_groups.ALIAS in current and same_network
    exported = options.get('network') == 'exported'
    sriov_ports = args.sriov_ports or (
        exported and named and args.alias is None
    )
    # So does one whose uplinks come with ports, unless it gets a --network.
    ports = args.ports or (
        'network' not in given
        and args.physnet is None
        and recipes.uses_ports(current)
    )
    physnet = args.physnet
    if physnet is None and not exported and not ports:
        physnet = recipes.physnet_of(current)
    wanted = recipes.recipe(
        options,
        physnet=physnet,
        alias=args.alias,
        sriov_ports=sriov_ports,
        ports=ports,
    )
    return recipes.change(current, wanted, sriov_ports=sriov_ports)


def change_to_unset(
    args: argparse.Namespace, current: Mapping[str, str]
) -> recipes.Change:
    """Return the change that ``unset`` makes to a flavor.

    :param args: options of :func:`add_unset_arguments`.
    :param current: all extra specs of the flavor.
    """
    change = recipes.change(current, {})
    if args.alias:
        change = recipes.without_alias(change, args.alias)
    return change


def write(connection: Any, flavor: Any, change: recipes.Change) -> None:
    """Make a change to a flavor, whose values Nova validates if it can.

    :param connection: openstacksdk connection.
    :param flavor: flavor of :func:`nova_vhpc.clients.openstack.find_flavor`.
    """
    openstack.validating(connection)
    # Set before removing: if Nova refuses a value, nothing is lost.
    if change.write:
        connection.compute.create_flavor_extra_specs(
            flavor, dict(change.write)
        )
    for key in change.remove:
        connection.compute.delete_flavor_extra_specs_property(flavor, key)


class _Change(base.Command, command.ShowOne):
    """A command that changes a flavor."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        self.add_arguments(parser)
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
            write(self.connection, flavor, change)
        finally:
            # An interactive openstack client goes on with this connection.
            compute.default_microversion = default

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the arguments that both doors have."""
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

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the arguments that both doors have."""
        _add_flavor(parser)
        add_set_arguments(parser)
        _add_dry_run(parser)

    def _change(
        self, args: argparse.Namespace, current: Mapping[str, str]
    ) -> recipes.Change:
        return change_to_set(args, current)


class UnsetFlavor(_Change):
    """Take all extra specs of nova-vhpc out of a flavor."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the arguments that both doors have."""
        _add_flavor(parser)
        add_unset_arguments(parser)
        _add_dry_run(parser)

    def _change(
        self, args: argparse.Namespace, current: Mapping[str, str]
    ) -> recipes.Change:
        return change_to_unset(args, current)


class ShowFlavor(base.Command, command.ShowOne):
    """Show a flavor's extra specs, and whether they fit together.

    The exit code is 1 if they do not.
    """

    _flawed = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        parser = super().get_parser(prog_name)
        self.add_arguments(parser)
        return parser

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the arguments that both doors have."""
        _add_flavor(parser)

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


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--dry-run',
        action='store_true',
        help='only show what would change; try it first',
    )


def _columns(**values: Any) -> tuple[Sequence[str], Sequence[Any]]:
    """Return names and values as osc-lib takes them."""
    return tuple(values), tuple(values.values())


COMMANDS: Mapping[str, tuple[Any, str]] = {
    'set': (SetFlavor, 'write a consistent set of extra specs'),
    'unset': (UnsetFlavor, 'take all extra specs of nova-vhpc out'),
    'show': (ShowFlavor, 'show them, and whether they fit together'),
}
"""Classes of the program's commands, and what they do."""


def main(argv: list[str] | None = None, connection: Any = None) -> int:
    """Run one command of ``nova-vhpc-flavor``.

    :param argv: arguments of the command line, None for those of the process.
    :param connection: openstacksdk connection; None to make one.
    :returns: exit code: 0 if done or nothing to do, 1 if refused or failed.
    """
    arguments.take_any_name()
    args = make_parser().parse_args(argv)
    try:
        if args.command == 'check':
            with openstack.asked(args.os_cloud):
                return _check(args, connection or openstack.connect(args))
        command_class, _ = COMMANDS[args.command]
        status = program.run(command_class, args, connection)
    except (openstack.CloudError, exceptions.CommandError) as error:
        print(f'nova-vhpc-flavor: {error}', file=sys.stderr)
        return 1
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the program's command line."""
    parser = arguments.ArgumentParser(
        prog='nova-vhpc-flavor',
        description='Show and write the extra specs of virtual clusters.',
    )
    version.add_argument(parser)
    openstack.add_arguments(parser)
    commands = parser.add_subparsers(dest='command', required=True)
    for name, (command_class, about) in COMMANDS.items():
        subparser = commands.add_parser(name, help=about)
        command_class.add_arguments(subparser)
        subparser.add_argument(
            '--json', action='store_true', help='print JSON'
        )
    check_parser = commands.add_parser(
        'check', help='find flavors whose extra specs Nova would refuse today'
    )
    _add_check_arguments(check_parser)
    return parser


def _add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``check`` reads."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        '--all',
        action='store_true',
        help='all flavors of the cloud, also those of single projects',
    )
    which.add_argument(
        'flavors',
        nargs='*',
        default=[],
        metavar='flavor',
        help='name or id',
    )
    parser.add_argument('--json', action='store_true', help='print JSON')


def _check(args: argparse.Namespace, connection: Any) -> int:
    """Print what is wrong with flavors.

    Nova validates extra specs from microversion 2.86 on. A client that asks
    for an older one, as ``openstack`` does by default, can write wrong ones.

    :returns: exit code: 1 if a flavor is wrong.
    """
    if args.all:
        flavors = openstack.all_flavors(connection)
    else:
        flavors = [openstack.find_flavor(connection, f) for f in args.flavors]
    specs = {flavor.name: dict(flavor.extra_specs) for flavor in flavors}
    wrong = validation.problems_of_all(specs)
    if args.json:
        arguments.print_json({'checked': len(specs), 'problems': wrong})
        return 1 if wrong else 0
    for name, problems in wrong.items():
        for problem in problems:
            print(f'Flavor {name}: {problem}')
    print(f'Checked {len(specs)} flavors, {len(wrong)} are wrong.')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
