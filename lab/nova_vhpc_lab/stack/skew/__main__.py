# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run the demo's job on a cloud in the middle of an upgrade.

``python -m nova_vhpc_lab.stack.skew PROGRAMS`` starts the demo's cloud from
the environment of this Python, but nova-compute and the agent of its last host
from the environment with the directory PROGRAMS. The last line is "skew: OK".
"""

import argparse
import sys
from pathlib import Path

from nova_vhpc_lab.stack import environment
from nova_vhpc_lab.stack.demo import (
    clean_up,
    cluster,
    flavor,
    pair,
    restore,
    runner,
    slots,
    start,
    state,
    uplinks,
)
from nova_vhpc_lab.stack.skew import answers, guests, move, phases, releases

PARTS = (
    start.run,
    releases.run,
    uplinks.run,
    flavor.run,
    cluster.run,
    guests.run,
    answers.run,
    phases.run,
    restore.run,
    move.run,
    releases.check_ours,
    pair.run,
    slots.run,
    clean_up.run,
)


def main() -> int:
    """Run the program.

    :returns: exit status, as of the demo.
    """
    parser = argparse.ArgumentParser(prog='tools/skew.sh')
    parser.add_argument(
        'programs',
        type=Path,
        help='directory bin of the environment of the last host',
    )
    parser.add_argument(
        '--agent-only',
        action='store_true',
        help='that host has only the agent from there',
    )
    parser.add_argument(
        '--tree',
        type=Path,
        help='directory of "pip install --target" with the nova-vhpc of that '
        "host's agent",
    )
    args = parser.parse_args()
    # Not resolved: the programs of a virtual environment are links.
    programs = args.programs.absolute()
    tree = args.tree and args.tree.absolute()
    if args.agent_only:
        last = environment.Environment(agent=programs, tree=tree)
    else:
        last = environment.Environment(programs, tree=tree)
    return runner.run(state.Demo(last), PARTS, 'skew')


if __name__ == '__main__':
    sys.exit(main())
