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

"""Run-queue delay of the vCPU threads, from ``/proc/PID/task/TID/schedstat``.

Measures: how long each vCPU thread was runnable without running. Checked on
Linux 6.18: the kernel counts time held back by a quota in it, too, so it
covers WAIT and THROTTLE. Units: nanoseconds. Cost: one pread of a kept-open
file per vCPU and tick, about 1 us, and what :mod:`~.starvation` needs for
waits that have not ended. Blind to: spinning (a vCPU that burns its slice
waiting for a sibling looks busy), and to steal above this host if the host
itself is a VM. Needs CONFIG_SCHED_INFO, which distributions
have; no capability, the file is readable for all.
"""

import operator
import pathlib
import time

from nova_vhpc.agent.probes import base, starvation


class SchedstatProbe:
    """The first choice: cheap, complete, per vCPU."""

    covers = frozenset({base.WAIT, base.THROTTLE})

    def __init__(self, host: base.Host) -> None:
        self._proc = pathlib.Path(host.proc_root)

    def check(self) -> str | None:
        """Whether the kernel keeps schedstat."""
        path = self._proc / 'self' / 'schedstat'
        try:
            fields = path.read_text().split()
        except OSError as error:
            return f'{path}: {error.strerror}'
        if len(fields) != 3 or not all(field.isdigit() for field in fields):
            return f'{path}: not three numbers'
        if fields[2] == '0':
            return f'{path}: stays zero; kernel without scheduler statistics'
        return None

    def attach(self, target: base.Target) -> 'SchedstatReader | None':
        """Open the files of all vCPU threads."""
        if not target.tids:
            return None
        task = self._proc / str(target.pid) / 'task'
        try:
            return SchedstatReader(
                base.KeptFiles(
                    (task / str(tid) / 'schedstat' for tid in target.tids), 96
                ),
                starvation.Starvation(
                    [task / str(tid) / 'stat' for tid in target.tids]
                ),
            )
        except OSError:
            return None


class SchedstatReader:
    """Differences of run, wait and switch counters."""

    __slots__ = (
        '_files',
        '_last',
        '_nothing',
        '_starvation',
        '_texts',
        '_vcpus',
    )

    def __init__(
        self, files: base.KeptFiles, starving: starvation.Starvation
    ) -> None:
        self._files = files
        self._starvation = starving
        self._vcpus = vcpus = len(files)
        self._last: list[int] | None = None
        self._texts: bytes = b''
        zeros = (0.0,) * vcpus
        self._nothing = base.SyncReading(0.0, zeros, zeros, (0,) * vcpus)

    def read(self) -> base.SyncReading | None:
        """One pread per vCPU, one parse for all."""
        try:
            texts = self._files.read_joined()
            due = self._starvation.due()
            if texts == self._texts and self._last is not None and not due:
                # All asleep since the last tick: nothing to parse.
                return self._nothing
            now = list(map(int, texts.split()))
        except (OSError, ValueError):
            self._last = None
            self._starvation.clear()
            return None
        self._texts = texts
        last, self._last = self._last, now
        vcpus = self._vcpus
        if last is None or len(now) != 3 * vcpus != 0:
            return None
        delta = list(map(operator.sub, now, last))
        wait = delta[1::3]
        if due:
            ran = list(map(operator.or_, delta[::3], delta[2::3]))
            self._starvation.correct(ran, wait, time.monotonic_ns())
        return base.SyncReading(
            sum(wait) / (1000 * vcpus),
            tuple([run / 1000 for run in delta[::3]]),
            tuple([one / 1000 for one in wait]),
            tuple(delta[2::3]),
        )

    def close(self) -> None:
        """Give back the files."""
        self._files.close()
        self._starvation.clear()
