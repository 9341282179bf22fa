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

"""Parallel VMs that take part in no windows, and should not be pinned.

A pinned vCPU waits for its CPU even if others are idle. That is worth it for
siblings that are to run together. For a VM that takes part in no windows it is
only a loss, so such a VM should run where the kernel likes. Pins do no harm to
a VM that does nothing, as long as they keep no other VM off its CPUs.
"""

import collections
from collections.abc import Callable, Sequence

from nova_vhpc.control import model

IDLE_CPUS = 0.1
"""CPUs that an idle VM uses at most, to keep its clock, on the mean over some
time; it must use twice that to count as active. Use beyond one CPU is cut off:
one busy moment would otherwise count for long."""


class NonParticipants:
    """Follows, slowly, which parallel VMs take part in no windows.

    Slowly because each change moves pins.

    :param patience: control periods in a row without taking part after which
        a VM counts as not participating. It participates again at once.
    :ivar unpinned: uuids of non-participating VMs that are active, and so
        should not be pinned.
    :ivar idle: uuids of non-participating VMs that do nothing. Both sets are
        the same objects until they change.
    """

    def __init__(self, patience: int) -> None:
        """Start without any VM."""
        self._patience = max(1, patience)
        self._calls = 0
        self._since: dict[str, int] = {}
        self._mean_cpus: dict[str, float] = {}
        self.unpinned: frozenset[str] = frozenset()
        self.idle: frozenset[str] = frozenset()

    def advance(
        self,
        parallel: Sequence[model.VmView],
        spinning: Sequence[model.VmView],
        cpus_of: Callable[[str], float],
    ) -> None:
        """Add one control period; forget VMs that are not in it.

        :param parallel: all parallel VMs.
        :param spinning: the parallel VMs that spin.
        :param cpus_of: returns how many CPUs a VM, by uuid, would use.
        """
        self._calls = now = self._calls + 1
        participating = {vm.uuid for vm in spinning} - _singletons(spinning)
        earlier_since, earlier_mean = self._since, self._mean_cpus
        self._since = since = {
            vm.uuid: earlier_since.get(vm.uuid, now)
            for vm in parallel
            if vm.uuid not in participating
        }
        self._mean_cpus = {
            uuid: _mean(
                earlier_mean.get(uuid, 0.0), cpus_of(uuid), self._patience
            )
            for uuid in since
        }
        non_participating = {
            uuid
            for uuid, begin in since.items()
            if now - begin >= self._patience
        }
        idle = {
            uuid
            for uuid in non_participating
            if self._mean_cpus[uuid]
            < IDLE_CPUS * (1 if uuid in self.unpinned else 2)
        }
        if idle != self.idle:
            self.idle = frozenset(idle)
        unpinned = non_participating - idle
        if unpinned != self.unpinned:
            self.unpinned = frozenset(unpinned)


def _mean(before: float, now: float, periods: int) -> float:
    """Return the exponential moving average of CPUs, each at most 1."""
    return before + (min(1.0, now) - before) / periods


def _singletons(spinning: Sequence[model.VmView]) -> set[str]:
    """Return VMs of one vCPU without a cluster mate to run together with."""
    single = [vm for vm in spinning if vm.vcpus == 1]
    if not single:
        return set()
    members = collections.Counter(vm.cluster for vm in spinning)
    return {
        vm.uuid
        for vm in single
        if vm.cluster is None or members[vm.cluster] == 1
    }
