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

"""What a probe is: opened per VM, read once per tick, cheap.

A probe class is made once per agent; ``check`` says whether the host can
serve it. ``attach`` opens what it needs of one VM and returns a reader that
keeps its files open; ``read`` is called once per tick by the tick's thread.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

WAIT = 'wait'
"""Runnable, but another task runs (run-queue delay)."""
THROTTLE = 'throttle'
"""Held back by the quota."""
SPIN = 'spin'
"""On a CPU, but only waiting for a sibling."""


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """What probes may read from.

    :ivar connection: gives the libvirt connection, or raises libvirtError.
    """

    proc_root: str = '/proc'
    sys_root: str = '/sys'
    cgroup_root: str = '/sys/fs/cgroup'
    period_s: float = 0.1
    connection: Callable[[], Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One VM, as the host sees it.

    :ivar tids: thread ids of the vCPUs, in vCPU order.
    :ivar vcpu_groups: their cgroups, where each has its own.
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
    """Of one VM since the last read; microseconds, not scaled.

    :ivar latency_us: mean over the vCPUs.
    """

    latency_us: float
    run_us: tuple[float, ...] | None = None
    wait_us: tuple[float, ...] | None = None
    runs: tuple[int, ...] | None = None


class SyncReader(Protocol):
    """Reads one VM's synchronisation latency."""

    def read(self) -> SyncReading | None:
        """Since the last call; None on the first, or without the VM."""

    def close(self) -> None:
        """Give back files."""


class IoReader(Protocol):
    """Reads one VM's I/O events."""

    def read(self) -> float | None:
        """Events since the last call; None on the first, or without it."""

    def close(self) -> None:
        """Give back files."""


class SyncProbe(Protocol):
    """A source of synchronisation latency.

    :cvar covers: what it measures, of WAIT, THROTTLE and SPIN. Two probes
        that cover the same are never added up.
    """

    covers: frozenset[str]

    def __init__(self, host: Host) -> None: ...

    def check(self) -> str | None:
        """Why this host cannot serve it; None if it can."""

    def attach(self, target: Target) -> SyncReader | None:
        """Open a VM; None if this VM has nothing to read."""


class IoProbe(Protocol):
    """A source of I/O events."""

    def __init__(self, host: Host) -> None: ...

    def check(self) -> str | None:
        """Why this host cannot serve it; None if it can."""

    def attach(self, target: Target) -> IoReader | None:
        """Open a VM; None if this VM has nothing to read."""


class KeptFiles:
    """Files that stay open and are read again from their start.

    :raises OSError: when one cannot be opened; none stays open then.
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
        # Made once: thousands of reads per second take these.
        self._sizes = (size,) * len(self._descriptors)
        self._offsets = (0,) * len(self._descriptors)

    def read(self) -> list[bytes]:
        """Contents of each, at most ``size`` bytes. Raises OSError."""
        return list(
            map(os.pread, self._descriptors, self._sizes, self._offsets)
        )

    def read_joined(self) -> bytes:
        """Contents of all, one after another. Raises OSError."""
        return b''.join(
            map(os.pread, self._descriptors, self._sizes, self._offsets)
        )

    def __len__(self) -> int:
        return len(self._descriptors)

    def __del__(self) -> None:
        """Of a VM that came and went between two ticks, nobody closes them."""
        self.close()

    def close(self) -> None:
        """Close all."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)
