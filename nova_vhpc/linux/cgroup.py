# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Find the control group controllers of a host and their version.

A *hybrid* host has cgroup v2 at ``unified`` below the mounts of v1, mostly
without any controller that matters here, but it may have some of them.
"""

import contextlib
import glob
import itertools
from pathlib import Path

IDLE_FILE = 'cpu.idle'
"""File that makes a control group idle: its weight is 3 then, any other group
preempts it, and a CPU that runs nothing else counts as idle when the kernel
balances loads (kernel/sched/fair.c: ``sched_idle_cpu``)."""

_MAX_SHARED_PARENTS = 3
"""Most groups above a group that it has in common with this process. A
container of podman shares ``machine.slice`` with domains."""


def controllers(root: Path) -> set[str]:
    """Return the names of the usable controllers, of both versions.

    :param root: where the cgroup file systems are mounted.
    """
    if not root.is_dir():
        return set()
    found = _unified(root)
    if found is not None:
        return found
    # cgroup v1 has one hierarchy per controller, or several joined by a comma.
    return (_unified(root / 'unified') or set()) | {
        name
        for entry in root.iterdir()
        if entry.is_dir()
        for name in entry.name.split(',')
    }


def cpu_is_v2(root: Path) -> bool:
    """Return whether the cpu controller is cgroup v2.

    Its files and the range of its weights differ from v1.

    :param root: where the cgroup file systems are mounted.
    """
    if (root / 'cgroup.controllers').exists():
        return True
    return 'cpu' in (_unified(root / 'unified') or ())


def can_idle(root: Path) -> bool:
    """Return whether control groups can be made idle (Linux 5.15 and later).

    :param root: where the cgroup file systems are mounted.
    """
    mounts = [root, root / 'unified']
    with contextlib.suppress(OSError):
        mounts += [
            entry for entry in root.iterdir() if 'cpu' in entry.name.split(',')
        ]
    return any(
        next(mount.glob(f'*/{IDLE_FILE}'), None) is not None
        for mount in mounts
    )


def locate(mount: Path, path: str) -> Path:
    """Return the directory of a control group.

    In a process with a cgroup namespace of its own, the default of docker and
    podman, the kernel names a group outside of that namespace by ``..`` for
    each level above the namespace's root. The groups that both share are not
    named, so they are looked for where the host's hierarchy is mounted.

    :param mount: where the hierarchy is mounted.
    :param path: the group as ``/proc/PID/cgroup`` names it.
    :returns: the directory; one that does not exist if there is none, or if
        several groups may be meant.
    """
    parts = [part for part in path.split('/') if part]
    named = list(itertools.dropwhile('..'.__eq__, parts))
    if named == parts or not named:
        return mount / '/'.join(parts)
    wanted = glob.escape('/'.join(named))
    for parents in range(_MAX_SHARED_PARENTS + 1):
        found = list(mount.glob('*/' * parents + wanted))
        if len(found) == 1:
            return found[0]
        if found:
            break
    return mount.joinpath(*named)


def _unified(where: Path) -> set[str] | None:
    """Return the controllers of a cgroup2 mount; None if it is none."""
    try:
        return set((where / 'cgroup.controllers').read_text().split())
    except (OSError, UnicodeDecodeError):
        return None
