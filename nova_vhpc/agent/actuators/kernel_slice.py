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

"""Per-thread time slices of the kernel's own scheduler: ``sched_setattr``.

Kernels from 6.12 take a slice of 0.1 to 100 ms for each ordinary thread
(``sched_runtime`` of ``SCHED_OTHER``). The slice says how long a thread may
run before another one of *its own group* gets the CPU, and how soon it runs
when it wakes; measured on Linux 6.18 it did little for barrier programs
(facts/libvirt-lab.md), so it is off by default. Needs CAP_SYS_NICE.

Undo: a runtime of 0 gives a thread the kernel's own slice again, which is
what QEMU's threads have from the start.
"""

import ctypes
import errno
import os
import platform
from typing import Any

from nova_vhpc.agent import guest, processes
from nova_vhpc.control import model

MIN_KERNEL = (6, 12)
MIN_SLICE_US = 100
MAX_SLICE_US = 100_000
RESET = 0

_SYSCALLS = {
    'x86_64': (314, 315),
    'aarch64': (274, 275),
    'ppc64le': (355, 356),
}
"""Numbers of sched_setattr and sched_getattr."""


class _SchedAttr(ctypes.Structure):
    _fields_ = [
        ('size', ctypes.c_uint32),
        ('sched_policy', ctypes.c_uint32),
        ('sched_flags', ctypes.c_uint64),
        ('sched_nice', ctypes.c_int32),
        ('sched_priority', ctypes.c_uint32),
        ('sched_runtime', ctypes.c_uint64),
        ('sched_deadline', ctypes.c_uint64),
        ('sched_period', ctypes.c_uint64),
    ]


def _call(number: int, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _get(tid: int) -> _SchedAttr:
    attr = _SchedAttr()
    _call(
        _SYSCALLS[platform.machine()][1],
        ctypes.c_int(tid),
        ctypes.byref(attr),
        ctypes.c_uint(ctypes.sizeof(attr)),
        ctypes.c_uint(0),
    )
    return attr


def get_slice_us(tid: int) -> int:
    """The slice that a thread has now. Raises OSError."""
    return int(_get(tid).sched_runtime) // 1000


def set_slice_us(tid: int, slice_us: int) -> None:
    """Give a thread a slice; 0 for the kernel's own. Raises OSError."""
    attr = _get(tid)
    attr.size = ctypes.sizeof(attr)
    attr.sched_runtime = slice_us * 1000
    _call(
        _SYSCALLS[platform.machine()][0],
        ctypes.c_int(tid),
        ctypes.byref(attr),
        ctypes.c_uint(0),
    )


def reset(host: processes.Processes, pid: int, vcpus: int) -> None:
    """Give all vCPU threads of a QEMU process the kernel's own slice."""
    if platform.machine() not in _SYSCALLS:
        return
    for tid in host.vcpu_threads(pid, vcpus):
        _set_if_alive(tid, RESET)


def _set_if_alive(tid: int, slice_us: int) -> None:
    try:
        set_slice_us(tid, slice_us)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise


class KernelSliceActuator:
    """Beside ``libvirt``, never without it: it writes slices only.

    :param conf: unused; every actuator gets it.
    """

    def __init__(self, conf: Any) -> None:
        self._in_force: dict[int, int] = {}

    def check(self) -> str | None:
        """Whether this kernel takes a slice, and we may give one."""
        if platform.machine() not in _SYSCALLS:
            return f'no system call numbers for {platform.machine()}'
        release = platform.release().split('.')
        try:
            version = (int(release[0]), int(release[1]))
        except (ValueError, IndexError):
            return f'kernel release {platform.release()} cannot be read'
        if version < MIN_KERNEL:
            return f'kernel {platform.release()} is older than 6.12'
        try:
            set_slice_us(0, 3000)
            taken = get_slice_us(0) == 3000
            set_slice_us(0, RESET)
        except OSError as error:
            return f'sched_setattr: {error.strerror}'
        return None if taken else 'the kernel takes no slice'

    def limits(self) -> model.ActuatorLimits:
        """Of the slice alone."""
        return model.ActuatorLimits(effective_min_slice_us=MIN_SLICE_US)

    def write(
        self, target: guest.Guest, tune: model.CpuTune, slice_us: int | None
    ) -> None:
        """Give each vCPU thread the slice that was decided."""
        if slice_us is None:
            return
        wanted = min(max(slice_us, MIN_SLICE_US), MAX_SLICE_US)
        for tid in target.tids:
            if self._in_force.get(tid) != wanted:
                _set_if_alive(tid, wanted)
                self._in_force[tid] = wanted

    def undo(self, target: guest.Guest) -> None:
        """The kernel's own slice for all vCPU threads."""
        for tid in target.tids:
            if self._in_force.pop(tid, None) is not None:
                _set_if_alive(tid, RESET)
