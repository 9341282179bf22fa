# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tell by its control groups which domain a process belongs to.

Any local user can start a process with the name and the arguments of a QEMU.
Only root can put a process into the groups that libvirt makes for a domain,
and their names begin with libvirt's ID of the domain.
"""

import os
import pathlib
import re

from nova_vhpc.linux import cgroup

NAME = re.compile(r'(?:machine-)?qemu(?:-|\\x2d)(\d{1,10})(?:-|\\x2d)')
"""Begin of the name of a domain's group; systemd escapes the hyphens."""

_PARENTS = ('machine', 'machine.slice')
"""Groups, at the top of the hierarchy, in which libvirt makes a domain's."""


def domain_id(text: str, root: pathlib.Path) -> int | None:
    """Return the ID of the domain in whose groups a process is.

    :param text: ``/proc/PID/cgroup`` of the process.
    :param root: where the cgroup file systems are mounted.
    :returns: None if it is in no domain's group, or if a user other than
        root, or the agent's own, made the group.
    """
    for line in text.splitlines():
        _, _, rest = line.partition(':')
        controllers, _, path = rest.partition(':')
        # systemd leaves a part of its own v1 hierarchy to users.
        if controllers.startswith('name='):
            continue
        parts = path.split('/')
        for number, part in enumerate(parts, 1):
            match = NAME.match(part)
            if match and _is_trusted(root, controllers, parts[:number]):
                return int(match.group(1))
    return None


def _is_trusted(
    root: pathlib.Path, controllers: str, parts: list[str]
) -> bool:
    """Return whether no ordinary user can have made a group.

    :param parts: path of the group, from the root of the hierarchy.
    """
    path = '/'.join(parts)
    if controllers:
        mounts = [root / controllers]
        mounts += [root / controller for controller in controllers.split(',')]
    else:
        mounts = [root, root / 'unified']
    for mount in mounts:
        try:
            owner = cgroup.locate(mount, path).stat().st_uid
        except (OSError, ValueError):
            # ValueError: not even a path, as with a NUL in it.
            continue
        return owner in (0, os.geteuid())
    # Not mounted, as in some containers. Only root makes groups at the top.
    named = [part for part in parts if part not in ('', '..')]
    return named[0] in _PARENTS or (len(named) == 1 and '..' in parts)
