# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The commands of ``openstack vhpc`` in a shell.

The shell is cliff's, which ``openstack`` extends; the commands are those that
``pyproject.toml`` names.
"""

import importlib
import io
import logging
import pathlib
import tomllib
import types

import fixtures
from cliff import app, commandmanager

from nova_vhpc.cli import plugin

TOP = pathlib.Path(__file__).parents[2]

_GROUP = f'openstack.{plugin.API_NAME}.v{plugin.DEFAULT_API_VERSION}'


def entry_points(group=_GROUP):
    """Return the entry points of a group, as an installation has them."""
    project = tomllib.loads((TOP / 'pyproject.toml').read_text())['project']
    return project['entry-points'][group]


def load(entry_point):
    """Return what an entry point names."""
    module, _, name = entry_point.partition(':')
    return getattr(importlib.import_module(module), name)


class Shell(app.App):
    """The ``openstack`` client as far as commands see it."""

    def __init__(self, sdk_connection):
        manager = commandmanager.CommandManager('test.none')
        for name, target in entry_points().items():
            manager.add_command(name.replace('_', ' '), load(target))
        self.out, self.err = io.StringIO(), io.StringIO()
        super().__init__(
            'test',
            '1',
            manager,
            stdout=self.out,
            stderr=self.err,
            deferred_help=True,
        )
        self._sdk_connection = sdk_connection
        self.client_manager = types.SimpleNamespace()

    def prepare_to_run_command(self, cmd):
        """Log in, as the client does before each command that needs it."""
        if not getattr(cmd, 'auth_required', True):
            return
        connection = self._sdk_connection
        if connection is None:
            raise RuntimeError('no login')
        self.client_manager.sdk_connection = connection
        self.client_manager.vhpc = plugin.make_client(self.client_manager)

    def configure_logging(self):
        """Leave the process's logging alone, unlike cliff."""


def run(connection, *argv):
    """Run ``openstack vhpc`` with arguments.

    :param connection: openstacksdk connection, as after the client's login;
        None if there can be none.
    :returns: exit status, standard output, standard error and log.
    """
    shell = Shell(connection)
    log = fixtures.FakeLogger(level=logging.ERROR, nuke_handlers=False)
    with log:
        status = shell.run(['vhpc', *argv])
        err = shell.err.getvalue() + log.output
    return status, shell.out.getvalue(), err
