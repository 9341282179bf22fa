# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-flavor`` and ``openstack vhpc flavor``: extra specs of flavors.

Both run the same classes: ``set`` and ``unset`` write at once, as commands of
the ``openstack`` client do, and only show with ``--dry-run``.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc.cli import base, program
from nova_vhpc.clients import openstack
from nova_vhpc.flavor import extra_specs, recipes, request_groups, validation


class _Flavor(base.Command):
    """A command about one flavor."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the name of the flavor."""
        parser.add_argument('flavor', metavar='<flavor>', help='name or ID')


class _Change(_Flavor, base.ShowOne):
    """A command that changes a flavor."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the option that writes nothing."""
        super().add_arguments(parser)
        parser.add_argument(
            '--dry-run',
            action='store_true',
            help='only show what would change',
        )

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Sequence[Any]]:
        """Change the flavor, and return what changed."""
        try:
            self.check(parsed_args)
            flavor = openstack.find_flavor(self.connection, parsed_args.flavor)
            change = self.change(parsed_args, dict(flavor.extra_specs))
        except recipes.RecipeError as error:
            raise base.CommandError(str(error)) from None
        written = bool(change) and not parsed_args.dry_run
        if written:
            self._write(flavor, change)
        return _columns(
            flavor=flavor.name,
            set=base.Pairs(dict(change.write)),
            remove=base.Lines(list(change.remove)),
            after=base.Pairs(change.after),
            written=written,
            advice=base.Lines(
                validation.advice(change.after) + change.left_behind
            ),
        )

    def _write(self, flavor: Any, change: recipes.Change) -> None:
        """Make the change; Nova validates the values if it can."""
        compute = self.connection.compute
        # An interactive openstack client goes on with this connection.
        default = compute.default_microversion
        try:
            openstack.validating(self.connection)
            # Set before removing: if Nova refuses a value, nothing is lost.
            if change.write:
                compute.create_flavor_extra_specs(flavor, dict(change.write))
            for key in change.remove:
                compute.delete_flavor_extra_specs_property(flavor, key)
        finally:
            compute.default_microversion = default

    def check(self, args: argparse.Namespace) -> None:
        """Check what needs no cloud.

        :raises RecipeError: a value is wrong.
        """

    def change(
        self, args: argparse.Namespace, current: Mapping[str, str]
    ) -> recipes.Change:
        """Return the change of a flavor.

        :param current: all extra specs of the flavor.
        :raises RecipeError: the options do not fit together or to the flavor.
        """
        raise NotImplementedError


class SetFlavor(_Change):
    """Write a consistent set of extra specs to a flavor.

    What is not named stays. Servers that exist keep what they have until they
    are resized.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add an option for each extra spec."""
        super().add_arguments(parser)
        for key in extra_specs.KEYS:
            parser.add_argument(
                '--' + key.name.replace('_', '-'),
                dest=key.name,
                metavar=key.name.upper(),
                help=f'{key.description} Takes {key.allowed}.'.replace(
                    '%', '%%'
                ),
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
            help="uplinks come with the server's ports, whose QoS policy has "
            'a minimum bandwidth; the flavor then claims none',
        )

    def check(self, args: argparse.Namespace) -> None:
        """Check each value by itself."""
        for name, value in _given(args).items():
            try:
                extra_specs.BY_NAME[name].parse(value)
            except ValueError as error:
                raise recipes.RecipeError(str(error)) from None

    def change(
        self, args: argparse.Namespace, current: Mapping[str, str]
    ) -> recipes.Change:
        """Return the change of a flavor."""
        given = _given(args)
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
        # So does one whose uplinks come with ports, unless a --network is
        # given.
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


def _given(args: argparse.Namespace) -> dict[str, str]:
    """Return the extra specs that options give, by name without prefix."""
    return {
        key.name: getattr(args, key.name)
        for key in extra_specs.KEYS
        if getattr(args, key.name) is not None
    }


class UnsetFlavor(_Change):
    """Take all extra specs of nova-vhpc out of a flavor."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the option that names a PCI alias."""
        super().add_arguments(parser)
        parser.add_argument(
            '--alias',
            metavar='NAME',
            help='also take this PCI alias out, which others may use as well',
        )

    def change(
        self, args: argparse.Namespace, current: Mapping[str, str]
    ) -> recipes.Change:
        """Return the change of a flavor."""
        change = recipes.change(current, {})
        if args.alias:
            change = recipes.without_alias(change, args.alias)
        return change


class ShowFlavor(_Flavor, base.ShowOne):
    """Show a flavor's extra specs, and whether they fit together.

    The exit code is 1 if they do not.
    """

    _flawed = False

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
            extra_specs=base.Pairs(specs),
            problems=base.Lines(problems),
            advice=base.Lines(validation.advice(specs)),
        )


def _columns(**values: Any) -> tuple[Sequence[str], Sequence[Any]]:
    """Return names and values as cliff takes them."""
    return tuple(values), tuple(values.values())


class CheckFlavor(base.Lister):
    """Find flavors whose extra specs Nova would refuse today.

    Nova validates them from microversion 2.86 on; clients of an older one, as
    openstack by default, can write wrong ones. The exit code is 1 if any is.
    """

    _flawed = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add which flavors to check."""
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
            metavar='<flavor>',
            help='name or ID',
        )
        base.add_json(parser)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Check the flavors and return the exit code."""
        return super().run(parsed_args) or int(self._flawed)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Return a row for each problem."""
        if parsed_args.all:
            flavors = openstack.all_flavors(self.connection)
        else:
            flavors = [
                openstack.find_flavor(self.connection, name)
                for name in parsed_args.flavors
            ]
        specs = {flavor.name: dict(flavor.extra_specs) for flavor in flavors}
        wrong = validation.problems_of_all(specs)
        self._flawed = bool(wrong)
        self.whole = {'checked': len(specs), 'problems': wrong}
        if not parsed_args.json:
            self.note(f'Checked {len(specs)} flavors, {len(wrong)} are wrong.')
        return ('Flavor', 'Problem'), [
            (name, problem)
            for name, problems in wrong.items()
            for problem in problems
        ]


PROGRAM = program.Program(
    'nova-vhpc-flavor',
    'Show and write the extra specs of virtual clusters.',
    {
        'set': SetFlavor,
        'unset': UnsetFlavor,
        'show': ShowFlavor,
        'check': CheckFlavor,
    },
    program.add_cloud,
)
main = PROGRAM.main
make_parser = PROGRAM.make_parser


if __name__ == '__main__':
    sys.exit(main())
