# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The interface of probes, which measure guests in every tick.

The agent makes one instance of each probe class; ``check`` says whether the
probe can work on this host. ``attach`` opens the files of one guest and
returns a reader that keeps them open. The tick's thread calls the reader's
``read`` once per tick, so it must be cheap and must not block.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

WAIT = 'wait'
"""Runnable, but another task runs (run-queue delay)."""
THROTTLE = 'throttle'
"""Held back by the quota."""


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """The sources that probes may read."""

    proc_root: str = '/proc'
    sys_root: str = '/sys'
    cgroup_root: str = '/sys/fs/cgroup'


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One guest, as the host sees it.

    :ivar tids: thread IDs of the vCPUs, in vCPU order.
    :ivar vcpu_groups: cgroups of the vCPUs, if each has its own.
    :ivar block_group: cgroup with the domain's own block accounting.
    """

    uuid: str
    name: str
    pid: int
    tids: tuple[int, ...] = ()
    vcpu_groups: tuple[pathlib.Path, ...] = ()
    block_group: pathlib.Path | None = None
    taps: tuple[str, ...] = ()


class SyncReading(NamedTuple):
    """Times of one guest since the last read, in microseconds, not scaled.

    :ivar latency_us: synchronisation latency, mean over the vCPUs.
    :ivar run_us: CPU time of each vCPU.
    :ivar wait_us: waiting time of each vCPU.
    :ivar runs: number of times that each vCPU got a CPU.
    """

    latency_us: float
    run_us: tuple[float, ...] | None = None
    wait_us: tuple[float, ...] | None = None
    runs: tuple[int, ...] | None = None


class VcpuCounters(NamedTuple):
    """What one vCPU's thread did since it was started.

    :ivar run_ns: CPU time, in nanoseconds.
    :ivar wait_ns: time in which it was runnable without running, in
        nanoseconds.
    :ivar runs: number of times that it got a CPU.
    """

    run_ns: int
    wait_ns: int
    runs: int


@runtime_checkable
class CountingReader(Protocol):
    """A reader that also knows the counters behind its differences."""

    def counters(self) -> Sequence[VcpuCounters]:
        """Return the counters of each vCPU; empty if they are unknown.

        Called by other threads than the tick's.
        """


class SyncReader(Protocol):
    """Reads one VM's synchronisation latency."""

    def read(self) -> SyncReading | None:
        """Return the times since the last call; None if they are unknown.

        They are unknown at the first call, and once the guest is gone.
        """

    def close(self) -> None:
        """Close all files."""


class IoReader(Protocol):
    """Reads one VM's I/O events."""

    def read(self) -> float | None:
        """Return the events since the last call; None if they are unknown.

        They are unknown at the first call, and once the guest is gone.
        """

    def close(self) -> None:
        """Close all files."""


class SyncProbe(Protocol):
    """A source of synchronisation latency.

    :cvar covers: the parts of the latency that the probe measures, of WAIT,
        THROTTLE and SPIN. Probes that cover the same are never added up.
    """

    covers: frozenset[str]

    def __init__(self, host: Host) -> None: ...

    def check(self) -> str | None:
        """Return why the probe cannot work on this host; None if it can."""

    def attach(self, target: Target) -> SyncReader | None:
        """Return a reader of a guest; None if there is nothing to read."""


class IoProbe(Protocol):
    """A source of I/O events."""

    def __init__(self, host: Host) -> None: ...

    def check(self) -> str | None:
        """Return why the probe cannot work on this host; None if it can."""

    def attach(self, target: Target) -> IoReader | None:
        """Return a reader of a guest; None if there is nothing to read."""


class KeptFiles:
    """Files that stay open and are read again from their start.

    :param size: largest number of bytes to read of each file.
    :raises OSError: a file cannot be opened; all others are closed then.
    """

    __slots__ = ('_descriptors', '_offsets', '_sizes')

    def __init__(self, paths: Iterable[pathlib.Path], size: int) -> None:
        self._descriptors: list[int] = []
        try:
            for path in paths:
                self._descriptors.append(
                    os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                )
        except OSError:
            self.close()
            raise
        # Made here, because thousands of reads per second use them.
        self._sizes = (size,) * len(self._descriptors)
        self._offsets = (0,) * len(self._descriptors)

    def read(self) -> list[bytes]:
        """Return the contents of each file, at most ``size`` bytes.

        :raises OSError: a file cannot be read.
        """
        return list(
            map(os.pread, self._descriptors, self._sizes, self._offsets)
        )

    def read_joined(self) -> bytes:
        """Return the joined contents of all files.

        :raises OSError: a file cannot be read.
        """
        return b''.join(
            map(os.pread, self._descriptors, self._sizes, self._offsets)
        )

    def __len__(self) -> int:
        return len(self._descriptors)

    def __del__(self) -> None:
        """Close the files if the guest was never in a tick."""
        self.close()

    def close(self) -> None:
        """Close all files."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)
