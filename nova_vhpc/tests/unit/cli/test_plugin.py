# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import argparse
import subprocess
import sys

from nova_vhpc.cli import base as cli_base
from nova_vhpc.cli import plugin
from nova_vhpc.tests import base, osc_shell


class PluginTest(base.TestCase):
    def test_client_finds_the_plugin_by_its_entry_point(self):
        self.assertEqual(
            {'vhpc': plugin.__name__},
            osc_shell.entry_points('openstack.cli.extension'),
        )
        # The client makes this name of name and version of the API.
        self.assertIn('vhpc_flavor_set', osc_shell.entry_points())

    def test_every_command_has_its_class_and_help(self):
        for name, target in osc_shell.entry_points().items():
            with self.subTest(name):
                kind = osc_shell.load(target)
                self.assertTrue(issubclass(kind, cli_base.Command))
                self.assertTrue(kind.__doc__)
                verb = name.rpartition('_')[2]
                self.assertTrue(kind.__name__.lower().startswith(verb))

    def test_every_option_has_a_help(self):
        for name, target in osc_shell.entry_points().items():
            kind = osc_shell.load(target)
            parser = kind(None, None).get_parser(name)
            ours = [
                action
                for action in parser._actions
                if not isinstance(action, argparse._HelpAction)
            ]
            self.assertNotIn(None, [action.help for action in ours], name)
            # Broken percent signs show only here.
            parser.format_help()

    def test_starting_the_client_loads_no_other_module_of_ours(self):
        code = (
            'import sys, nova_vhpc.cli.plugin; '
            'print(*(n for n in sys.modules if n.startswith("nova_vhpc.")))'
        )
        result = subprocess.run(
            [sys.executable, '-c', code],
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(
            ['nova_vhpc.cli', 'nova_vhpc.cli.plugin'], result.stdout.split()
        )

    def test_version_option_has_the_default(self):
        parser = plugin.build_option_parser(argparse.ArgumentParser())
        self.assertEqual('1', parser.parse_args([]).os_vhpc_api_version)
        self.assertEqual('os_vhpc_api_version', plugin.API_VERSION_OPTION)
