# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Signals that arrive before the agent handles them."""

import signal
import subprocess
import sys

from nova_vhpc.tests import base

# A stand-in for the agent: signals arrive before it is loaded.
CODE = """
import importlib.machinery, os, signal, sys, time
from nova_vhpc.cli import launch

def main(signals):
    print('reload:', signals.wait())
    os.kill(os.getpid(), signal.SIGHUP)
    print('reload:', signals.wait())
    print('stopped:', 0 < time.monotonic() - signals.stop_s < 240)
    signals.release()

class Loader:
    def find_spec(self, name, path, target=None):
        if name == 'nova_vhpc.cli.agent':
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP,
                           signal.SIGTERM):
                os.kill(os.getpid(), number)
            return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.main = main

sys.meta_path.insert(0, Loader())
try:
    sys.exit(launch.agent())
finally:
    sys.stdout.flush()
"""


class AgentPreloadTest(base.TestCase):
    def test_signals_that_come_before_the_agent_is_loaded_are_handled(self):
        ended = subprocess.run(
            [sys.executable, '-c', CODE],
            capture_output=True,
            text=True,
            timeout=240,
        )
        self.assertEqual(
            'reload: True\nreload: True\nstopped: True\n',
            ended.stdout,
            ended.stderr,
        )
        # Handed on by release(), as for --restore.
        self.assertEqual(-signal.SIGTERM, ended.returncode)
