# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent runs without eventlet, which its libraries would load."""

import subprocess
import sys

from oslotest import base


class NoEventletTest(base.BaseTestCase):
    def test_agent_does_not_load_eventlet_for_ovsdb(self) -> None:
        done = subprocess.run(
            [
                sys.executable,
                '-c',
                'import sys, nova_vhpc.agent.ovsdb.connection; '
                "sys.exit(3 * ('eventlet' in sys.modules))",
            ],
            timeout=240,
        )
        self.assertEqual(0, done.returncode)
