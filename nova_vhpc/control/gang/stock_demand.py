# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How many CPUs VMs demand under stock Linux, not because of windows.

A VM that sleeps uses more if windows serve it better than the kernel does;
that counts as its demand only after it was seen without windows. One that uses
less while it is held up, as a program that waits in turn for its siblings,
still demands what it used.
"""

from collections.abc import Iterable

from nova_vhpc.control import model
from nova_vhpc.control.gang import demand, feedback

UNNOTICED = 0.1
UNNOTICED_CPUS = 0.03
LASTING_US = 15_000_000
"""VMs that sleep may use this part, or so many CPUs, more than before windows
were played. If they use more for so long, the host is watched again."""


class StockDemand:
    """Follows what VMs that sleep at times used without windows."""

    def __init__(self, tracker: demand.DemandTracker) -> None:
        self._tracker = tracker
        self._stock_cpus: dict[str, float] = {}
        self._excess_us = 0.0

    def advance(
        self,
        vms: Iterable[model.VmView | model.OtherVm],
        cpus: int,
        elapsed_us: float,
        measured: feedback.Feedback,
    ) -> dict[str, float]:
        """Return the CPUs that each VM would use if nothing else ran."""
        demanded: dict[str, float] = {}
        kept: dict[str, float] = {}
        excess = 0.0
        for vm in vms:
            now = self._tracker.cpus(vm.uuid)
            before = self._stock_cpus.get(vm.uuid)
            if before is None or not measured.playing:
                before = now
            kept[vm.uuid] = before
            if not self._tracker.is_cpu_bound(vm.uuid):
                most = before + max(UNNOTICED_CPUS, UNNOTICED * before)
                excess += max(0.0, now - most)
                now = min(now, most)
                if now < before:
                    # Held up it does less, and still wants as much.
                    runnable = self._tracker.runnable_cpus(vm.uuid)
                    now = max(now, min(before, runnable))
            demanded[vm.uuid] = now
        self._stock_cpus = kept
        if excess <= UNNOTICED * cpus:
            self._excess_us = 0.0
        elif measured.playing:
            self._excess_us += elapsed_us
            if self._excess_us >= LASTING_US:
                self._excess_us = 0.0
                measured.watch_again()
        return demanded
