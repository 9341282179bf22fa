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


"""The programs that build what the lab's guests boot."""

import os
import shutil
import subprocess
from pathlib import Path

from nova_vhpc.testbed import errors

TIMEOUT_S = 300
"""Enough to download a kernel."""


def need(program: str) -> str:
    """Where a program is.

    :raises ImageError: it is not installed.
    """
    path = shutil.which(program)
    if path is None:
        raise errors.ImageError(
            f'{program} is not installed; the lab needs apt, dpkg, gcc, '
            'cpio, lz4, zstd and busybox-static'
        )
    return path


def run_tool(
    *command: str, cwd: Path | None = None, may_fail: bool = False
) -> str:
    """What a program that builds something prints.

    :param may_fail: what it printed is wanted also where it failed.
    :raises ImageError: it is not installed, fails, or does not end.
    """
    need(command[0])
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            # What apt prints is read. With C.UTF-8, LANGUAGE would count.
            env={**os.environ, 'LC_ALL': 'C'},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise errors.ImageError(
            f'{" ".join(command)} has not ended in {TIMEOUT_S} s'
        ) from None
    if done.returncode != 0 and not may_fail:
        raise errors.ImageError(
            f'{" ".join(command)} failed: {done.stderr.strip()[-500:]}'
        )
    return done.stdout
