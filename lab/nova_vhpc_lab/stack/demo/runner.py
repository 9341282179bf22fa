# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run the parts of a demo and clean up."""

import shutil
import signal
import time
from collections.abc import Callable, Iterable

from nova_vhpc_lab.stack import show
from nova_vhpc_lab.stack.demo import state
from nova_vhpc_lab.testbed import supervisor
from nova_vhpc_lab.testbed.patience import TooLongError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    demo: state.Demo,
    parts: Iterable[Callable[[state.Demo], None]],
    name: str = 'demo',
) -> int:
    """Run parts one after the other, and clean up.

    :param name: name of the whole, for its last line.
    :returns: exit status: 0; 1 if a part failed or something is left behind;
        130 if interrupted.
    """
    # SIGINT, too: a shell ignores it in programs started in the background.
    for signum in _SIGNALS:
        signal.signal(signum, signal.default_int_handler)
    # What the shell leaves in the background ends with the demo.
    supervisor.become_subreaper()
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
        if isinstance(error, TooLongError):
            # Logs of services that wait, too, say nothing.
            out.say(str(error))
        else:
            out.say(f'{type(error).__name__}: {error}')
            _show_logs(demo)
        _show_last_errors(demo)
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
        for folder in ('db', 'rabbit', 'compute', 'nova'):
            shutil.rmtree(cloud.root / folder, ignore_errors=True)
        out.say(f'logs and configuration: {cloud.root}')
    else:
        cloud.stop()
    out.say(f'duration: {time.monotonic() - out.started:.0f} s')
    print(f'{name}: OK' if result == 0 else f'{name}: FAILED', flush=True)
    return result


def _show_logs(demo: state.Demo) -> None:
    for daemon in demo.logs:
        demo.show.say(f'the end of {daemon.log}:')
        print(daemon.tail(25))


def _show_last_errors(demo: state.Demo) -> None:
    # If a server fails to build, nova-compute's log has the cause, and those
    # of nova-api and nova-scheduler do not.
    for daemon in demo.stage.cloud.daemons():
        if error := daemon.last_error():
            demo.show.say(f'the last error in {daemon.log}:')
            print(error)
