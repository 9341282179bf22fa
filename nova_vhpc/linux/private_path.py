# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Whether only root, or the agent's own user, can change a file."""

import os
import pathlib
import stat


def problem(path: pathlib.Path) -> str:
    """Return who else can change what stands at a path; empty if nobody can.

    As sshd does for a user's keys, all directories above are checked, too:
    who may rename in one of them can put another directory there. In one
    with the sticky bit, such as ``/tmp``, nobody can rename what is another
    user's. What does not exist is no problem.
    """
    real_path = path.resolve()
    for place in (real_path, *real_path.parents):
        try:
            reason = _reason(place.stat(), is_above=place != real_path)
        except OSError:
            continue
        if reason:
            return (
                f'{place} {reason}; other users could change what the agent '
                f'finds there. Run: chown root {place}; chmod go-w {place}'
            )
    return ''


def file_problem(descriptor: int) -> str:
    """Return who else can change an open file; empty if nobody can."""
    reason = _reason(os.fstat(descriptor), is_above=False)
    return f'it {reason}; look at it and remove it' if reason else ''


def _reason(status: os.stat_result, is_above: bool) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return f'belongs to user {status.st_uid}'
    writers = stat.S_IWOTH
    if status.st_gid != 0:
        writers |= stat.S_IWGRP
    sticky = is_above and status.st_mode & stat.S_ISVTX
    if status.st_mode & writers and not sticky:
        return f'has mode {stat.S_IMODE(status.st_mode):04o}'
    return ''
