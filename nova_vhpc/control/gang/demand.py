# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which VMs spin, and how many CPUs each VM demands, from run and wait times.

A program that waits for its siblings by spinning is runnable whenever it may
not run: schedstat's run and wait time add up to the whole time. A program that
blocks is not, and gang windows neither help nor hurt it.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from nova_vhpc.control import model

SPINNING = 0.85
"""Part of the time for which every vCPU of a VM must be runnable for the VM to
count as spinning. A vCPU that is runnable for so long demands a whole CPU."""

NOT_SPINNING = 0.65
"""A spinning VM stops to count as one below this; hysteresis in between."""

MEMORY_US = 2_000_000
"""For how long measurements count. Long against one rotation of windows, in
which a spinning vCPU first runs and then waits."""

CPU_BOUND = 0.93
CPU_BOUND_US = 2_000_000
"""A vCPU that was runnable for this part of the time, for this long, is
CPU-bound. A busy server is not: it sleeps when a burst of requests is done."""

MIN_OBSERVED_US = 300_000
"""Time for which a VM must have been measured before it can count as
spinning."""


@dataclasses.dataclass(slots=True)
class _Vcpu:
    """Decaying sums of one vCPU.

    The kernel adds a wait to its counters only when the wait is over. While
    neither run nor wait time grows, a vCPU may sleep or wait for a CPU, and
    the next change of the counters tells which.

    :ivar unclear_us: time for which neither counter has grown.
    :ivar since_sleep_us: time since the vCPU last slept for long.
    """

    elapsed_us: float = 0.0
    run_us: float = 0.0
    runnable_us: float = 0.0
    unclear_us: float = 0.0
    since_sleep_us: float = 0.0


@dataclasses.dataclass(slots=True)
class _Vm:
    """All vCPUs of one VM, and what follows from their sums.

    :ivar spinning: None until the VM has been measured for long enough.
    :ivar unmeasured: run or wait times were missing in the last sample.
    :ivar cpus: result of :meth:`DemandTracker.cpus`; like the two attributes
        that follow, None until it was computed for this control period.
    """

    vcpus: list[_Vcpu]
    spinning: bool | None = None
    unmeasured: bool = False
    cpus: float | None = None
    busiest_vcpu: float | None = None
    cpu_bound_vcpus: list[int] | None = None

    def add(
        self,
        elapsed_us: float,
        all_run_us: Sequence[float],
        all_wait_us: Sequence[float],
    ) -> None:
        """Add one control period to the sums.

        This runs for every vCPU of the host in each tick, so it makes as few
        calls as possible.
        """
        self.cpus = self.busiest_vcpu = self.cpu_bound_vcpus = None
        usual_keep = _kept_part(elapsed_us)
        for vcpu, run_us, wait_us in zip(  # noqa: B905
            self.vcpus, all_run_us, all_wait_us
        ):
            span_us, keep = elapsed_us, usual_keep
            unclear_us = vcpu.unclear_us
            if run_us <= 0 and wait_us <= 0 and unclear_us < MEMORY_US:
                vcpu.unclear_us = unclear_us + elapsed_us
                continue
            if unclear_us:
                vcpu.unclear_us = 0.0
                span_us += unclear_us
                keep = _kept_part(span_us)
            vcpu.elapsed_us = all_us = vcpu.elapsed_us * keep + span_us
            vcpu.run_us = vcpu.run_us * keep + run_us
            runnable_us = vcpu.runnable_us * keep + run_us + wait_us
            vcpu.runnable_us = runnable_us
            if runnable_us >= CPU_BOUND * all_us:
                vcpu.since_sleep_us += span_us
            elif runnable_us < SPINNING * all_us:
                vcpu.since_sleep_us = 0.0

    def judge(self) -> None:
        """Decide, with hysteresis, whether the VM spins.

        The vCPU that is runnable for the smallest part of the time decides.
        """
        part = 1.0
        for vcpu in self.vcpus:
            if vcpu.elapsed_us < MIN_OBSERVED_US:
                return
            runnable = vcpu.runnable_us / vcpu.elapsed_us
            if runnable < part:
                part = runnable
        self.spinning = part >= (NOT_SPINNING if self.spinning else SPINNING)
        if part >= SPINNING:
            # Each vCPU demands a whole CPU: there is nothing to add up.
            self.cpus = float(len(self.vcpus))


