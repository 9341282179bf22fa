# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A private libvirtd, with all of its files below one directory.

The lab, the functional tests and the demo need the real libvirt on machines
without systemd, and several libvirtds at a time; see
:class:`PrivateLibvirtd`. To try one by hand, run it in the foreground::

    python -m nova_vhpc_lab.testbed.libvirtd --root /tmp/lv
    virsh -c 'qemu+unix:///system?socket=/tmp/lv/sock/libvirt-sock' list
"""

import argparse
import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

from nova_vhpc_lab.testbed import image, patience, supervisor

_START_TIMEOUT_S = 60.0 * patience.TIMES
_STOP_TIMEOUT_S = 30.0 * patience.TIMES
_MIN_FREE_BYTES = 1 << 20
_LAST_LINES = 2
"""The last line of libvirtd's log says that it failed, the one before why."""

_LIBVIRTD_CONF = """\
listen_tls = 0
listen_tcp = 0
unix_sock_dir = "{sockets}"
unix_sock_rw_perms = "0700"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "3:stderr"
host_uuid_source = "machine-id"
"""

# stdio_handler: there is no virtlogd. user: as anyone but root, QEMU may
# not open /dev/kvm, and libvirt then probes its capabilities on every
# create (8 s).
QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
stdio_handler = "file"
"""


class LibvirtdError(Exception):
    """libvirtd did not start; the message holds the end of its log."""


_PACKAGES = {
    'libvirtd': 'libvirt-daemon, libvirt-daemon-driver-qemu',
    'virsh': 'libvirt-clients',
    'qemu-system-x86_64': 'qemu-system-x86',
}
"""Debian's packages by the program that they hold, as in ``bindep.txt``."""


def check() -> None:
    """Check that libvirtd, virsh and QEMU are installed.

    :raises LibvirtdError: one of them is not installed.
    """
    for program, packages in _PACKAGES.items():
        if shutil.which(program) is None:
            raise LibvirtdError(
                f'no {program} on this machine; install the packages of '
                f'bindep.txt ({packages})'
            )


def uri_of(socket: Path) -> str:
    """Return the connection URI of the libvirtd behind a socket.

    :param socket: path of the socket; it may hold any character.
    """
    return f'qemu+unix:///system?socket={urllib.parse.quote(str(socket))}'


