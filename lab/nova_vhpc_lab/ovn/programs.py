# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Programs of Open vSwitch and OVN, run from a directory of their own.

``tools/ovn-root.sh`` makes the directory. The programs run by its loader and
with its libraries, so that they need no chroot: they see the host's files.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Sequence

from nova_vhpc_lab.stack import guard

ROOT = pathlib.Path(
    os.environ.get('VHPC_OVN_ROOT', '/var/cache/nova-vhpc/ovn-root')
)
SCHEMAS = ROOT / 'usr/share'
# Debian has links to alternatives, which would lead out of the directory.
_DIRECTORIES = ('usr/lib/openvswitch-switch', 'usr/sbin', 'usr/bin')
_END_SECONDS = 10.0


def words(program: str, *arguments: str) -> list[str]:
    """Return the command line that runs a program.

    :raises AssertionError: the directory is missing.
    """
    libraries = next(ROOT.glob('usr/lib/*-linux-gnu'), None)
    assert libraries, f'{ROOT} is missing; run tools/ovn-root.sh'
    loader = next(libraries.glob('ld-linux*.so.*'))
    path = next(
        ROOT / directory / program
        for directory in _DIRECTORIES
        if (ROOT / directory / program).exists()
    )
    return [
        str(loader),
        '--library-path',
        str(libraries),
        str(path),
        *arguments,
    ]


class Place:
    """Where programs run: a network namespace, and a directory for files.

    :param path: directory of sockets, databases, logs and PID files, which
        is made.
    :param namespace: name of a network namespace, which is made; None for the
        test's.
    :param keeper: guard that ends the daemons, and removes the namespace, if
        this process is killed; None for none.
    """

    def __init__(
        self,
        path: pathlib.Path,
        namespace: str | None,
        keeper: guard.Guard | None = None,
    ) -> None:
        self.path = path
        self.namespace = namespace
        self._keeper = keeper
        self._environ = {
            **os.environ,
            **{
                name: str(path)
                for name in (
                    'OVS_RUNDIR',
                    'OVS_DBDIR',
                    'OVS_LOGDIR',
                    'OVN_RUNDIR',
                    'OVN_DBDIR',
                    'OVN_LOGDIR',
                )
            },
        }
        path.mkdir(parents=True)
        if namespace:
            self.remove_at_end('netns', namespace)
            subprocess.run(['ip', 'netns', 'add', namespace], check=True)

    def remove_at_end(self, kind: str, name: str) -> None:
        """Have the keeper remove a link or a namespace, if there is a keeper.

        :param kind: ``link`` or ``netns``.
        """
        if self._keeper is not None:
            self._keeper.at_end(('ip', kind, 'delete', name))

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of Open vSwitch or OVN; return its output."""
        return self.shell(*words(program, *arguments))

    def ip(self, *arguments: str) -> str:
        """Run the host's ``ip``; each argument may be several words."""
        return self.shell('ip', *' '.join(arguments).split())

    def inside(self, *command: str) -> list[str]:
        """Return the command line that runs a program in the namespace."""
        if self.namespace is None:
            return [*command]
        return ['ip', 'netns', 'exec', self.namespace, *command]

    def shell(self, *command: str) -> str:
        """Run any program; return its output."""
        done = subprocess.run(
            self.inside(*command),
            env=self._environ,
            check=False,
            text=True,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, f'{command}: {done.stdout}{done.stderr}'
        return done.stdout

    def start(self, program: str, *arguments: str, name: str = '') -> None:
        """Start a daemon, which :meth:`kill` ends.

        :param name: name of its files; that of the program by default.
        """
        name = name or program
        command = words(
            program,
            *arguments,
            '--detach',
            '--no-chdir',
            f'--pidfile={self.path / name}.pid',
            f'--log-file={self.path / name}.log',
            f'--unixctl={self.path / name}.ctl',
        )
        if self._keeper is None:
            self.shell(*command)
            return
        # The daemon becomes a child of the keeper, which adopts orphans.
        launcher = self._keeper.start(
            f'{self.path.name}-{name}', self.inside(*command), self._environ
        )
        launcher.wait()
        assert (self.path / f'{name}.pid').exists(), launcher.tail()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a daemon, and wait for its end."""
        file = self.path / f'{name}.pid'
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid = int(file.read_text())
            os.kill(pid, number)
            end_s = time.monotonic() + _END_SECONDS
            while _runs(pid) and time.monotonic() < end_s:
                time.sleep(0.02)

    def end(self, names: Sequence[str]) -> None:
        """End daemons that may run, and remove the namespace."""
        for name in names:
            self.kill(name)
        if self.namespace:
            subprocess.run(
                ['ip', 'netns', 'del', self.namespace],
                check=False,
                capture_output=True,
            )


def _runs(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return False
    return stat.rpartition(')')[2].split()[0] != 'Z'
