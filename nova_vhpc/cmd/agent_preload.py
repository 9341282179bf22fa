# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
