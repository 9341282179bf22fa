# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Block requests of a VM, from its cgroup or from its process.

Measures: requests of the guest's disks to the host's block devices, from the
domain's cgroup: v2 ``io.stat`` (rios, wios), v1
``blkio.throttle.io_serviced``. Without such a cgroup, the bytes read and
written in ``/proc/PID/io`` are divided by 4 KiB, the smallest request. Units:
requests. Cost: one pread per VM and tick, 2 to 5 us. Blind to: requests that
the host's page cache serves; remote disks that QEMU reaches itself (rbd),
whose packets do not pass a tap; on v1, buffered writes. ``/proc/PID/io``
counts a large request many times and needs CAP_SYS_PTRACE.
"""

import contextlib
import pathlib
import re

from nova_vhpc.agent.probes import base

PAGE_BYTES = 4096

# No more digits than the kernel's 64 bits have.
_V2 = re.compile(rb'[rw]ios=(\d{1,20})\b')
_V1 = re.compile(rb'^\S+ (?:Read|Write) (\d{1,20})$', re.MULTILINE)
_PROC = re.compile(rb'\n(?:read|write)_bytes: (\d{1,20})\b')


class BlockProbe:
    """The probe of disk I/O events."""

    def __init__(self, host: base.Host) -> None:
        self._proc = pathlib.Path(host.proc_root)

    def check(self) -> str | None:
        """Return why the kernel has no I/O accounting, or None."""
        path = self._proc / 'self' / 'io'
        if not path.exists():
            return f'{path}: not there; kernel without I/O accounting'
        return None

    def attach(self, target: base.Target) -> 'BlockReader | None':
        """Open the most exact source that the guest has."""
        sources: list[tuple[pathlib.Path, re.Pattern[bytes], int]] = []
        if target.block_group is not None:
            sources.append((target.block_group / 'io.stat', _V2, 1))
            sources.append(
                (target.block_group / 'blkio.throttle.io_serviced', _V1, 1)
            )
        sources.append(
            (self._proc / str(target.pid) / 'io', _PROC, PAGE_BYTES)
        )
        for path, pattern, divisor in sources:
            with contextlib.suppress(OSError):
                return BlockReader(
                    base.KeptFiles([path], 16384), pattern, divisor
                )
        return None


class BlockReader:
    """Reads the increase of the sum of all numbers that a pattern finds."""

    __slots__ = ('_divisor', '_files', '_last', '_pattern', '_text')

    def __init__(
        self, files: base.KeptFiles, pattern: re.Pattern[bytes], divisor: int
    ) -> None:
        self._files = files
        self._pattern = pattern
        self._divisor = divisor
        self._last: int | None = None
        self._text = b''

    def read(self) -> float | None:
        """Return the increase since the last call; None if it is unknown."""
        try:
            text = self._files.read()[0]
            if text == self._text and self._last is not None:
                return 0.0
        except (OSError, IndexError):
            self._last = None
            return None
        self._text = text
        now = sum(map(int, self._pattern.findall(text)))
        last, self._last = self._last, now
        return None if last is None else (now - last) / self._divisor

    def close(self) -> None:
        """Close the file."""
        self._files.close()
