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
