# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The agent's command line and options."""

import contextlib
import io
import os

from oslo_config import cfg
from oslotest import base

from nova_vhpc.cmd import agent
from nova_vhpc.conf import agent as agent_conf


class TestCommandLine(base.BaseTestCase):
    def test_help_and_version(self) -> None:
        for option, word in (('--help', '--restore'), ('--version', '.')):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                error = self.assertRaises(
                    SystemExit, agent.make_conf, [option]
                )
            self.assertEqual(0, error.code)
            self.assertIn(word, out.getvalue())

    def test_dry_run_is_the_option(self) -> None:
        nothing = ['--config-file', os.devnull]
        self.assertFalse(agent.make_conf(nothing).vhpc_agent.dry_run)
        self.assertTrue(
            agent.make_conf([*nothing, '--dry-run']).vhpc_agent.dry_run
        )

    def test_dry_run_goes_with_nothing_that_writes(self) -> None:
        for option in ('--restore', '--withdraw'):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                code = agent.main(
                    ['--config-file', os.devnull, '--dry-run', option]
                )
            self.assertEqual(2, code)
            self.assertIn(option, err.getvalue())

    def test_missing_file_is_one_line(self) -> None:
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = agent.main(['--config-file', '/nonexistent'])
        self.assertEqual(2, code)
        self.assertEqual(1, len(err.getvalue().strip().splitlines()))
        self.assertIn('/nonexistent', err.getvalue())


class TestOptions(base.BaseTestCase):
    def test_every_option_says_when_to_change_it(self) -> None:
        for option in agent_conf.OPTS:
            self.assertGreater(len(option.help), 40, option.name)

    def test_complaints_name_value_and_choice(self) -> None:
        conf = cfg.ConfigOpts()
        agent_conf.register_opts(conf)
        conf([])
        for name, value, word in (
            ('period_ms', '29', '30 to 10000'),
            ('workers', 'x', '1 to 16'),
            ('reconcile_period', '0', 'from 0.2'),
        ):
            option = next(o for o in agent_conf.OPTS if o.name == name)
            error = self.assertRaises(ValueError, option.type, value)
            self.assertIn(f"'{value}'", str(error))
            self.assertIn(word, str(error))
