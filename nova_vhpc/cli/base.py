# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What all ``openstack vhpc`` commands have in common."""

import argparse
from typing import Any

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
from osc_lib.cli import format_columns
from osc_lib.command import command
from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.clients import openstack
from nova_vhpc.explain.request_file import RequestError
from nova_vhpc.flavor import recipes

_REPORTED = (openstack.CloudError, recipes.RecipeError, RequestError)
"""Errors whose text says in one line what to change."""


REFUSED = (
    'the cloud does not let this user do that; only an administrator may: use '
    'credentials with the role admin, or ask the operator of the cloud'
)


class Command(command.Command):
    """A command that reports failures in one line.

    Parent of every command here, before the class of osc-lib that prints its
    result.
    """

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command and return its exit code.

        :raises CommandError: the cloud cannot be asked, or refuses.
        """
        try:
            with openstack.asked(getattr(self.app.options, 'cloud', None)):
                return self._run(parsed_args)
        except (*_REPORTED, cfg.Error, OSError) as error:
            text = conf_package.plain(str(error))
            raise exceptions.CommandError(text) from None

    def _run(self, parsed_args: argparse.Namespace) -> int:
        try:
            return super().run(parsed_args)
        except sdk_exceptions.ForbiddenException:
            if getattr(self.app, 'names_cloud', False):
                raise
            # openstacksdk's text has the status and the URL, which help
            # nobody.
            raise openstack.RefusedError(REFUSED) from None

    @property
    def connection(self) -> Any:
        """The openstacksdk connection of the ``openstack`` client."""
        manager: Any = self.app.client_manager
        return manager.vhpc

    def note(self, text: str) -> None:
        """Print a remark where it does not disturb a script: on stderr."""
        self.app.stderr.write(f'{text}\n')


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


class Lines(format_columns.ListColumn):
    """A list of sentences: one per line for people, a list for scripts.

    Unlike its parent, it keeps their order.
    """

    def human_readable(self) -> str:
        """Return the sentences, each on a line."""
        return '\n'.join(self._value)


class Records(format_columns.ListDictColumn):
    """Records: one per line for people, a list of objects for scripts.

    Unlike its parent, it keeps the order of fields, and leaves out those
    without a value.
    """

    def human_readable(self) -> str:
        """Return the records, each on a line."""
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
