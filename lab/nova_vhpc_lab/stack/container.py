# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A container that Nova and libvirt take for a separate host.

It has its own processes, host name, control groups and directories like
``/run/libvirt`` and ``/etc/libvirt``, and a network namespace that was made
for it. All other files are the machine's.

The container's first process is ``python -m nova_vhpc_lab.stack.container
ROOT NAME NAMESPACE``. It receives the orders of
:class:`nova_vhpc_lab.stack.guard.Guard`, starts daemons in the container,
and ends them all when its standard input is closed.
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

from nova_vhpc_lab.stack import guard, relay
from nova_vhpc_lab.testbed import supervisor

_CGROUP = Path('/sys/fs/cgroup')
_CLONE_NEWNS = 0x00020000
_CLONE_NEWCGROUP = 0x02000000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWPID = 0x20000000
_PR_SET_PDEATHSIG = 1


def hierarchies() -> list[Path]:
    """Return the mount points of all cgroup file systems, v1 and v2."""
    mounts = Path('/proc/self/mounts').read_text().splitlines()
    return [
        Path(mount_point)
        for _, mount_point, kind, *_ in map(str.split, mounts)
        if kind in ('cgroup', 'cgroup2')
    ]


def _join(group: Path) -> None:
    """Make a control group and move this process into it."""
    group.mkdir(exist_ok=True)
    for name in ('cpuset.cpus', 'cpuset.mems'):
        file, parent_file = group / name, group.parent / name
        # A new cpuset of cgroup v1 is empty and then accepts no process.
        if (
            parent_file.exists()
            and file.exists()
            and not file.read_text().strip()
        ):
            file.write_text(parent_file.read_text())
    (group / 'cgroup.procs').write_text(str(os.getpid()))


def _mount(*args: str) -> None:
    subprocess.run(('mount', *args), check=True)


def enter(root: Path, name: str, namespace: str) -> None:
    """Create the container; return in its first process.

    The process forks. The outer process waits for the first process of the
    container, removes the control groups and exits.

    :param root: directory of the container's own files.
    :param name: host name, and name of the control groups.
    :param namespace: name of the network namespace.
    """
    groups = [top / name for top in hierarchies()]
    if child := os.fork():
        # Only the container's first process reads standard input.
        os.close(0)
        os.waitpid(child, 0)
        for group in groups:
            supervisor.remove_cgroup(group)
        os._exit(0)
    _die_with_parent()
    for group in groups:
        _join(group)
    _unshare(_CLONE_NEWUTS | _CLONE_NEWPID | _CLONE_NEWCGROUP)
    for group in groups:
        if (group / 'cgroup.subtree_control').exists():
            # In cgroup v2, only a group without children holds processes.
            _join(group / 'init')
    if first := os.fork():
        os.close(0)
        os.waitpid(first, 0)
        os._exit(0)
    _die_with_parent()
    relay.enter(f'/run/netns/{namespace}')
    _unshare(_CLONE_NEWNS)
    _mount('--make-rprivate', '/')
    _mount_sysfs(root)
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
    # os.unshare needs Python 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(kinds):
        number = ctypes.get_errno()
        raise OSError(number, f'unshare: {os.strerror(number)}')


def _mount_sysfs(root: Path) -> None:
    """Mount sysfs with the NICs of this network namespace.

    The control groups, which are mounted below it, stay.
    """
    kept = root / 'cgroup'
    kept.mkdir(parents=True)
    _mount('--rbind', str(_CGROUP), str(kept))
    _mount('-t', 'sysfs', 'sysfs', str(_CGROUP.parents[1]))
    _mount('--rbind', str(kept), str(_CGROUP))
    subprocess.run(('umount', '-l', str(kept)), check=True)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Container(guard.Guard):
    """A container, controlled from outside.

    :param logs: directory of the daemons' logs.
    :param root: directory of the container's own files.
    :param name: host name.
    :param namespace: name of its network namespace.
    """

    def __init__(
        self, logs: Path, root: Path, name: str, namespace: str
    ) -> None:
        super().__init__(logs, (__name__, str(root), name, namespace))


def _outer_pid(proc: int, inner: int) -> int:
    """Return a process's ID outside of the container; 0 if it has ended.

    :param proc: descriptor of the machine's ``/proc``.
    :param inner: process ID in the container.
    """
    for entry in sorted(
        (int(e) for e in os.listdir(proc) if e.isdigit()), reverse=True
    ):
        with contextlib.suppress(OSError):
            descriptor = os.open(f'{entry}/status', os.O_RDONLY, dir_fd=proc)
            with os.fdopen(descriptor) as status:
                for line in status:
                    if line.startswith('NSpid:'):
                        pids = line.split()[1:]
                        if pids[-1] == str(inner) and _is_inside(proc, entry):
                            return entry
    return 0


def _is_inside(proc: int, pid: int) -> bool:
    own_namespace = os.readlink('/proc/self/ns/pid')
    return os.readlink(f'{pid}/ns/pid', dir_fd=proc) == own_namespace


def main() -> None:
    """Run the container's first process."""
    root, name, namespace = Path(sys.argv[1]), *sys.argv[2:4]
    proc = os.open('/proc', os.O_RDONLY | os.O_DIRECTORY)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    enter(root, name, namespace)
    signal.signal(signal.SIGCHLD, guard.reap)
    for line in sys.stdin:
        reply = guard.spawn(json.loads(line))
        if 'pid' in reply:
            reply['pid'] = _outer_pid(proc, reply['pid'])
        print(json.dumps(reply), flush=True)
    supervisor.end_descendants()


if __name__ == '__main__':
    main()
