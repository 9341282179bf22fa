# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``nova-vhpc-flavor``: write consistent extra specs to flavors.

Shows what would change; only ``--yes`` writes. Exit code 0 if done or
nothing to do, 1 if refused or failed, 2 on bad arguments.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nova_vhpc import version
from nova_vhpc.cli import arguments
from nova_vhpc.clients import openstack
from nova_vhpc.flavor import extra_specs, recipes, request_groups, validation


def main(argv: list[str] | None = None, connection: Any = None) -> int:
    """Run one command.

    :param argv: arguments of the command line, None for those of the process.
    :param connection: openstacksdk connection; None to make one.
    :returns: exit code.
    """
    arguments.take_any_name()
    args = make_parser().parse_args(argv)
    try:
        with openstack.asked(args.os_cloud):
            if connection is None:
                connection = openstack.connect(args)
            status: int = args.run(args, connection)
            return status
    except (openstack.CloudError, recipes.RecipeError) as error:
        print(f'nova-vhpc-flavor: {error}', file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = arguments.ArgumentParser(
        prog='nova-vhpc-flavor',
        description='Show and write the extra specs of virtual clusters.',
    )
    version.add_argument(parser)
    openstack.add_arguments(parser)
    commands = parser.add_subparsers(dest='command', required=True)

    def command(name: str, run: Any, about: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=about)
        command.add_argument('flavor', help='name or id')
        command.set_defaults(run=run)
        return command

    set_parser = command('set', _set, 'write a consistent set of extra specs')
    add_set_arguments(set_parser)
    _add_writing(set_parser)

    unset_parser = command(
        'unset', _unset, 'take all extra specs of nova-vhpc out'
    )
    add_unset_arguments(unset_parser)
    _add_writing(unset_parser)

    show_parser = command(
        'show', _show, 'show them, and whether they fit together'
    )
    show_parser.add_argument('--json', action='store_true', help='print JSON')

    check_parser = commands.add_parser(
        'check', help='find flavors whose extra specs Nova would refuse today'
    )
    check_parser.set_defaults(run=_check)
    _add_check_arguments(check_parser)
    return parser


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


def _add_writing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--yes', action='store_true', help='write; without it only show'
    )
    parser.add_argument('--json', action='store_true', help='print JSON')


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


def _set(args: argparse.Namespace, connection: Any) -> int:
    flavor = openstack.find_flavor(connection, args.flavor)
    change = change_to_set(args, dict(flavor.extra_specs))
    return _write(args, connection, flavor, change)


def _unset(args: argparse.Namespace, connection: Any) -> int:
    flavor = openstack.find_flavor(connection, args.flavor)
    change = change_to_unset(args, dict(flavor.extra_specs))
    return _write(args, connection, flavor, change)


def _show(args: argparse.Namespace, connection: Any) -> int:
    flavor = openstack.find_flavor(connection, args.flavor)
    specs = dict(flavor.extra_specs)
    found = validation.problems(specs)
    if args.json:
        arguments.print_json(
            {
                'flavor': flavor.name,
                'extra_specs': specs,
                'problems': found,
                'advice': validation.advice(specs),
            }
        )
        return 1 if found else 0
    table = Table(title=f'Flavor {escape(flavor.name)}')
    table.add_column('extra spec', overflow='fold')
    table.add_column('value', overflow='fold')
    table.add_column('of nova-vhpc')
    for key, value in sorted(specs.items()):
        ours = 'yes' if request_groups.is_ours(key) else ''
        table.add_row(escape(key), escape(value), ours)
    console = Console()
    console.print(table)
    _print_findings(console, found, validation.advice(specs))
    return 1 if found else 0


def _write(
    args: argparse.Namespace,
    connection: Any,
    flavor: Any,
    change: recipes.Change,
) -> int:
    """Show a change, and make it if ``--yes`` was given."""
    if change and args.yes:
        write(connection, flavor, change)
    written = bool(change) and args.yes
    advice = validation.advice(change.after) + change.left_behind
    if args.json:
        arguments.print_json(
            {
                'flavor': flavor.name,
                'set': dict(change.write),
                'remove': list(change.remove),
                'after': change.after,
                'written': written,
                'advice': advice,
            }
        )
        return 0
    console = Console()
    if not change:
        console.print(
            f'Flavor {flavor.name} is as it should be.', markup=False
        )
        return 0
    console.print(_diff(flavor.name, change))
    _print_findings(console, [], advice)
    if written:
        console.print('Written. Servers that exist keep what they have.')
    else:
        console.print('Nothing is written yet: add --yes to do it.')
    return 0


def _diff(name: str, change: recipes.Change) -> Table:
    table = Table(title=f'Flavor {escape(name)}')
    table.add_column('')
    table.add_column('extra spec', overflow='fold')
    table.add_column('before', overflow='fold')
    table.add_column('after', overflow='fold')
    after: Mapping[str, str] = change.after
    for key in sorted({*change.before, *after}):
        old, new = change.before.get(key), after.get(key)
        if old == new:
            mark = ''
        elif old is None:
            mark = '+'
        else:
            mark = '-' if new is None else '~'
        table.add_row(mark, escape(key), escape(old or ''), escape(new or ''))
    return table


def _print_findings(
    console: Console, problems: list[str], advice: list[str]
) -> None:
    for text in problems:
        console.print(f'Wrong: {text}', markup=False)
    for text in advice:
        console.print(f'Mind: {text}', markup=False)


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
