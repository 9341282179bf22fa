# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Run the programs that build guest images and MPI programs."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from nova_vhpc_lab.testbed import errors

TIMEOUT_S = 300
"""Longest run of a program, in seconds; enough to download a kernel."""


def need(program: str) -> str:
    """Return the path of a program.

    :raises ImageError: the program is not installed.
    """
    path = shutil.which(program)
    if path is None:
        raise errors.ImageError(
            f'{program} is not installed; bindep.txt has the packages that '
            'the lab needs (profile test)'
        )
    return path


def run_tool(
    *command: str,
    cwd: Path | None = None,
    may_fail: bool = False,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program and return what it prints.

    :param command: program and arguments.
    :param cwd: working directory; by default that of this process.
    :param environment: variables beside those of this process.
    :param may_fail: whether to return the output of a failed program, too.
    :raises ImageError: the program is not installed, fails, or does not end
        within :data:`TIMEOUT_S`.
    """
    need(command[0])
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            # Callers parse the output of apt, so it must not be translated.
            # With C.UTF-8 the variable LANGUAGE would still take effect.
            env={**os.environ, **(environment or {}), 'LC_ALL': 'C'},
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
