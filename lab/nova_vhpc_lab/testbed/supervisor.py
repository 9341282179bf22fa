# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The parent process of a private libvirtd.

Run as ``python -m nova_vhpc_lab.testbed.supervisor ROOT``, by
:class:`nova_vhpc_lab.testbed.libvirtd.PrivateLibvirtd` only. The supervisor

* has its own mount namespace, in which libvirt's compiled-in directories are
  directories below ROOT, so that any number of libvirtds run side by side and
  none touches the machine's;
* reaps guests at once (``PR_SET_CHILD_SUBREAPER``): if pid 1 is slow to reap,
  destroying a guest takes 1.6 s instead of 0.2 s;
* kills everything that it started when its owner closes the supervisor's
  standard input, which also happens if the owner is killed, and cleans up
  what the owner has reported to it.

The line ``start`` on standard input starts a libvirtd; the answer is its pid.
A JSON list names something to clean up at the end, see :func:`clean_up`; with
``done`` before it, the owner has cleaned that up itself, and another process
may own it by now. At end of file or SIGTERM the supervisor cleans up and
exits.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_PR_SET_CHILD_SUBREAPER = 36
_CGROUP = Path('/sys/fs/cgroup')
_AGENT_END_S = 30.0

REDIRECTED = {
    'etc': '/etc/libvirt',
    'run': '/run/libvirt',
    'lib': '/var/lib/libvirt',
    'log': '/var/log/libvirt',
    'cache': '/var/cache/libvirt',
}
"""Directory below ROOT by the compiled-in directory that it replaces."""

LOG = 'libvirtd.out'
"""File in ROOT with libvirtd's output, its log included.

libvirtd logs to standard error, because it accepts no blank in the path of
a log file.
"""


class SupervisorError(Exception):
    """The namespace or the daemon could not be set up."""


