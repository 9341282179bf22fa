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
import shutil
import signal
import sys
import time

from nova_vhpc.testbed import supervisor
from nova_vhpc.tests.stack import show
from nova_vhpc.tests.stack.demo import (
    clean_up,
    cluster,
    control,
    flavor,
    io_pool,
    pair,
    progress,
    restore,
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

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    # SIGINT, too: a shell ignores it in programs started in the background.
    for signum in _SIGNALS:
        signal.signal(signum, signal.default_int_handler)
    # What the shell leaves in the background ends with the demo.
    supervisor.become_subreaper()
    demo = state.Demo()
    cloud, out = demo.stage.cloud, demo.show
    result = 1
    try:
        for part in parts:
            part(demo)
        result = 0
    except KeyboardInterrupt:
        out.say('interrupted')
        result = 130
    except Exception as error:
        out.console.print()
        out.say(f'FAILED in step "{out.step_name}"')
        out.say(f'{type(error).__name__}: {error}')
        _show_log(demo)
    finally:
        for signum in _SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        demo.stage.halt()
        supervisor.end_descendants()
    leftovers = show.find_leftovers(cloud.tag, str(cloud.root))
    if leftovers:
        out.say('left behind: ' + '; '.join(leftovers))
        result = result or 1
    else:
        out.say('left behind: no process, bridge, domain or namespace')
    if result:
        for name in ('db', 'rabbit', 'compute', 'nova'):
            shutil.rmtree(cloud.root / name, ignore_errors=True)
        out.say(f'logs and configuration: {cloud.root}')
    else:
        cloud.stop()
    out.say(f'duration: {time.monotonic() - out.started:.0f} s')
    print('demo: OK' if result == 0 else 'demo: FAILED', flush=True)
    return result


def _show_log(demo: state.Demo) -> None:
    for daemon in demo.logs:
        demo.show.say(f'the end of {daemon.log}:')
        print(daemon.tail(25))
    # If a server fails to build, nova-compute's log has the cause, and those
    # of nova-api and nova-scheduler do not.
    for daemon in demo.stage.cloud.daemons():
        if error := daemon.last_error():
            demo.show.say(f'the last error in {daemon.log}:')
            print(error)


if __name__ == '__main__':
    sys.exit(main())
