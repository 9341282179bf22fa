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

"""Signals that arrive before the agent handles them."""

import subprocess
import sys

from nova_vhpc.tests import base

# A stand-in for the agent: SIGHUP arrives before it handles signals.
CODE = """
import os, signal, sys, types
from nova_vhpc.cmd import agent_preload

def main():
    os.kill(os.getpid(), signal.SIGHUP)
    from nova_vhpc.agent.daemon import signals
    caught = signals.Signals()
    caught.catch()
    print('reload:', caught.wait())
    os.kill(os.getpid(), signal.SIGHUP)
    print('reload:', caught.wait())
    return 7

sys.modules['nova_vhpc.cmd.agent'] = types.SimpleNamespace(main=main)
import nova_vhpc.cmd
nova_vhpc.cmd.agent = sys.modules['nova_vhpc.cmd.agent']
sys.exit(agent_preload.main())
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
