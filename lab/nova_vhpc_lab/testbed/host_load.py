# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Put load on the host that comes from no guest."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_PROGRAM = 'while True: pass'


@contextlib.contextmanager
def busy(cpu: int, group: Path | None = None) -> Iterator[int]:
    """Keep one CPU busy in a ``with`` block; return the process ID.

    :param cpu: host CPU.
    :param group: control group of the process; None for this process's.
    """
    # If this process is killed, the load ends with it.
    process = subprocess.Popen(
        (
            *('setpriv', '--pdeathsig', 'KILL', '--'),
            *('taskset', '-c', str(cpu)),
            *(sys.executable, '-c', _PROGRAM),
        )
    )
    try:
        if group is not None:
            (group / 'cgroup.procs').write_text(str(process.pid))
        yield process.pid
    finally:
        process.kill()
        process.wait()
