# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Measure how many CPUs something else than VMs uses.

Measures: the busy time of the host's CPUs without that of its VMs: daemons,
QEMU's own threads, interrupts, and what a hypervisor below this host takes.
Units: ``/proc/stat`` in ticks of USER_HZ. Cost: one read a second, some 100 us
on a host with many interrupts. Blind to: which CPU it happens on.
"""

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from nova_vhpc.control import model

INTERVAL_US = 1_000_000
"""Time between two readings of ``/proc/stat``, in microseconds."""

_LINE = re.compile(rb'^cpu(\d+) (.*)$', re.MULTILINE)
_IDLE = (3, 4)
"""Columns of idle time, and of idle time with outstanding I/O."""

_COLUMNS = 8
"""Columns that count; later ones, for guests, are part of earlier ones."""


class OutsideLoad:
    """Follows what runs on the host's CPUs outside of VMs.

    :param proc: where procfs is mounted.
    """

    def __init__(self, proc: Path = Path('/proc')) -> None:
        self._file = proc / 'stat'
        self._tick_us = 1_000_000 / os.sysconf('SC_CLK_TCK')
        self._begin_us: int | None = None
        self._busy_us = 0.0
        self._vm_cpus: list[float] = []
        self._outside = 0.0

    def advance(
        self,
        now_us: int,
        cpus: Collection[int],
        vms: Iterable[model.VmView | model.OtherVm],
    ) -> float:
        """Take in one tick; return the CPUs that run something else.

        :param now_us: monotonic time, in microseconds.
        :param cpus: CPUs that count.
        :param vms: VMs of the host that may run on them.
        :returns: mean of the last second; 0.0 while that is unknown.
        """
        self._vm_cpus.append(
            sum(
                sum(vm.sample.vcpu_run_us) / vm.sample.elapsed_us
                for vm in vms
                if vm.sample.vcpu_run_us and vm.sample.elapsed_us
            )
        )
        begin_us = self._begin_us
        if begin_us is not None and now_us - begin_us < INTERVAL_US:
            return self._outside
        busy_us = self._read(cpus)
        if busy_us is not None and begin_us is not None:
            busy_cpus = (busy_us - self._busy_us) / (now_us - begin_us)
            vm_cpus = sum(self._vm_cpus) / len(self._vm_cpus)
            self._outside = max(0.0, min(len(cpus), busy_cpus - vm_cpus))
        self._vm_cpus.clear()
        self._begin_us = None if busy_us is None else now_us
        self._busy_us = busy_us or 0.0
        return self._outside

    def _read(self, cpus: Collection[int]) -> float | None:
        """Return the busy time of all these CPUs; None if it is unknown."""
        try:
            text = self._file.read_bytes()
        except OSError:
            return None
        busy = 0
        for match in _LINE.finditer(text):
            if int(match[1]) in cpus:
                columns = match[2].split()[:_COLUMNS]
                busy += sum(
                    int(value)
                    for number, value in enumerate(columns)
                    if number not in _IDLE
                )
        return busy * self._tick_us