def become_subreaper() -> None:
    """Make this process, instead of pid 1, the parent of orphans below it."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SupervisorError('cannot become a subreaper')


def enter_namespace(root: Path) -> None:
    """Redirect libvirt's directories to ROOT, for this process and children.

    :raises SupervisorError: the process is not privileged (root is needed).
    """
    become_subreaper()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise SupervisorError(
            'no mount namespace for a private libvirtd: '
            f'{os.strerror(ctypes.get_errno())}; run as root'
        )
    _mount('--make-rprivate', '/')
    for name, target in REDIRECTED.items():
        source = root / name
        source.mkdir(parents=True, exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        _mount('--bind', str(source.resolve()), target)
    hide_useless_cgroup2()


def _mount(*args: str) -> None:
    done = subprocess.run(('mount', *args), capture_output=True, text=True)
    if done.returncode:
        raise SupervisorError(f'mount {" ".join(args)}: {done.stderr.strip()}')


def hide_useless_cgroup2() -> None:
    """Unmount cgroup2 file systems without a CPU controller.

    libvirt prefers a cgroup2 mount for cpuacct even if the CPU controllers
    are all on cgroup v1; guests then fail to start.
    """
    for line in Path('/proc/self/mounts').read_text().splitlines():
        _, where, kind, *_ = line.split()
        controllers = Path(where, 'cgroup.controllers')
        if kind == 'cgroup2' and where != str(_CGROUP):
            with contextlib.suppress(OSError):
                if 'cpu' not in controllers.read_text().split():
                    subprocess.run(('umount', '-l', where), check=False)


def descendants(pid: int) -> list[int]:
    """Return the IDs of all processes below one, in one pass over /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path('/proc', entry, 'stat').read_text()
                parent = int(stat.rpartition(')')[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    pids: list[int] = []
    parents = [pid]
    while parents:
        below = children.get(parents.pop(), [])
        pids += below
        parents += below
    return pids


def guest_cgroups(pid: int) -> set[Path]:
    """Return the directories that libvirt made for one guest.

    These are the directories of all controllers, on cgroup v1 and v2. The lab
    moves the emulator threads, and with them the process, to another group of
    the CPU controller, so the process's path in that controller lacks the
    guest's group.
    """
    groups = set()
    hierarchies = [_CGROUP, *(p for p in _CGROUP.iterdir() if p.is_dir())]
    with contextlib.suppress(OSError):
        for line in Path(f'/proc/{pid}/cgroup').read_text().splitlines():
            path = line.split(':', 2)[2]
            guest = [
                part for part in path.split('/') if part.startswith('qemu-')
            ]
            if not guest:
                continue
            group = path[: path.index(guest[0]) + len(guest[0])].lstrip('/')
            groups |= {
                hierarchy / group
                for hierarchy in hierarchies
                if (hierarchy / group).is_dir()
            }
    return groups


def end_descendants() -> set[Path]:
    """Kill and reap all processes below this one.

    :returns: the control groups of the guests among those processes.
    """
    groups: set[Path] = set()
    deadline = time.monotonic() + 20
    while (alive := descendants(os.getpid())) and (
        time.monotonic() < deadline
    ):
        for pid in alive:
            groups |= guest_cgroups(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return groups


def remove_cgroup(top: Path) -> None:
    """Remove an empty control group with the groups below it."""
    for where, _, _ in os.walk(top, topdown=False):
        for _ in range(50):
            try:
                os.rmdir(where)
                break
            except FileNotFoundError:
                break
            except OSError:  # a thread of the group is still exiting
                time.sleep(0.02)


def clean_up(kind: str, *words: str) -> None:
    """Remove or reset one thing that an owner made and did not clean up.

    Nothing happens if it is gone already.

    :param kind: ``bridge``, ``group``, ``value`` or ``directory``.
    :param words: the bridge's name; the path of a control group, which its
        processes may still be leaving; the path of a file, the value that the
        owner wrote there and the value that it had read before; the path of a
        directory.
    """
    if kind == 'bridge':
        subprocess.run(
            ('ip', 'link', 'del', *words), capture_output=True, check=False
        )
    elif kind == 'group':
        group = Path(words[0])
        deadline = time.monotonic() + _AGENT_END_S
        while group.is_dir() and time.monotonic() < deadline:
            remove_cgroup(group)
    elif kind == 'value':
        path, written, original = Path(words[0]), *words[1:]
        # libvirt removes a group with its last guest.
        with contextlib.suppress(OSError):
            if path.read_text().strip() == written:
                path.write_text(original)
    elif kind == 'directory':
        shutil.rmtree(words[0], ignore_errors=True)


class Supervisor:
    """Carries out orders from standard input and reaps children.

    :param root: directory of the private libvirtd.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.leave = False
        self._to_clean_up: list[list[str]] = []

    def run(self) -> None:
        """Serve the owner until it exits."""
        signal.signal(signal.SIGCHLD, self._reap)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        owner = os.getppid()
        print('ready', flush=True)
        pending = b''
        while not self.leave and os.getppid() == owner:
            # A forked child of the owner may hold the pipe open; therefore
            # the parent is checked once a second.
            if not select.select([0], [], [], 1.0)[0]:
                continue
            data = os.read(0, 1024)
            if not data:
                break
            pending += data
            *lines, pending = pending.split(b'\n')
            for line in lines:
                if line == b'start':
                    print(self._start(), flush=True)
                else:
                    self.note(line)
        self._clean_up()

    def note(self, line: bytes) -> None:
        """Note something to clean up at the end, or forget it (``done``)."""
        kind, *words = json.loads(line)
        if kind == 'done':
            self._to_clean_up.remove(words)
        else:
            self._to_clean_up.append([kind, *words])

    def _start(self) -> int:
        log = os.open(
            self.root / LOG,
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            0o644,
        )
        try:
            return os.posix_spawnp(
                'libvirtd',
                (
                    'libvirtd',
                    '--config',
                    str(self.root / 'libvirtd.conf'),
                    '--pid-file',
                    str(self.root / 'libvirtd.pid'),
                ),
                os.environ,
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, '/dev/null', os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ),
                setsigdef=(signal.SIGINT, signal.SIGHUP),
            )
        finally:
            os.close(log)

    def _reap(self, *_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _on_term(self, *_: object) -> None:
        self.leave = True

    def _clean_up(self) -> None:
        for group in sorted(end_descendants()):
            remove_cgroup(group)
        # An owner that exited in good order has cleaned up already.
        for words in reversed(self._to_clean_up):
            clean_up(*words)


def main(argv: list[str] | None = None) -> int:
    """Run a supervisor; the argument is the root directory."""
    root = Path((argv or sys.argv[1:])[0])
    try:
        enter_namespace(root)
    except SupervisorError as error:
        print(f'error {error}', flush=True)
        return 1
    Supervisor(root).run()
    return 0


if __name__ == '__main__':
    sys.exit(main())
