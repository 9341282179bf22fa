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

"""Which parallel VMs are not to be spread like those that run together.

A vCPU that is pinned waits for its CPU while others are idle. That is worth it
for siblings that are to run together; for a VM that takes part in no windows
it is only a loss, so such VMs are to run where the kernel likes. To one that
does nothing pins do no harm, as long as they keep nobody else off its CPUs.
"""

import collections
from collections.abc import Callable, Sequence

from nova_vhpc.control import model

LITTLE_CPUS = 0.1
"""What a VM uses at most that does nothing but keep its clock, on the mean of
some time; twice that must be used before it is taken to do something. What is
beyond one CPU does not count: else it would be remembered for long."""


class NonParticipants:
    """Follows who takes part, without haste: each change moves pins.

    :param patience: control periods in a row in which a VM must not take
        part before it counts as resting. It takes part again at once.
    :ivar loose: uuids of those who rest and yet do something.
    :ivar idle: uuids of those who rest and do nothing. Both are the same
        objects while they stay.
    """

    def __init__(self, patience: int) -> None:
        """Know nobody yet."""
        self._patience = max(1, patience)
        self._calls = 0
        self._since: dict[str, int] = {}
        self._used: dict[str, float] = {}
        self.loose: frozenset[str] = frozenset()
        self.idle: frozenset[str] = frozenset()

    def advance(
        self,
        parallel: Sequence[model.VmView],
        spinning: Sequence[model.VmView],
        used: Callable[[str], float],
    ) -> None:
        """Take in one period; forget VMs that are no longer shown.

        :param spinning: those of the parallel VMs that do.
        :param used: CPUs that a VM, by its uuid, would use.
        """
        self._calls = now = self._calls + 1
        takes_part = {vm.uuid for vm in spinning} - _lonely(spinning)
        known, average = self._since, self._used
        self._since = since = {
            vm.uuid: known.get(vm.uuid, now)
            for vm in parallel
            if vm.uuid not in takes_part
        }
        self._used = {
            uuid: _mean(average.get(uuid, 0.0), used(uuid), self._patience)
            for uuid in since
        }
        resting = {
            uuid
            for uuid, begin in since.items()
            if now - begin >= self._patience
        }
        idle = {
            uuid
            for uuid in resting
            if self._used[uuid]
            < LITTLE_CPUS * (1 if uuid in self.loose else 2)
        }
        if idle != self.idle:
            self.idle = frozenset(idle)
        loose = resting - idle
        if loose != self.loose:
            self.loose = frozenset(loose)


def _mean(before: float, now: float, periods: int) -> float:
    return before + (min(1.0, now) - before) / periods


def _lonely(spinning: Sequence[model.VmView]) -> set[str]:
    """VMs of one vCPU without a mate: nobody to run together with."""
    single = [vm for vm in spinning if vm.vcpus == 1]
    if not single:
        return set()
    members = collections.Counter(vm.cluster for vm in spinning)
    return {
        vm.uuid
        for vm in single
        if vm.cluster is None or members[vm.cluster] == 1
    }
