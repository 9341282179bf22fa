# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Start daemons that end with the process that started them.

All daemons of the embedded stack are children of one small process, the
guard, which ends them when its standard input is closed. So nothing is left
running, even if the test or the demo is killed.
"""

import atexit
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nova_vhpc_lab.testbed import supervisor

_at_end: list[list[str]] = []
"""Commands to run at the end; used in the guard's own process only."""


class Daemon:
    """A daemon of the stack.

    :param log: file with the daemon's output.
    """

    def __init__(self, name: str, pid: int, log: Path) -> None:
        self.name = name
        self.pid = pid
        self.log = log

    def alive(self) -> bool:
        """Tell whether the daemon runs; a zombie does not."""
        try:
            stat = Path(f'/proc/{self.pid}/stat').read_text()
        except OSError:
            return False
        return stat.rpartition(')')[2].split()[0] != 'Z'

    def signal(self, signum: int) -> None:
        """Send a signal; does nothing if the daemon has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    def wait(self, timeout_s: float = 30) -> bool:
        """Wait for the daemon's end; tell whether it came within the time."""
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def stop(self, timeout_s: float = 30) -> bool:
        """End the daemon.

        :param timeout_s: time between SIGTERM and SIGKILL, in seconds.
        :returns: whether SIGTERM was enough.
        """
        self.signal(signal.SIGTERM)
        if self.wait(timeout_s):
            return True
        self.signal(signal.SIGKILL)
        self.wait()
        return False

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of the log."""
        return '\n'.join(self._text().splitlines()[-lines:])

    def last_error(self) -> str:
        """Return the last message that Nova logged at level ERROR."""
        pattern = r' ERROR nova\S* \[.*?\] (\w.*)$'
        errors = re.findall(pattern, self._text(), re.M)
        return errors[-1][:500] if errors else ''

    def _text(self) -> str:
        try:
            return self.log.read_text(errors='replace')
        except OSError:
            return ''


class Guard:
    """Starts daemons by the guard's process, and ends them together.

    :param logs: directory of the daemons' logs.
    :param command: module and arguments of the guard's process.
    :ivar daemons: daemons started so far, by name.
    """

    def __init__(
        self, logs: Path, command: Sequence[str] = (__name__,)
    ) -> None:
        self.logs = logs
        self.daemons: dict[str, Daemon] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = subprocess.Popen(
            (sys.executable, '-m', *command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(self.close)

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Daemon:
        """Start a daemon, whose output is written to ``<logs>/<name>.log``.

        :raises RuntimeError: if the program cannot be started.
        """
        log = self.logs / f'{name}.log'
        order = {
            'argv': [str(arg) for arg in argv],
            'env': {**os.environ, **(env or {})},
            'log': str(log),
            'cwd': str(cwd or '/'),
        }
        reply = self._send(order)
        if 'error' in reply:
            raise RuntimeError(f'{name}: {reply["error"]}')
        daemon = Daemon(name, reply['pid'], log)
        self.daemons[name] = daemon
        return daemon

    def at_end(self, argv: Sequence[str]) -> None:
        """Run a command after the end of all daemons; the latest first."""
        self._send({'at_end': list(argv)})

    def _send(self, order: dict) -> dict:
        with self._lock:
            if self._process is None:
                raise RuntimeError('the guard has ended')
            self._process.stdin.write(json.dumps(order).encode() + b'\n')
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End all daemons and their children; may be called again."""
        atexit.unregister(self.close)
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def reap(*_: object) -> None:
    """Collect the exit status of children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def spawn(order: dict) -> dict:
    """Start a daemon; return its ``pid``, or an ``error``."""
    log = os.open(order['log'], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.chdir(order['cwd'])
        pid = os.posix_spawnp(
            order['argv'][0],
            order['argv'],
            order['env'],
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, '/dev/null', os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
        )
    except OSError as error:
        return {'error': str(error)}
    finally:
        os.close(log)
    return {'pid': pid}


def main() -> None:
    """Run the guard's process."""
    supervisor.become_subreaper()
    signal.signal(signal.SIGCHLD, reap)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal to the whole terminal must not end the daemons, which the
        # owner still needs for its clean-up.
        signal.signal(signum, signal.SIG_IGN)
    owner = os.getppid()
    threading.Thread(
        target=_watch, args=(owner,), name='owner', daemon=True
    ).start()
    for line in sys.stdin:
        order = json.loads(line)
        if 'at_end' in order:
            _at_end.append(order['at_end'])
            reply = {}
        else:
            reply = spawn(order)
        print(json.dumps(reply), flush=True)
    _end()


def _watch(owner: int) -> None:
    # The pipe is no sign if a forked child of the owner keeps it open.
    while os.getppid() == owner:
        time.sleep(1)
    _end()
    os._exit(0)


def _end() -> None:
    supervisor.end_descendants()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while _at_end:
        subprocess.run(
            _at_end.pop(),
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


if __name__ == '__main__':
    main()
