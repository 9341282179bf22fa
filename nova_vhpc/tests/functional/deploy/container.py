# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A container with systemd, for what must be installed on a whole host."""

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping

import fixtures

from nova_vhpc_lab.testbed.patience import PATIENCE_S

TOP = pathlib.Path(__file__).parents[4]

BOOT_S = 180.0

ENVIRONMENT = (
    'env',
    '-i',
    'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    'HOME=/root',
    'LANG=C.UTF-8',
)


def make_root() -> pathlib.Path:
    """Return the directory with the operating system; make it if need be."""
    root = pathlib.Path(
        os.environ.get(
            'VHPC_CONTAINER_ROOT', '/var/cache/nova-vhpc/container-root'
        )
    )
    made = subprocess.run(
        [TOP / 'tools/container-root.sh', root],
        env={**os.environ, 'VHPC_VENV': os.path.dirname(_bin())},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise AssertionError(f'tools/container-root.sh: {made.stderr}')
    return root


def _bin() -> str:
    path = shutil.which('pip')
    assert path is not None
    return os.path.dirname(path)


class Container(fixtures.Fixture):
    """Boots systemd over a directory that stays as it is.

    :param root: directory with an operating system.
    :param binds: directories of this machine that it has, too, by the path
        that they have there.
    :ivar pid: process id of the container's systemd.
    :ivar scratch: directory outside of the container, removed with it.
    """

    pid: int
    scratch: pathlib.Path

    def __init__(
        self,
        root: pathlib.Path,
        binds: Mapping[str, pathlib.Path] | None = None,
    ) -> None:
        self._root = root
        self._binds = dict(binds or {})
        self._name = f'vhpc-{os.getpid()}-{id(self) % 10000}'

    def _setUp(self) -> None:
        self.scratch = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('upper', 'work', 'root'):
            (self.scratch / name).mkdir()
        over = (
            f'lowerdir={self._root},upperdir={self.scratch}/upper,'
            f'workdir={self.scratch}/work'
        )
        root = self.scratch / 'root'
        # Mounted where nobody else sees it, it goes with the last process.
        script = f'mount -t overlay overlay -o {over} {root} && '
        for inside, source in self._binds.items():
            place = f'{root}{inside}'
            script += f'mkdir -p {place} && mount --bind {source} {place} && '
        script += f'exec {TOP}/tools/container/boot.sh {root} {self._name}'
        with (self.scratch / 'boot.log').open('wb') as log:
            self._process = subprocess.Popen(
                ['unshare', '--mount', 'bash', '-c', script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.addCleanup(self._stop)
        end = time.monotonic() + BOOT_S
        while not self._is_booted():
            if time.monotonic() > end:
                raise AssertionError((self.scratch / 'boot.log').read_text())
            time.sleep(0.5)

    def run(
        self, *command: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as root."""
        ended = subprocess.run(
            [*self._enter(), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and ended.returncode:
            raise AssertionError(f'{command}: {ended.stdout}{ended.stderr}')
        return ended

    def put(self, source: pathlib.Path, target: str) -> None:
        """Copy a file into the container."""
        subprocess.run(
            [*self._enter(), 'tee', target],
            input=source.read_bytes(),
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def ssh(self) -> pathlib.Path:
        """Return a program that Ansible can call instead of ssh."""
        path = self.scratch / 'ssh'
        path.write_text(
            '#!/bin/sh\n# The command is the last argument.\n'
            'for command; do :; done\n'
            f'exec {shlex.join(self._enter())} sh -c "$command"\n'
        )
        path.chmod(0o755)
        return path

    def _enter(self) -> list[str]:
        spaces = ['-m', '-u', '-i', '-n', '-p', '-C']
        return ['nsenter', '-t', str(self.pid), *spaces, *ENVIRONMENT]

    def _is_booted(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError((self.scratch / 'boot.log').read_text())
        children = pathlib.Path(
            f'/proc/{self._process.pid}/task/{self._process.pid}/children'
        ).read_text()
        for child in map(int, children.split()):
            name = pathlib.Path(f'/proc/{child}/comm').read_text().strip()
            if name == 'systemd':
                self.pid = child
                state = self.run('systemctl', 'is-system-running', check=False)
                return state.stdout.strip() in ('running', 'degraded')
        return False

    def _stop(self) -> None:
        # All processes of a pid namespace end with its first.
        if hasattr(self, 'pid'):
            os.kill(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._remove_groups()

    def _remove_groups(self) -> None:
        """Remove the container's control groups, the deepest first."""
        own = [
            path
            for hierarchy in pathlib.Path('/sys/fs/cgroup').iterdir()
            for path in hierarchy.rglob(self._name)
        ]
        end = time.monotonic() + PATIENCE_S
        for group in own:
            for path in [*sorted(group.rglob('*/'), reverse=True), group]:
                while path.is_dir():
                    try:
                        path.rmdir()
                    except OSError:
                        # Processes take a moment to leave it.
                        if time.monotonic() > end:
                            raise
                        time.sleep(0.1)
