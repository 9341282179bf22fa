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


"""A parent for a private libvirtd: its namespace, its orphans, its end.

Run as ``python -m nova_vhpc.testbed.supervisor ROOT``, by
:class:`nova_vhpc.testbed.libvirtd.PrivateLibvirtd` only. It

* gets a mount namespace of its own, in which libvirt's compiled-in
  directories are directories below ROOT, so that any number of libvirtds
  run side by side and none touches the machine's;
* reaps guests at once (``PR_SET_CHILD_SUBREAPER``): where pid 1 is slow
  to reap, each destroy of a guest takes 1.6 s instead of 0.2 s;
* ends everything that it started when its owner closes standard input,
  however the owner ends, and undoes what the owner has told it of.

Standard input takes the line ``start``; the answer is the pid of the new
libvirtd. A JSON list names something to clean up at the end, see
:func:`clean_up`; with ``done`` before it, the owner has done so already.
End of file, or SIGTERM, is the order to clean up and leave.
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
"""Directory below ROOT -> the one that libvirt has compiled in."""

LOG = 'libvirtd.out'
"""File in ROOT with what libvirtd says, its log included: libvirt takes no
blank in the path of a log file of its own."""


class SupervisorError(Exception):
    """The namespace or the daemon could not be set up."""


def become_subreaper() -> None:
    """Orphans below this process become its children, not pid 1's."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SupervisorError('cannot become a subreaper')


def enter_namespace(root: Path) -> None:
    """Redirect libvirt's directories to ROOT, for this process on.

    :raises SupervisorError: without the privilege (root is needed).
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
    # libvirt prefers a cgroup2 mount for cpuacct even where the CPU
    # controllers are all on v1; guests then fail to start.
    for line in Path('/proc/self/mounts').read_text().splitlines():
        _, where, kind, *_ = line.split()
        controllers = Path(where, 'cgroup.controllers')
        if kind == 'cgroup2' and where != str(_CGROUP):
            with contextlib.suppress(OSError):
                if 'cpu' not in controllers.read_text().split():
                    subprocess.run(('umount', '-l', where), check=False)


def descendants(pid: int) -> list[int]:
    """All processes below one, from a single pass over /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path('/proc', entry, 'stat').read_text()
                parent = int(stat.rpartition(')')[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def guest_cgroups(pid: int) -> set[Path]:
    """Directories that libvirt made for one guest, on cgroup v1 and v2.

    In whatever controller: the lab moves the emulator threads, and so the
    process, to other groups of the CPU controller.
    """
    found = set()
    hierarchies = [_CGROUP, *(p for p in _CGROUP.iterdir() if p.is_dir())]
    with contextlib.suppress(OSError):
        for line in Path(f'/proc/{pid}/cgroup').read_text().splitlines():
            path = line.split(':', 2)[2]
            guest = [
                part for part in path.split('/') if part.startswith('qemu-')
            ]
            if not guest:
                continue
            upto = path[: path.index(guest[0]) + len(guest[0])].lstrip('/')
            found |= {
                hierarchy / upto
                for hierarchy in hierarchies
                if (hierarchy / upto).is_dir()
            }
    return found


def end_descendants() -> set[Path]:
    """Kill everything below this process, and reap it.

    :returns: the control groups of the guests among them.
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
    """Remove an emptied control group with those below it."""
    for where, _, _ in os.walk(top, topdown=False):
        for _ in range(50):
            try:
                os.rmdir(where)
                break
            except FileNotFoundError:
                break
            except OSError:  # a thread of it is still on its way out
                time.sleep(0.02)


def clean_up(kind: str, *words: str) -> None:
    """Undo what an owner made that could not do it itself; else nothing.

    :param kind: ``bridge`` and its name; ``group``, a control group that
        others may be leaving yet; ``value``, a file, what the owner wrote
        and what it had read; ``directory`` and its path.
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
        path, ours, before = Path(words[0]), *words[1:]
        # The group may have gone with its last guest.
        with contextlib.suppress(OSError):
            if path.read_text().strip() == ours:
                path.write_text(before)
    elif kind == 'directory':
        shutil.rmtree(words[0], ignore_errors=True)


class Supervisor:
    """The loop: orders on standard input, and no zombie left."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.leave = False
        self._made: list[list[str]] = []

    def run(self) -> None:
        """Serve the owner until it goes away."""
        signal.signal(signal.SIGCHLD, self._reap)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        owner = os.getppid()
        print('ready', flush=True)
        pending = b''
        while not self.leave and os.getppid() == owner:
            # A forked child of the owner may hold the pipe open, hence
            # the look at the parent once a second.
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
        """Something to undo at the end; or no more, once it is done."""
        kind, *words = json.loads(line)
        if kind == 'done':
            self._made.remove(words)
        else:
            self._made.append([kind, *words])

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
        # An owner that ended in good order has undone them already.
        for words in reversed(self._made):
            clean_up(*words)


def main(argv: list[str] | None = None) -> int:
    """Entry: one argument, the root directory."""
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
