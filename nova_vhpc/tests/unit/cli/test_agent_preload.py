# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Signals that arrive before the agent handles them."""

import subprocess
import sys

from nova_vhpc.tests import base

# A stand-in for the agent: SIGHUP arrives before it handles signals.
CODE = """
import os, signal, sys, types
from nova_vhpc.cli import launch

def main():
    os.kill(os.getpid(), signal.SIGHUP)
    from nova_vhpc.agent.daemon import systemd
    caught = systemd.Signals()
    caught.catch()
    print('reload:', caught.wait())
    os.kill(os.getpid(), signal.SIGHUP)
    print('reload:', caught.wait())
    return 7

sys.modules['nova_vhpc.cli.agent'] = types.SimpleNamespace(main=main)
import nova_vhpc.cli
nova_vhpc.cli.agent = sys.modules['nova_vhpc.cli.agent']
sys.exit(launch.agent())
"""


class AgentPreloadTest(base.TestCase):
    def test_sighup_waits_until_the_agent_handles_it(self):
        ended = subprocess.run(
            [sys.executable, '-c', CODE],
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual('reload: True\n' * 2, ended.stdout, ended.stderr)
        self.assertEqual(7, ended.returncode)
