# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Place the vCPUs of a guest by the affinity of their threads.

Gang windows move vCPUs every few ten milliseconds. libvirt takes milliseconds
for each pin, and writes the domain's state to disk each time; the kernel moves
a thread in some ten microseconds (sched_setaffinity(2)). A placement stays
inside the pins that libvirt has, so libvirt's view of the domain stays true,
and nothing has to be taken out of its XML.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Sequence

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.linux import qemu_process

OWN_STATUS = pathlib.Path('/proc/self/status')


CAP_SYS_NICE = 23
"""Number of the capability (linux/capability.h)."""

_EFFECTIVE = re.compile(r'^CapEff:\t([0-9a-f]+)$', re.MULTILINE)


def is_allowed(status: pathlib.Path = OWN_STATUS) -> bool:
    """Return whether this process may place the threads of other users."""
    try:
        match = _EFFECTIVE.search(status.read_text())
    except OSError:
        return False
    return match is not None and bool(int(match[1], 16) >> CAP_SYS_NICE & 1)


def place(tids: Sequence[int], cpus: Sequence[int]) -> None:
    """Let each vCPU run on one CPU only.

    :param tids: thread of each vCPU.
    :param cpus: CPU of each vCPU.
    :raises OSError: the agent may not do that, or a CPU is off or outside of
        the thread's cpuset.
    """
    for tid, cpu in zip(tids, cpus, strict=True):
        # A thread that has ended needs no CPU.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(tid, {cpu})


def release(tids: Sequence[int], pins: Sequence[frozenset[int]]) -> None:
    """Let each vCPU run where its pins allow it, as libvirt sets it.

    :param tids: thread of each vCPU.
    :param pins: host CPUs that each vCPU may use.
    :raises OSError: the agent may not do that.
    """
    for tid, allowed in zip(tids, pins, strict=False):
        if not allowed:
            continue
        with contextlib.suppress(ProcessLookupError):
            # The kernel leaves out CPUs that are off or outside of the cpuset.
            os.sched_setaffinity(tid, allowed)


def release_guest(guest: guest.Guest) -> None:
    """Let the vCPUs of a guest run where its pins allow it.

    :raises OSError: the agent may not do that.
    """
    pins = guest.expected.vcpupins
    release(
        guest.tids,
        [
            pins[vcpu] if vcpu < len(pins) else frozenset()
            for vcpu in guest.info.online_vcpus
        ],
    )


def release_domain(
    processes: qemu_process.Processes,
    pid: int,
    vcpus: Sequence[int],
    now: cputune.Cputune,
) -> None:
    """Let the vCPUs of a domain run where its pins allow it.

    For a domain that a killed agent may have left placed; does no harm to any
    other.

    :param vcpus: numbers of its online vCPUs.
    :param now: cputune in force.
    :raises OSError: the agent may not do that.
    """
    if all(vcpu < len(now.vcpupins) for vcpu in vcpus):
        release(
            processes.vcpu_threads(pid, vcpus),
            [now.vcpupins[vcpu] for vcpu in vcpus],
        )
