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

"""Run the demo and clean up.

``python -m nova_vhpc.tests.stack.demo`` runs all parts;
``python -m nova_vhpc.tests.stack.demo shell`` boots the servers and runs a
shell. The exit status is 0; 1 if a part failed or something is left behind;
130 if interrupted.
"""

import argparse
import sys

from nova_vhpc.tests.stack.demo import (
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
