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


"""A host of its own on this machine, as far as Nova and libvirt can tell.

Own processes, own host name, own control groups and own ``/run/libvirt``,
``/etc/libvirt`` and so on; the network and all other files are shared.

``python -m ... ROOT NAME`` is its first process: it takes the orders of
:class:`nova_vhpc.tests.stack.guard.Guard`, starts daemons inside, and ends
them all when standard input closes.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from nova_vhpc.testbed import supervisor
from nova_vhpc.tests.stack import guard

_CGROUP = Path('/sys/fs/cgroup')
_CLONE_NEWNS = 0x00020000
_CLONE_NEWCGROUP = 0x02000000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWPID = 0x20000000
_PR_SET_PDEATHSIG = 1


def hierarchies() -> list[Path]:
    """Mount points of all cgroup file systems, v1 and v2."""
    found = []
    for line in Path('/proc/self/mounts').read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in ('cgroup', 'cgroup2'):
            found.append(Path(where))
    return found


def _join(group: Path) -> None:
    """Make a control group and enter it."""
    group.mkdir(exist_ok=True)
    for name in ('cpuset.cpus', 'cpuset.mems'):
        own, above = group / name, group.parent / name
        # A cpuset of cgroup v1 begins empty, and takes no process then.
        if above.exists() and own.exists() and not own.read_text().strip():
            own.write_text(above.read_text())
    (group / 'cgroup.procs').write_text(str(os.getpid()))


def _mount(*args: str) -> None:
    subprocess.run(('mount', *args), check=True)


def enter(root: Path, name: str) -> None:
    """Leave this machine for a host of its own; forks.

    Returns in its first process only; the outer one waits for that and
    removes the control groups.
    """
    groups = [top / name for top in hierarchies()]
    if between := os.fork():
        # The child alone is to see the end of standard input.
        os.close(0)
        os.waitpid(between, 0)
        for group in groups:
            supervisor.remove_cgroup(group)
        os._exit(0)
    _die_with_parent()
    for group in groups:
        _join(group)
    _unshare(_CLONE_NEWUTS | _CLONE_NEWPID | _CLONE_NEWCGROUP)
    for group in groups:
        if (group / 'cgroup.subtree_control').exists():
            # Of cgroup v2: none but a leaf may hold processes.
            _join(group / 'init')
    if first := os.fork():
        os.close(0)
        os.waitpid(first, 0)
        os._exit(0)
    _die_with_parent()
    _unshare(_CLONE_NEWNS)
    _mount('--make-rprivate', '/')
    for group in groups:
        _mount('--bind', str(group), str(group.parent))
    for below, target in supervisor.REDIRECTED.items():
        source = root / below
        source.mkdir(parents=True, exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        _mount('--bind', str(source.resolve()), target)
    supervisor.hide_useless_cgroup2()
    _mount('-t', 'proc', 'proc', '/proc')
    socket.sethostname(name)


def _unshare(kinds: int) -> None:
    # os.unshare came with Python 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(kinds):
        number = ctypes.get_errno()
        raise OSError(number, f'unshare: {os.strerror(number)}')


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Container(guard.Guard):
    """The owner's end.

    :param root: libvirt's directories are below it.
    :param name: its host name.
    """

    def __init__(self, logs: Path, root: Path, name: str) -> None:
        super().__init__(logs, (__name__, str(root), name))


def _outer_pid(proc: int, inner: int) -> int:
    """What the machine calls one of our processes.

    :param proc: descriptor of the machine's ``/proc``.
    """
    wanted = str(inner)
    for entry in sorted(
        (int(e) for e in os.listdir(proc) if e.isdigit()), reverse=True
    ):
        with contextlib.suppress(OSError):
            where = os.open(f'{entry}/status', os.O_RDONLY, dir_fd=proc)
            with os.fdopen(where) as status:
                for line in status:
                    if line.startswith('NSpid:'):
                        pids = line.split()[1:]
                        if pids[-1] == wanted and _ours(proc, entry):
                            return entry
    return 0


def _ours(proc: int, pid: int) -> bool:
    here = os.readlink('/proc/self/ns/pid')
    return os.readlink(f'{pid}/ns/pid', dir_fd=proc) == here


def main() -> None:
    """The first process of the host."""
    root, name = Path(sys.argv[1]), sys.argv[2]
    proc = os.open('/proc', os.O_RDONLY | os.O_DIRECTORY)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    enter(root, name)
    signal.signal(signal.SIGCHLD, guard.reap)
    for line in sys.stdin:
        answer = guard.spawn(json.loads(line))
        if 'pid' in answer:
            answer['pid'] = _outer_pid(proc, answer['pid'])
        print(json.dumps(answer), flush=True)
    supervisor.end_descendants()


if __name__ == '__main__':
    main()
