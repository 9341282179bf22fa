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

"""The console script ``nova-vhpc-agent``: blocks SIGHUP, then loads the agent.

Loading the agent takes about a second. A SIGHUP in that time would end the
process, and systemd takes that for a clean exit and does not restart it. So
the signal stays blocked until the agent handles it.
"""

import signal


def main() -> int:
    """Block SIGHUP, and run the agent.

    :returns: exit status of the agent.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    from nova_vhpc.cmd import launch

    return launch.agent()
