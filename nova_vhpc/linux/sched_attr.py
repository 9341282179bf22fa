# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""System calls for the scheduling attributes of a thread.

Only what the actuator ``kernel_slice`` needs: the slice of an ordinary thread
(``sched_runtime`` of ``SCHED_OTHER``, Linux 6.12). Reading needs no
capability; writing another user's thread needs CAP_SYS_NICE, so writes go
through :mod:`nova_vhpc.agent.actuators.privileged`.
"""

import ctypes
import os
import platform
from typing import Any

_NUMBERS = {
    'x86_64': (314, 315),
    'aarch64': (274, 275),
    'ppc64le': (355, 356),
}
"""Numbers of sched_setattr and sched_getattr, by machine."""

SUPPORTED = platform.machine() in _NUMBERS
"""Whether the system call numbers of this machine are known."""


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
        _NUMBERS[platform.machine()][1],
        ctypes.c_int(tid),
        ctypes.byref(attr),
        ctypes.c_uint(ctypes.sizeof(attr)),
        ctypes.c_uint(0),
    )
    return attr


def get_slice_us(tid: int) -> int:
    """Return the slice of a thread, in microseconds.

    :param tid: thread ID; 0 for the calling thread.
    :raises OSError: the kernel refused it.
    """
    return int(_get(tid).sched_runtime) // 1000


def set_slice_us(tid: int, slice_us: int) -> None:
    """Set the slice of a thread.

    :param slice_us: slice in microseconds; 0 for the kernel's default.
    :raises OSError: the kernel refused it.
    """
    attr = _get(tid)
    attr.size = ctypes.sizeof(attr)
    attr.sched_runtime = slice_us * 1000
    _call(
        _NUMBERS[platform.machine()][0],
        ctypes.c_int(tid),
        ctypes.byref(attr),
        ctypes.c_uint(0),
    )
