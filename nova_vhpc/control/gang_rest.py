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

"""Which parallel VMs are to run where the kernel likes.

A vCPU that is pinned waits for its CPU while others are idle. That is worth it
for siblings that are to run together; for a VM that takes part in no windows
it is only a loss, and its pins would keep gangs off CPUs that it does not use.
"""

import collections
from collections.abc import Sequence

from nova_vhpc.control import model


class Resting:
    """Follows who takes part, without haste: each change moves pins.

    :param patience: control periods in a row in which a VM must not take
        part before it is let loose. It is pinned again at once.
    :ivar loose: uuids of those who are; the same object while they stay.
    """

    def __init__(self, patience: int) -> None:
        """Know nobody yet."""
        self._patience = patience
        self._calls = 0
        self._since: dict[str, int] = {}
        self.loose: frozenset[str] = frozenset()

    def advance(
        self,
        parallel: Sequence[model.VmView],
        spinning: Sequence[model.VmView],
    ) -> None:
        """Take in one period; forget VMs that are no longer shown.

        :param spinning: those of the parallel VMs that do.
        """
        self._calls = now = self._calls + 1
        takes_part = {vm.uuid for vm in spinning} - _lonely(spinning)
        known = self._since
        self._since = since = {
            vm.uuid: known.get(vm.uuid, now)
            for vm in parallel
            if vm.uuid not in takes_part
        }
        loose = {
            uuid
            for uuid, begin in since.items()
            if now - begin >= self._patience
        }
        if loose != self.loose:
            self.loose = frozenset(loose)


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
