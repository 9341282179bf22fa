# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Time held back by the quota, from the vCPUs' cgroup ``cpu.stat``.

Measures: how long the quota kept each vCPU from running (THROTTLE only).
Units: cgroup v1 ``throttled_time`` in nanoseconds, v2 ``throttled_usec`` in
microseconds. Cost: one pread per vCPU and tick, about 3 us. Blind to:
waiting for a CPU that another task has. schedstat counts both, so this probe
is used only where schedstat is missing. Needs the ``vcpuN`` groups that
libvirt makes if it can use the cpu controller.
"""

import pathlib
import re

from nova_vhpc.agent.probes import base
from nova_vhpc.linux import cgroup

_THROTTLED = re.compile(
    # No more digits than the kernel's 64 bits have.
    rb'^throttled_(time|usec) (\d{1,20})$',
    re.MULTILINE,
)


class CpuStatProbe:
    """The probe of quota throttling, for cgroup v1 and v2."""

    covers = frozenset({base.THROTTLE})

    def __init__(self, host: base.Host) -> None:
        self._cgroup = pathlib.Path(host.cgroup_root)

    def check(self) -> str | None:
        """Return why there is no cpu controller, or None."""
        if 'cpu' in cgroup.controllers(self._cgroup):
            return None
        return f'{self._cgroup}: no cpu controller, neither v1 nor v2'

    def attach(self, target: base.Target) -> 'CpuStatReader | None':
        """Open ``cpu.stat`` of each vCPU's group."""
        if not target.vcpu_groups:
            return None
        try:
            return CpuStatReader(
                base.KeptFiles(
                    (group / 'cpu.stat' for group in target.vcpu_groups), 1024
                )
            )
        except OSError:
            return None


def throttled_us(text: bytes) -> float:
    """Return the throttled time in one ``cpu.stat``, in microseconds.

    :raises ValueError: the text has no throttled time.
    """
    match = _THROTTLED.search(text)
    if match is None:
        raise ValueError('cpu.stat without throttled time')
    value = int(match[2])
    return value / 1000 if match[1] == b'time' else float(value)


class CpuStatReader:
    """Reads the increase of each vCPU's throttled time."""

    __slots__ = ('_files', '_last')

    def __init__(self, files: base.KeptFiles) -> None:
        self._files = files
        self._last: list[float] | None = None

    def read(self) -> base.SyncReading | None:
        """Return the increase since the last call; None if it is unknown."""
        try:
            now = [throttled_us(text) for text in self._files.read()]
        except (OSError, ValueError):
            self._last = None
            return None
        last, self._last = self._last, now
        if last is None or not now:
            return None
        wait = tuple([new - old for new, old in zip(now, last, strict=True)])
        return base.SyncReading(sum(wait) / len(wait), None, wait, None)

    def close(self) -> None:
        """Close all files."""
        self._files.close()
