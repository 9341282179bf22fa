# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read the tick rate of the running kernel."""

import gzip
import os
import re
from collections.abc import Sequence
from pathlib import Path


def tick_hz(files: Sequence[Path] | None = None) -> int | None:
    """Return CONFIG_HZ, the tick rate in Hz; None if it is unknown.

    The kernel otherwise shows user space only USER_HZ, which is always 100.

    :param files: kernel configuration files, plain or ``.gz``; by default
        the files in which distributions keep it.
    """
    if files is None:
        release = os.uname().release
        files = (
            Path('/proc/config.gz'),
            Path(f'/boot/config-{release}'),
            Path(f'/lib/modules/{release}/config'),
        )
    for file in files:
        try:
            data = file.read_bytes()
            text = gzip.decompress(data) if file.suffix == '.gz' else data
        except (OSError, EOFError):
            continue
        match = re.search(rb'^CONFIG_HZ=([0-9]+)$', text, re.MULTILINE)
        if match:
            return int(match.group(1))
    return None
