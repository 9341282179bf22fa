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


"""Read a lab guest's progress straight from its memory.

A guest's serial console lags by seconds when its vCPUs are starved, which
is just when the lab wants to know. So the workload keeps a page with
counters, and the host maps the guest's memfd and looks.
"""

import dataclasses
import mmap
import os
import re
import struct
import time
from pathlib import Path

from nova_vhpc.testbed import errors

MAGIC = b'vhpc-lab-page-01'
PAGE_BYTES = 4096
MAX_THREADS = 16
_LANES_AT = 64
_LANE_BYTES = 64


class ProgressError(errors.LabError):
    """A guest's page cannot be found; says of which guest and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Work done by one guest since it started.

    :ivar when_s: monotonic time of the reading.
    :ivar work: sum over the guest's threads.
    """

    when_s: float
    work: int


class ProgressPage:
    """The shared page of one guest.

    :param pid: the guest's QEMU process.
    :param nonce: the number that the guest was given
        (:func:`nova_vhpc.testbed.guest.nonce_of`).
    """

    def __init__(self, pid: int, nonce: int) -> None:
        self._pid = pid
        self._nonce = nonce
        self._memory: mmap.mmap | None = None
        self._offset = 0

    def wait(self, timeout_s: float = 60.0) -> None:
        """Wait until the guest's workload has put up its page.

        :raises ProgressError: when it does not in that time.
        """
        deadline = time.monotonic() + timeout_s
        while not self._find():
            if time.monotonic() > deadline:
                raise ProgressError(
                    f'guest process {self._pid}: no progress page after '
                    f'{timeout_s:.0f} s; see its console'
                )
            time.sleep(0.2)

    def read(self) -> Reading:
        """Progress now.

        :raises ProgressError: when the page is gone.
        """
        page = self._page()
        # The kernel may have moved the page: look for it again.
        if not page.startswith(MAGIC) and self._find():
            page = self._page()
        if not page.startswith(MAGIC):
            raise ProgressError(
                f'guest process {self._pid}: its progress page is gone'
            )
        work = 0
        for lane in range(MAX_THREADS):
            at = _LANES_AT + lane * _LANE_BYTES
            work += struct.unpack_from('<Q', page, at)[0]
        return Reading(time.monotonic(), work)

    def close(self) -> None:
        """Let go of the guest's memory."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _page(self) -> bytes:
        if self._memory is None:
            return b''
        return self._memory[self._offset : self._offset + PAGE_BYTES]

    def _find(self) -> bool:
        if self._memory is None:
            self._memory = _map_guest_memory(self._pid)
        at = self._memory.find(MAGIC)
        while at >= 0:
            if at % PAGE_BYTES == 0:
                (nonce,) = struct.unpack_from('<Q', self._memory, at + 16)
                if nonce == self._nonce:
                    self._offset = at
                    return True
            at = self._memory.find(MAGIC, at + 1)
        return False


def _map_guest_memory(pid: int) -> mmap.mmap:
    """Map the memfd that holds a QEMU process's guest memory.

    :raises ProgressError: when the process has none.
    """
    for link in Path(f'/proc/{pid}/fd').iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if re.match(r'/memfd:.*(memory|pc\.ram)', target):
            descriptor = os.open(link, os.O_RDONLY)
            try:
                return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
    raise ProgressError(
        f'guest process {pid}: no memfd; its domain needs '
        "<memoryBacking><source type='memfd'/>"
    )
