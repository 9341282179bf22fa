# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run the demo and clean up.

``python -m nova_vhpc_lab.stack.demo`` runs all parts;
``python -m nova_vhpc_lab.stack.demo shell`` boots the servers and runs a
shell. The exit status is 0; 1 if a part failed or something is left behind;
130 if interrupted.
"""

import argparse
import sys

from nova_vhpc_lab.stack.demo import (
    clean_up,
    cluster,
    control,
    flavor,
    io_pool,
    pair,
    progress,
    restore,
    runner,
    shell,
    slots,
    start,
    state,
    uplinks,
)

PARTS = (
    start.run,
    uplinks.run,
    flavor.run,
    cluster.run,
    progress.run,
    control.run,
    restore.run,
    pair.run,
    io_pool.run,
    slots.run,
    clean_up.run,
)

SHELL_PARTS = (
    start.run,
    uplinks.run,
    flavor.run,
    cluster.run,
    progress.run,
    shell.run,
)


def main() -> int:
    """Run the demo and clean up.

    :returns: exit status.
    """
    parser = argparse.ArgumentParser(prog='tools/demo.sh')
    parser.add_argument(
        'what',
        nargs='?',
        choices=('shell',),
        help='instead of the main job: a shell in its cloud',
    )
    parts = SHELL_PARTS if parser.parse_args().what == 'shell' else PARTS
    return runner.run(state.Demo(), parts)


if __name__ == '__main__':
    sys.exit(main())
