# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Network namespaces that vanish with the process that made them.

Guests that need no kernel of their own are network namespaces. These are kept
in a mount and a process namespace that hold nothing else. The kernel ends all
processes of a process namespace with its first one, and removes a network
namespace, its links and its queueing disciplines with its last process.
Therefore nothing can stay behind, even if the owner is killed, and no name can
collide with one of the machine or of another run.
"""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nova_vhpc_lab.testbed import errors

_SETUP_S = 30.0
_WORLD = (
    *('setpriv', '--pdeathsig', 'KILL', '--'),
    *('unshare', '--net', '--mount', '--ipc', '--uts', '--pid'),
    *('--fork', '--kill-child=KILL', '--mount-proc', '--'),
)
_FIRST = """\
mount -t tmpfs tmpfs /run && mkdir /run/netns && mount -t sysfs sysfs /sys &&
ip link set lo up && echo ready && exec sleep infinity
"""


class Namespaces:
    """Named network namespaces, and the programs that run in them.

    A context manager. Needs root, iproute2 and util-linux.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._enter: tuple[str, ...] = ()

    def __enter__(self) -> 'Namespaces':
        """Make the namespace in which the others are.

        :raises LabError: the kernel or the missing privilege prevents it.
        """
        try:
            self._process = subprocess.Popen(
                (*_WORLD, 'sh', '-c', _FIRST),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                # Ctrl-C is for the owner, which then cleans up.
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise errors.LabError(
                f'{error.filename} is not installed; install util-linux'
            ) from None
        try:
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def _wait(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != 'ready\n':
            process.kill()
            raise errors.LabError(
                'no network namespaces: '
                f'{process.stderr.read().strip()}; run as root'
            )
        children = Path(f'/proc/{process.pid}/task/{process.pid}/children')
        self._enter = (
            *('nsenter', '--target', children.read_text().split()[0]),
            *('--net', '--mount', '--ipc', '--uts', '--pid', '--'),
        )

    def __exit__(self, *_: object) -> None:
        """End all programs and remove all namespaces."""
        self.close()

    def close(self) -> None:
        """End all programs and remove all namespaces."""
        process = self._process
        if process is None:
            return
        self._process = None
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def add(self, name: str) -> None:
        """Add a network namespace, whose loopback is up."""
        self.run(('ip', 'netns', 'add', name))
        self.batch('ip', ['link set lo up'], name)

    def batch(
        self, tool: str, lines: Sequence[str], name: str | None = None
    ) -> None:
        """Run commands of ``ip`` or ``tc``.

        :param tool: ``ip`` or ``tc``.
        :param lines: commands without the tool's name.
        :param name: network namespace; None for the one that the
            others are in.
        :raises LabError: a command fails; those after it are not run.
        """
        where = () if name is None else ('-n', name)
        text = ''.join(f'{line}\n' for line in lines)
        self.run((tool, *where, '-batch', '-'), text=text)

    def write(self, path: str, text: str) -> None:
        """Write an executable file.

        :param path: path below ``/run``, which no other process sees.
        """
        script = 'cat >"$1" && chmod 755 "$1"'
        self.run(('sh', '-c', script, 'sh', path), text=text)

    def run(
        self,
        command: Sequence[str],
        name: str | None = None,
        *,
        text: str = '',
        environment: Mapping[str, str] | None = None,
        timeout_s: float = _SETUP_S,
    ) -> str:
        """Run a program to its end and return what it prints.

        :param command: program, with its path, and arguments.
        :param name: network namespace; None for the one that the
            others are in.
        :param text: standard input.
        :param environment: environment variables; None for this process's.
        :raises LabError: the program fails, or has not ended in time.
        """
        where = () if name is None else ('ip', 'netns', 'exec', name)
        # Programs that still run after a time-out would hold pipes open.
        with (
            tempfile.TemporaryFile('w+') as printed,
            tempfile.TemporaryFile('w+') as complaints,
        ):
            try:
                status = subprocess.run(
                    (*self._enter, *where, *command),
                    input=text,
                    stdout=printed,
                    stderr=complaints,
                    env=None if environment is None else dict(environment),
                    text=True,
                    timeout=timeout_s,
                ).returncode
            except subprocess.TimeoutExpired:
                status = None
            printed.seek(0)
            complaints.seek(0)
            output = printed.read()
            why = complaints.read().strip() or output.strip()
        if status is None:
            raise errors.LabError(
                f'{" ".join(command)} has not ended in {timeout_s:.0f} s: '
                f'{why[-500:]}'
            )
        if status:
            raise errors.LabError(
                f'{" ".join(command)} failed: {why[-2_000:]}'
            )
        return output
