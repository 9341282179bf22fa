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
