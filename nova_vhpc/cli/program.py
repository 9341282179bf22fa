# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run a command class of ``openstack vhpc`` as a program of its own."""

import argparse
import sys
import types
from typing import Any

from nova_vhpc.clients import openstack


class _ClientManager:
    """Makes the connection when a command first asks for it."""

    def __init__(self, args: argparse.Namespace, connection: Any) -> None:
        self._args = args
        self._connection = connection

    @property
    def vhpc(self) -> Any:
        """The openstacksdk connection."""
        if self._connection is None:
            self._connection = openstack.connect(self._args)
        return self._connection


def run(command_class: Any, args: argparse.Namespace, connection: Any) -> int:
    """Run a command and print its result: a table, or JSON by ``args.json``.

    :param command_class: class whose result is printed by cliff.
    :param args: its arguments, and those of
        :func:`nova_vhpc.clients.openstack.add_arguments`.
    :param connection: openstacksdk connection; None to make one if needed.
    :returns: exit code.
    :raises CommandError: it failed; the text says why, in one line.
    """
    app = types.SimpleNamespace(
        stdout=sys.stdout,
        stderr=sys.stderr,
        # A refusal names the cloud, which clouds.yaml may have chosen.
        names_cloud=True,
        options=types.SimpleNamespace(cloud=args.os_cloud),
        client_manager=_ClientManager(args, connection),
    )
    command = command_class(app, None)
    parser = command.get_parser('')
    defaults = {
        action.dest: action.default
        for action in parser._actions
        if action.dest not in args
    }
    merged = argparse.Namespace(**{**defaults, **vars(args)})
    merged.formatter = 'json' if args.json else 'table'
    status: int = command.run(merged)
    return status
