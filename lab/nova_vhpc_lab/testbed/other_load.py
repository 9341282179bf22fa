# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Measure the CPU time that something else on the machine takes.

A benchmark on a machine that also does other things measures these things.
This process and all of its descendants (libvirtd, the guests, the agent, and
load that a benchmark makes on purpose) are its own; everything else, the
kernel's threads and the hypervisor included, is other load.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

PROC = Path('/proc')

_TICKS_PER_S = os.sysconf('SC_CLK_TCK')

_IDLE, _IOWAIT, _STEAL = 3, 4, 7
"""Columns of a CPU's line of /proc/stat, from 0."""

_PPID, _UTIME, _CSTIME = 1, 11, 14
"""Fields of /proc/PID/stat that follow the command, from 0. Between the last
two stand the system time, and the user time of children that have ended."""


@dataclasses.dataclass(frozen=True, slots=True)
class Counters:
    """Time that some CPUs and some processes have spent so far, in seconds.

    :ivar when_s: monotonic time of the reading.
    :ivar idle_s: time for which the CPUs had nothing to do.
    :ivar steal_s: time for which a hypervisor ran something else on the CPUs.
    :ivar own_s: CPU time of this process and its descendants.
    """

    when_s: float
    idle_s: float
    steal_s: float
    own_s: float


def read(cpus: Iterable[int], pid: int, proc: Path = PROC) -> Counters:
    """Return the counters of now.

    :param cpus: host CPUs; all own processes must be confined to them.
    :param pid: process ID of the process whose descendants are own ones.
    :param proc: directory on which procfs is mounted.
    """
    own = _own_ticks(pid, proc)
    idle = steal = 0
    wanted = {f'cpu{cpu}' for cpu in cpus}
    for line in (proc / 'stat').read_text().splitlines():
        name, *columns = line.split()
        if name in wanted:
            # Idle time is exact where the kernel stops its tick; the columns
            # of busy time are only sampled by the tick.
            idle += int(columns[_IDLE]) + int(columns[_IOWAIT])
            steal += int(columns[_STEAL])
    return Counters(
        time.monotonic(),
        idle / _TICKS_PER_S,
        steal / _TICKS_PER_S,
        own / _TICKS_PER_S,
    )


def _own_ticks(pid: int, proc: Path) -> int:
    """Return the CPU time of a process and its descendants, in ticks.

    Children that have ended are included: their parent counts them.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / 'stat').read_text().rpartition(')')[2].split()
        except OSError:
            # The process has ended since the directory was read.
            continue
        one = int(entry.name)
        parents[one] = int(fields[_PPID])
        ticks[one] = sum(map(int, fields[_UTIME : _CSTIME + 1]))
    children: dict[int, list[int]] = {}
    for one, parent in parents.items():
        children.setdefault(parent, []).append(one)
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        total += ticks.get(one, 0)
        todo += children.get(one, ())
    return total


def cpus_taken(before: Counters, after: Counters, cpu_count: int) -> float:
    """Return how many CPUs something else had on average.

    Kernels differ in whether stolen time counts as CPU time of the process
    that was interrupted. Therefore it is compared with the rest, not added.
    """
    seconds = after.when_s - before.when_s
    idle_s = after.idle_s - before.idle_s
    own_s = after.own_s - before.own_s
    other_s = cpu_count * seconds - idle_s - own_s
    return max(0.0, other_s, after.steal_s - before.steal_s) / seconds


class OtherLoadWatch:
    """Measures the other load during each measurement of a benchmark.

    :param cpus: host CPUs on which everything is measured.
    """

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self._cpus = cpus
        self._worst = 0.0

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Measure the other load in a ``with`` block."""
        before = read(self._cpus, os.getpid())
        yield
        after = read(self._cpus, os.getpid())
        taken = cpus_taken(before, after, len(self._cpus))
        self._worst = max(self._worst, taken)

    def take(self) -> float:
        """Return the greatest other load since the last call, in CPUs."""
        worst, self._worst = self._worst, 0.0
        return worst


@contextlib.contextmanager
def confined(cpus: tuple[int, ...]) -> Iterator[None]:
    """Confine this thread, and all that it starts, to CPUs in a block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
