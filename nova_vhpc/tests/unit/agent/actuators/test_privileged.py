# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""oslo.privsep and eventlet are not loaded unless they are needed."""

import pathlib
import shlex
import subprocess
import sys

import fixtures
from oslotest import base


class TestPrivileged(base.BaseTestCase):
    def loads(self, module: str, unwanted: str) -> bool:
        """Return whether importing a module loads another one."""
        done = subprocess.run(
            [
                sys.executable,
                '-c',
                f'import sys, {module}; sys.exit(3 * ({unwanted!r} in '
                'sys.modules))',
            ],
            timeout=120,
        )
        self.assertIn(done.returncode, (0, 3))
        return done.returncode == 3

    def test_agent_does_not_load_eventlet_for_ovsdb(self) -> None:
        self.assertFalse(
            self.loads('nova_vhpc.agent.ovsdb.connection', 'eventlet')
        )

    def test_agent_does_not_load_oslo_privsep(self) -> None:
        self.assertFalse(self.loads('nova_vhpc.cli.agent', 'oslo_privsep'))

    def test_helper_in_a_path_with_spaces_is_quoted(self) -> None:
        scratch = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        python = scratch / 'a b' / 'python'
        python.parent.mkdir()
        helper = python.with_name('privsep-helper')
        helper.touch()
        done = subprocess.run(
            [
                sys.executable,
                '-c',
                f'import os, sys; sys.executable = {str(python)!r}; '
                'os.geteuid = lambda: 0; '
                'from nova_vhpc.agent.actuators import privileged; '
                'from oslo_config import cfg; '
                'print(cfg.CONF.vhpc_privileged.helper_command)',
            ],
            timeout=120,
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual([str(helper)], shlex.split(done.stdout))
