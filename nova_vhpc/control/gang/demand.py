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


"""Who spins, and who wants how much CPU: from run and wait times.

A program that waits for its siblings by spinning is runnable whenever it
may not run: schedstat's run and wait time add up to the whole time. One
that blocks is not, and windows neither help nor hurt it.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from nova_vhpc.control import model

HUNGRY = 0.85
"""A vCPU that is runnable for this part of the time never really sleeps."""

SETTLED = 0.65
"""Below this it does sleep; between the two nothing changes."""

MEMORY_US = 2_000_000
"""How far back measurements count. Long against a rotation of windows,
which makes a spinner run and wait in turn."""

AWAKE = 0.93
AWAKE_US = 2_000_000
"""A vCPU that was runnable for so much of so long a time never sleeps. A
busy server does, if only when a burst of requests is done."""

FIRST_US = 300_000
"""Least time to have looked at a VM before it is judged."""


@dataclasses.dataclass(slots=True)
class _Vcpu:
    """Decaying sums. The kernel adds a wait to the counters when it is
    over: while both stand still, a vCPU may sleep or starve, and the next
    change tells which."""

    elapsed_us: float = 0.0
    run_us: float = 0.0
    runnable_us: float = 0.0
    unclear_us: float = 0.0
    awake_us: float = 0.0


@dataclasses.dataclass(slots=True)
class _Vm:
    """All vCPUs of one VM, and what follows from their sums.

    :ivar cpus: kept until the sums change, as are the next two.
    """

    vcpus: list[_Vcpu]
    spins: bool | None = None
    blind: bool = False
    cpus: float | None = None
    busiest: float | None = None
    awake: list[int] | None = None

    def add(
        self,
        elapsed_us: float,
        all_run_us: Sequence[float],
        all_wait_us: Sequence[float],
    ) -> None:
        """Take in one period.

        This runs for every vCPU of the host, each tick: few calls in it.
        """
        self.cpus = self.busiest = self.awake = None
        usual_keep = _keep(elapsed_us)
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
                keep = _keep(span_us)
            vcpu.elapsed_us = all_us = vcpu.elapsed_us * keep + span_us
            vcpu.run_us = vcpu.run_us * keep + run_us
            runnable_us = vcpu.runnable_us * keep + run_us + wait_us
            vcpu.runnable_us = runnable_us
            if runnable_us >= AWAKE * all_us:
                vcpu.awake_us += span_us
            elif runnable_us < HUNGRY * all_us:
                vcpu.awake_us = 0.0

    def judge(self) -> None:
        """Decide with hysteresis; the laziest vCPU counts."""
        part = 1.0
        for vcpu in self.vcpus:
            if vcpu.elapsed_us < FIRST_US:
                return
            runnable = vcpu.runnable_us / vcpu.elapsed_us
            if runnable < part:
                part = runnable
        self.spins = part >= (SETTLED if self.spins else HUNGRY)
        if part >= HUNGRY:
            # Whole CPUs, all of them: there is nothing to add up.
            self.cpus = float(len(self.vcpus))


def _keep(span_us: float) -> float:
    """What is left of the sums after so long a time."""
    return 1 - span_us / MEMORY_US if span_us < MEMORY_US else 0.0


class DemandTracker:
    """Follows all VMs of a host."""

    def __init__(self) -> None:
        """Know nobody yet."""
        self._vms: dict[str, _Vm] = {}

    def advance(self, vms: Iterable[model.VmView | model.OtherVm]) -> None:
        """Take in one period; forget VMs that are no longer shown."""
        known: dict[str, _Vm] = {}
        for vm in vms:
            state = self._vms.get(vm.uuid)
            if state is None or len(state.vcpus) != vm.vcpus:
                state = _Vm([_Vcpu() for _ in range(vm.vcpus)])
            known[vm.uuid] = state
            sample = vm.sample
            if not sample.elapsed_us:
                continue
            run_us, wait_us = sample.vcpu_run_us, sample.vcpu_wait_us
            state.blind = run_us is None or wait_us is None
            if run_us is None or wait_us is None:
                continue
            state.add(sample.elapsed_us, run_us, wait_us)
            state.judge()
        self._vms = known

    def spins(self, uuid: str) -> bool:
        """Whether all vCPUs of a VM want to run all of the time.

        A VM whose host cannot tell is believed to: it said that it runs
        a parallel program.
        """
        state = self._vms[uuid]
        return state.blind or bool(state.spins)

    def cpus(self, uuid: str) -> float:
        """CPUs that a VM would use if it got all it wanted.

        A vCPU that never sleeps wants a whole CPU. One that does sleep
        gets its work done in the end, so it wants what it used: what it
        waited must not count, or windows would feed themselves.
        """
        state = self._vms[uuid]
        if state.cpus is None:
            state.cpus = sum(
                1.0
                if vcpu.runnable_us / vcpu.elapsed_us >= HUNGRY
                else vcpu.run_us / vcpu.elapsed_us
                for vcpu in state.vcpus
                if vcpu.elapsed_us > 0
            )
        return state.cpus

    def hungry(self, uuid: str) -> bool:
        """Whether some vCPU of a VM has not slept for long."""
        return self.awake(uuid) > 0

    def awake(self, uuid: str) -> int:
        """How many vCPUs of a VM have not slept for long."""
        return len(self.awake_vcpus(uuid))

    def awake_vcpus(self, uuid: str) -> list[int]:
        """Which ones these are."""
        state = self._vms[uuid]
        if state.awake is None:
            state.awake = [
                number
                for number, vcpu in enumerate(state.vcpus)
                if vcpu.awake_us >= AWAKE_US
            ]
        return state.awake

    def busiest(self, uuid: str) -> float:
        """Part of the time that the busiest vCPU of a VM ran."""
        state = self._vms[uuid]
        if state.busiest is None:
            state.busiest = max(
                (
                    min(1.0, vcpu.run_us / vcpu.elapsed_us)
                    for vcpu in state.vcpus
                    if vcpu.elapsed_us > 0
                ),
                default=0.0,
            )
        return state.busiest
