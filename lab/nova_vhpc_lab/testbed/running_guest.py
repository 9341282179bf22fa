# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A running guest: its threads, their CPU time and the work it has done.

The work is read straight from the guest's memory. A guest's serial console
lags by seconds while its vCPUs are starved, which is the very situation that
the benchmarks measure. The workload therefore keeps a page of counters (see
``programs/vhpc.h``); the host maps the memfd that backs the guest's memory and
searches it for that page. There it also writes how a program of a real MPI or
OpenMP library should wait.
"""

import dataclasses
import mmap
import os
import re
import struct
import time
from pathlib import Path
from typing import Any

from nova_vhpc_lab.testbed import errors, guest

MAGIC = b'vhpc-lab-page-01'
PAGE_BYTES = 4096
SHIPPED, NAPPING, STOPPED = 1, 2, 3
"""Modes of a parallel program: as its library was shipped, or with naps."""
MAX_THREADS = 16
_NONCE_OFFSET = 16
_WANTED_OFFSET = 24
_RUNNING_OFFSET = 32
_COUNTERS_OFFSET = 64
_COUNTER_STRIDE_BYTES = 64


class ProgressError(errors.LabError):
    """A guest's progress page cannot be read.

    The message names the process of the guest's QEMU and the reason.
    """


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Work done by one guest since it started.

    :ivar when_s: monotonic time of the reading, in seconds.
    :ivar work: units of work, summed over the guest's threads.
    """

    when_s: float
    work: int


class ProgressPage:
    """The page in a guest's memory that counts the guest's work.

    :param pid: process ID of the guest's QEMU.
    :param nonce: number that the guest's kernel command line carries
        (:func:`nova_vhpc_lab.testbed.guest.nonce_of`).
    """

    def __init__(self, pid: int, nonce: int) -> None:
        self._pid = pid
        self._nonce = nonce
        self._memory: mmap.mmap | None = None
        self._offset = 0

    def wait(self, timeout_s: float = 60.0) -> None:
        """Wait until the guest's workload has written its page.

        :param timeout_s: longest time to wait, in seconds.
        :raises ProgressError: there is no page by then, or the guest's memory
            cannot be mapped.
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
        """Return the work done until now.

        :raises ProgressError: the page is gone.
        """
        page = self._page()
        # The guest's kernel may have moved the page: search for it again.
        if not page.startswith(MAGIC) and self._find():
            page = self._page()
        if not page.startswith(MAGIC):
            raise ProgressError(
                f'guest process {self._pid}: its progress page is gone'
            )
        work = 0
        for thread in range(MAX_THREADS):
            offset = _COUNTERS_OFFSET + thread * _COUNTER_STRIDE_BYTES
            work += struct.unpack_from('<Q', page, offset)[0]
        return Reading(time.monotonic(), work)

    def run_mode(self, mode: int, timeout_s: float) -> None:
        """Have the guest's parallel program run in one mode.

        :param mode: :data:`SHIPPED`, :data:`NAPPING` or :data:`STOPPED`.
        :param timeout_s: longest time to wait for it, in seconds.
        :raises ProgressError: the program has not started by then.
        """
        wanted = struct.pack('<Q', mode)
        deadline = time.monotonic() + timeout_s
        while True:
            # Read first: it finds a page that has moved.
            self.read()
            assert self._memory is not None
            wanted_at = self._offset + _WANTED_OFFSET
            running_at = self._offset + _RUNNING_OFFSET
            self._memory[wanted_at : wanted_at + 8] = wanted
            if self._memory[running_at : running_at + 8] == wanted:
                return
            if time.monotonic() > deadline:
                raise ProgressError(
                    f'guest process {self._pid}: its parallel program has '
                    f'not started after {timeout_s:.0f} s; see its console'
                )
            time.sleep(0.02)

    def close(self) -> None:
        """Unmap the guest's memory."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _page(self) -> bytes:
        if self._memory is None:
            return b''
        return self._memory[self._offset : self._offset + PAGE_BYTES]

    def _find(self) -> bool:
        """Find the page in the guest's memory; return whether it is there."""
        if self._memory is None:
            self._memory = _map_guest_memory(self._pid)
        offset = self._memory.find(MAGIC)
        while offset >= 0:
            if offset % PAGE_BYTES == 0:
                (nonce,) = struct.unpack_from(
                    '<Q', self._memory, offset + _NONCE_OFFSET
                )
                if nonce == self._nonce:
                    self._offset = offset
                    return True
            offset = self._memory.find(MAGIC, offset + 1)
        return False


class RunningGuest:
    """A guest that has been started.

    :ivar page: the page that counts the guest's work.
    :ivar vcpu_threads: host thread IDs of the vCPUs, in vCPU order.
    """

    def __init__(self, spec: guest.GuestSpec, domain: Any, pid: int) -> None:
        self.spec = spec
        self.domain = domain
        self.pid = pid
        self.page = ProgressPage(pid, guest.nonce_of(domain.name()))
        self.vcpu_threads = _vcpu_threads(pid)

    def schedstat(self) -> tuple[int, int, int]:
        """Return what ``/proc/PID/task/TID/schedstat`` says of the vCPUs.

        :returns: CPU time and time on the run queue, both in nanoseconds, and
            number of time slices, each summed over the vCPUs.
        :raises LabError: the guest has ended.
        """
        ran = waited = switches = 0
        for thread in self.vcpu_threads:
            path = Path(f'/proc/{self.pid}/task/{thread}/schedstat')
            try:
                numbers = path.read_text().split()
            except OSError:
                raise self.ended_error() from None
            ran += int(numbers[0])
            waited += int(numbers[1])
            switches += int(numbers[2])
        return ran, waited, switches

    def other_threads(self) -> tuple[int, ...]:
        """Return the IDs of the QEMU threads that are not vCPUs.

        :raises LabError: the guest has ended.
        """
        try:
            tasks = os.listdir(f'/proc/{self.pid}/task')
        except OSError:
            raise self.ended_error() from None
        return tuple(
            thread
            for thread in map(int, tasks)
            if thread not in self.vcpu_threads
        )

    def ended_error(self) -> errors.LabError:
        """Return the error that says that this guest has ended."""
        return errors.LabError(
            f'guest {self.spec.name} has ended while it was measured; '
            'is there too little memory?'
        )


def _vcpu_threads(pid: int) -> tuple[int, ...]:
    """Return the thread IDs of a QEMU process's vCPUs, in vCPU order."""
    threads: dict[int, int] = {}
    for task in Path(f'/proc/{pid}/task').iterdir():
        match = re.match(r'CPU (\d+)/', (task / 'comm').read_text())
        if match:
            threads[int(match.group(1))] = int(task.name)
    return tuple(threads[vcpu] for vcpu in sorted(threads))


def _map_guest_memory(pid: int) -> mmap.mmap:
    """Map the memfd that holds a QEMU process's guest memory.

    :raises ProgressError: the process has no such memfd.
    """
    for link in Path(f'/proc/{pid}/fd').iterdir():
        try:
            file = os.readlink(link)
        except OSError:
            continue
        if re.match(r'/memfd:.*(memory|pc\.ram)', file):
            descriptor = os.open(link, os.O_RDWR)
            try:
                return mmap.mmap(descriptor, 0)
            finally:
                os.close(descriptor)
    raise ProgressError(
        f'guest process {pid}: no memfd; its domain needs '
        "<memoryBacking><source type='memfd'/>"
    )
