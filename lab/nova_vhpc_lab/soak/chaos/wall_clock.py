# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Jump the wall clock of one process, as NTP or an administrator does.

The host's clock is everybody's, so only the agent's process is told another
time. Its monotonic clock goes on, as it does on a real host.
"""

import mmap
import pathlib
import struct
import time

_OFFSET_S = struct.Struct('d')


def jump(file: pathlib.Path, offset_s: float) -> None:
    """Set the offset of the processes that follow a file."""
    if not file.exists():
        file.write_bytes(_OFFSET_S.pack(offset_s))
    with file.open('r+b') as clock:
        clock.write(_OFFSET_S.pack(offset_s))


def follow(file: pathlib.Path) -> None:
    """Add the file's offset to this process's wall clock from now on."""
    with file.open('r+b') as clock:
        offset = mmap.mmap(clock.fileno(), _OFFSET_S.size)
    real_s, real_ns = time.time, time.time_ns

    def offset_s() -> float:
        value: float = _OFFSET_S.unpack_from(offset)[0]
        return value

    time.time = lambda: real_s() + offset_s()
    time.time_ns = lambda: real_ns() + int(offset_s() * 1e9)
