# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Per-thread time slices of the kernel's own scheduler: ``sched_setattr``.

Kernels from 6.12 take a slice of 0.1 to 100 ms for each ordinary thread
(``sched_runtime`` of ``SCHED_OTHER``). The slice says how long a thread may
run before another one of *its own group* gets the CPU, and how soon it runs
when it wakes. Measured on Linux 6.18, it did little for barrier programs, so
the actuator is off by default. Writes need CAP_SYS_NICE and go through
oslo.privsep.

Restore: a runtime of 0 gives a thread the kernel's default slice again, which
QEMU's threads have from the start.
"""

import platform
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from nova_vhpc.agent.guests import guest
from nova_vhpc.control import model
from nova_vhpc.linux import qemu_process, sched_attr

MIN_KERNEL = (6, 12)
MIN_SLICE_US = 100
MAX_SLICE_US = 100_000
RESET = 0
UNKNOWN = -1
"""A write failed: the thread may have the old slice or the new one."""


def _set(tids: Iterable[int], slice_us: int) -> None:
    """Write the slice of threads through the privileged process.

    :param tids: thread IDs.
    :param slice_us: slice in microseconds; :data:`RESET` for the default.
    :raises OSError: a write was refused.
    """
    # Imported here, so that agents without this actuator never load
    # oslo.privsep.
    from nova_vhpc.agent.actuators import privileged

    privileged.set_slice_us(tids, slice_us)


def reset(
    processes: qemu_process.Processes, pid: int, vcpus: Sequence[int]
) -> None:
    """Give all vCPU threads of a QEMU process the kernel's default slice.

    :param pid: process ID of QEMU.
    :param vcpus: numbers of its online vCPUs.
    :raises OSError: a thread's slice differs and cannot be reset.
    """
    if not sched_attr.SUPPORTED:
        return
    own_us = sched_attr.get_slice_us(0)
    changed = [
        tid
        for tid in processes.vcpu_threads(pid, vcpus)
        if _slice_us(tid, own_us) != own_us
    ]
    if changed:
        _set(changed, RESET)


def _slice_us(tid: int, gone_us: int) -> int:
    try:
        return sched_attr.get_slice_us(tid)
    except ProcessLookupError:
        return gone_us


class KernelSliceActuator:
    """Sets the kernel's time slice of each vCPU thread.

    It writes no period, quota, shares or pins, so it is used together with
    the actuator ``libvirt``.

    :param conf: unused; every actuator is made with the configuration.
    """

    def __init__(self, conf: Any) -> None:
        pass

    def check(self) -> str | None:
        """Return why the kernel accepts no slice from the agent, or None."""
        if not sched_attr.SUPPORTED:
            return f'no system call numbers for {platform.machine()}'
        release = platform.release().split('.')
        try:
            version = (int(release[0]), int(release[1]))
        except (ValueError, IndexError):
            return f'kernel release {platform.release()} cannot be read'
        if version < MIN_KERNEL:
            return f'kernel {platform.release()} is older than 6.12'
        own = (threading.get_native_id(),)
        try:
            _set(own, 3000)
            taken = sched_attr.get_slice_us(0) == 3000
            _set(own, RESET)
        except OSError as error:
            return f'sched_setattr: {error.strerror or error}'
        return None if taken else 'the kernel ignores the slice'

    def limits(self) -> model.ActuatorLimits:
        """Return the least slice; this actuator limits no other value."""
        return model.ActuatorLimits(
            effective_min_slice_us=MIN_SLICE_US, thread_slices=True
        )

    def write(
        self, guest: guest.Guest, tune: model.CpuTune, slice_us: int | None
    ) -> None:
        """Set the slice of each vCPU thread, limited to 0.1 to 100 ms."""
        if slice_us is None:
            return
        wanted = min(max(slice_us, MIN_SLICE_US), MAX_SLICE_US)
        slices = guest.slices
        todo = [tid for tid in guest.tids if slices.get(tid) != wanted]
        if todo:
            # Noted before the write, because a write that only half succeeds
            # must be restored, too.
            slices.update(dict.fromkeys(todo, wanted))
            try:
                _set(todo, wanted)
            except OSError:
                slices.update(dict.fromkeys(todo, UNKNOWN))
                raise

    def undo(self, guest: guest.Guest) -> None:
        """Give all vCPU threads the kernel's default slice."""
        todo = [tid for tid in guest.tids if tid in guest.slices]
        if todo:
            _set(todo, RESET)
            for tid in todo:
                del guest.slices[tid]