def _kept_part(span_us: float) -> float:
    """Return the part of the sums that is left after a time span."""
    return 1 - span_us / MEMORY_US if span_us < MEMORY_US else 0.0


class DemandTracker:
    """Follows the CPU demand of all VMs of a host."""

    def __init__(self) -> None:
        """Start without any VM."""
        self._vms: dict[str, _Vm] = {}

    def advance(self, vms: Iterable[model.VmView | model.OtherVm]) -> None:
        """Add one control period; forget VMs that are not in it."""
        current: dict[str, _Vm] = {}
        for vm in vms:
            state = self._vms.get(vm.uuid)
            if state is None or len(state.vcpus) != vm.vcpus:
                state = _Vm([_Vcpu() for _ in range(vm.vcpus)])
            current[vm.uuid] = state
            sample = vm.sample
            if not sample.elapsed_us:
                continue
            run_us, wait_us = sample.vcpu_run_us, sample.vcpu_wait_us
            if run_us is None or wait_us is None:
                state.unmeasured = True
                continue
            state.unmeasured = False
            state.add(sample.elapsed_us, run_us, wait_us)
            state.judge()
        self._vms = current

    def is_spinning(self, uuid: str) -> bool | None:
        """Return whether all vCPUs of a VM want to run all of the time.

        :returns: None if that is not known yet.
        """
        state = self._vms[uuid]
        return False if state.unmeasured else state.spinning

    def is_unmeasured(self, uuid: str) -> bool:
        """Return whether the host could not measure a VM."""
        return self._vms[uuid].unmeasured

    def cpus(self, uuid: str) -> float:
        """Return how many CPUs a VM would use if nothing else ran.

        A vCPU that never sleeps would use a whole CPU. A vCPU that does sleep
        gets its work done in the end, so it would use what it did use. Its
        waiting time must not count, because windows lengthen it: they would
        then cause the demand that they are made for.
        """
        state = self._vms[uuid]
        if state.cpus is None:
            state.cpus = sum(
                1.0
                if vcpu.runnable_us / vcpu.elapsed_us >= SPINNING
                else vcpu.run_us / vcpu.elapsed_us
                for vcpu in state.vcpus
                if vcpu.elapsed_us > 0
            )
        return state.cpus

    def used_cpus(self, uuid: str) -> float:
        """Return how many CPUs a VM used, mean over :data:`MEMORY_US`."""
        return sum(
            vcpu.run_us / vcpu.elapsed_us
            for vcpu in self._vms[uuid].vcpus
            if vcpu.elapsed_us > 0
        )

    def runnable_cpus(self, uuid: str) -> float:
        """Return how many vCPUs ran or waited for a CPU, mean likewise."""
        return sum(
            min(1.0, vcpu.runnable_us / vcpu.elapsed_us)
            for vcpu in self._vms[uuid].vcpus
            if vcpu.elapsed_us > 0
        )

    def loads(self, uuid: str) -> list[tuple[float, float]]:
        """Return parts of the time that each vCPU ran, and was held up.

        :returns: empty until they are known.
        """
        state = self._vms.get(uuid)
        if state is None or state.unmeasured or state.spinning is None:
            return []
        return [
            (
                vcpu.run_us / vcpu.elapsed_us,
                (vcpu.runnable_us - vcpu.run_us) / vcpu.elapsed_us,
            )
            for vcpu in state.vcpus
        ]

    def is_cpu_bound(self, uuid: str) -> bool:
        """Return whether any vCPU of a VM is CPU-bound."""
        return bool(self.cpu_bound_vcpus(uuid))

    def cpu_bound_vcpus(self, uuid: str) -> list[int]:
        """Return the indexes of a VM's CPU-bound vCPUs."""
        state = self._vms[uuid]
        if state.cpu_bound_vcpus is None:
            state.cpu_bound_vcpus = [
                number
                for number, vcpu in enumerate(state.vcpus)
                if vcpu.since_sleep_us >= CPU_BOUND_US
            ]
        return state.cpu_bound_vcpus

    def busiest_vcpu(self, uuid: str) -> float:
        """Return the part of the time, 0 to 1, that the busiest vCPU ran."""
        state = self._vms[uuid]
        if state.busiest_vcpu is None:
            state.busiest_vcpu = max(
                (
                    min(1.0, vcpu.run_us / vcpu.elapsed_us)
                    for vcpu in state.vcpus
                    if vcpu.elapsed_us > 0
                ),
                default=0.0,
            )
        return state.busiest_vcpu