def wait_until_it_answers(
    uri: str,
    socket: Path,
    logs: Iterable[Path],
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until a libvirtd that was started answers.

    :param uri: connection URI of the libvirtd.
    :param socket: path of its socket.
    :param logs: its log files. Their last lines go into the error message,
        because the files are deleted with the test bed.
    :param ended: returns whether the libvirtd has exited.
    :raises LibvirtdError: the libvirtd does not answer within 60 s, or has
        exited.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    problem = 'no socket'
    while time.monotonic() < deadline:
        if ended():
            problem = 'it ended'
            break
        if socket.exists():
            # In a separate process, because libvirt-python prints errors to
            # stderr, and must not be loaded before this process forks.
            done = subprocess.run(
                ('virsh', '-q', '-c', uri, 'list'),
                capture_output=True,
                text=True,
                timeout=_START_TIMEOUT_S,
            )
            if done.returncode == 0:
                return
            problem = done.stderr.strip()
        time.sleep(0.05)
    ends = ((log, _end(log)) for log in logs)
    raise LibvirtdError(
        f'libvirtd does not answer ({problem})'
        + ''.join(f'; {log} ends: {end}' for log, end in ends if end)
        + _full_disk_hint(socket)
    )


def _end(log: Path) -> str:
    """Return the last lines of a file; empty if there are none."""
    try:
        lines = log.read_text(errors='replace').split('\n')
    except OSError:
        return ''
    messages = [line.strip() for line in lines if line.strip()]
    return ' / '.join(messages[-_LAST_LINES:])


def _full_disk_hint(path: Path) -> str:
    """Return a hint for the error message if the disk is full."""
    there = next(parent for parent in path.parents if parent.exists())
    free = shutil.disk_usage(there).free
    return (
        ''
        if free >= _MIN_FREE_BYTES
        else f'; {there} has only {free >> 10} KiB left'
    )


class PrivateLibvirtd:
    """Debian's monolithic libvirtd with all of its state below one directory.

    Guests run as children of the supervisor
    (:mod:`nova_vhpc_lab.testbed.supervisor`), which outlives libvirtd, so they
    survive :meth:`restart` and :meth:`kill` as on a real host. When the owner
    of this object exits or is killed, the guests and their control groups are
    removed.

    :param root: directory for all files, created if missing and kept at
        :meth:`stop` because of the logs. Its path must be shorter than 80
        characters (unix sockets).
    :param cache: directory of libvirt's capability cache, which takes 8 s to
        make and is shared between runs; by default
        ``~/.cache/nova-vhpc/libvirt``.
    :ivar pid: process ID of libvirtd, or None if it is not running.
    """

    def __init__(self, root: Path, *, cache: Path | None = None) -> None:
        self.root = Path(root).absolute()
        self.cache = cache or image.default_cache() / 'libvirt'
        self.pid: int | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """Path of the libvirt socket, outside of the mount namespace."""
        return self.root / 'sock' / 'libvirt-sock'

    @property
    def uri(self) -> str:
        """Connection URI for ``libvirt.open``, ``virsh -c`` and Nova."""
        return uri_of(self.socket)

    @property
    def log(self) -> Path:
        """File with libvirtd's log and its other output."""
        return self.root / supervisor.LOG

    @property
    def run_dir(self) -> Path:
        """Directory that libvirtd sees as ``/run/libvirt`` (pid files)."""
        return self.root / 'run'

    def start(self) -> Self:
        """Start libvirtd and wait until it answers.

        :raises LibvirtdError: libvirtd does not answer, or this process is
            not root.
        """
        if self._supervisor is None:
            try:
                self._prepare()
            except OSError as error:
                raise LibvirtdError(
                    f'no libvirtd in {self.root}: {error.strerror}'
                ) from error
            self._start_supervisor()
        self._start_daemon()
        return self

    def stop(self) -> None:
        """End libvirtd, its guests and their control groups.

        May be called more than once.
        """
        atexit.unregister(self.stop)
        process, self._supervisor, self.pid = self._supervisor, None, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def clean_up_at_end(self, kind: str, *words: str) -> None:
        """Have something cleaned up even if this process is killed.

        :param kind: see :func:`nova_vhpc_lab.testbed.supervisor.clean_up`.
        :param words: see there.
        """
        assert self._supervisor is not None
        assert self._supervisor.stdin is not None
        line = json.dumps([kind, *words]) + '\n'
        with contextlib.suppress(OSError):  # the supervisor has been killed
            self._supervisor.stdin.write(line.encode())
            self._supervisor.stdin.flush()

    def restart(self) -> None:
        """Shut libvirtd down and start it again; guests keep running."""
        self._end_daemon(signal.SIGTERM)
        self._start_daemon()

    def kill(self) -> None:
        """Kill libvirtd but not its guests; :meth:`start` starts it again."""
        self._end_daemon(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop libvirtd: connections stay open, but no call returns."""
        if self.pid:
            os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue a frozen libvirtd."""
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze libvirtd for the duration of a ``with`` block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _prepare(self) -> None:
        if len(str(self.socket)) > 100:
            raise LibvirtdError(
                f'{self.root}: path too long for unix sockets; '
                'take a root of at most 80 characters'
            )
        check()
        self.cache.mkdir(parents=True, exist_ok=True)
        for name in ('sock', *supervisor.REDIRECTED):
            if name != 'cache':
                (self.root / name).mkdir(parents=True, exist_ok=True)
        link = self.root / 'cache'
        if not link.exists():
            link.symlink_to(self.cache)
        (self.root / 'libvirtd.conf').write_text(
            _LIBVIRTD_CONF.format(root=self.root, sockets=self.root / 'sock')
        )
        (self.root / 'etc' / 'qemu.conf').write_text(QEMU_CONF)

    def _start_supervisor(self) -> None:
        process = subprocess.Popen(
            (sys.executable, '-m', supervisor.__name__, str(self.root)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._supervisor = process
        atexit.register(self.stop)
        answer = self._answer()
        if answer != 'ready':
            self.stop()
            raise LibvirtdError(answer.removeprefix('error '))

    def _answer(self) -> str:
        assert self._supervisor is not None
        assert self._supervisor.stdout is not None
        ready, _, _ = select.select(
            [self._supervisor.stdout], [], [], _START_TIMEOUT_S
        )
        if not ready:
            return ''
        return self._supervisor.stdout.readline().decode().strip()

    def _start_daemon(self) -> None:
        if self._supervisor is None or self._supervisor.stdin is None:
            raise LibvirtdError('not started')
        if self.pid and _alive(self.pid):
            return
        (self.root / 'libvirtd.pid').unlink(missing_ok=True)
        # A libvirtd that was killed leaves its socket, which refuses
        # connections.
        self.socket.unlink(missing_ok=True)
        try:
            self._supervisor.stdin.write(b'start\n')
            self._supervisor.stdin.flush()
            self.pid = int(self._answer())
        except (OSError, ValueError) as error:
            raise LibvirtdError(
                f'libvirtd could not be started: {error}'
            ) from error
        pid = self.pid
        wait_until_it_answers(
            self.uri,
            self.socket,
            (self.log,),
            lambda: not _alive(pid),
        )

    def _end_daemon(self, signum: signal.Signals) -> None:
        pid, self.pid = self.pid, None
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while _alive(pid):
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        stat = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return False
    return stat.rpartition(')')[2].split()[0] != 'Z'


def main(argv: list[str] | None = None) -> int:
    """Run a private libvirtd in the foreground until a signal arrives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--root', type=Path, required=True)
    args = parser.parse_args(argv)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.default_int_handler)
    try:
        with PrivateLibvirtd(args.root) as daemon:
            print(daemon.uri, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    signal.pause()
    except LibvirtdError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
