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

"""Which CPUs of the host a VM may be pinned to.

With 64 CPUs, to intersect and hash a set takes a microsecond: for each VM,
in each tick, as much as all else that a pinning policy does.
"""

from nova_vhpc.control import model

MAX_SETS = 4_096
"""Sets of CPUs remembered; VMs come and go, and memory is bounded."""


class UsableCpus:
    """CPUs that VMs may be pinned to.

    Many VMs, few different sets: each is intersected once, and kept.

    :ivar all_cpus: of the host.
    """

    __slots__ = ('_cpus', '_within', 'all_cpus')

    def __init__(self) -> None:
        """Start without any CPU."""
        self.all_cpus: frozenset[int] = frozenset()
        self._cpus: tuple[model.Cpu, ...] = ()
        self._within: dict[frozenset[int] | None, frozenset[int]] = {}

    def update(self, cpus: tuple[model.Cpu, ...]) -> bool:
        """Take the host's CPUs, each tick.

        :returns: whether what was answered before is void.
        """
        if cpus == self._cpus and len(self._within) <= MAX_SETS:
            return False
        self._cpus = cpus
        self.all_cpus = frozenset(cpu.id for cpu in cpus)
        self._within = {}
        return True

    def of(self, vm: model.VmView) -> frozenset[int]:
        """CPUs of the host for one VM; empty if there are none.

        The same object for VMs that may use the same CPUs.
        """
        allowed = vm.allowed_cpus
        within = self._within.get(allowed)
        if within is None:
            within = (
                self.all_cpus if allowed is None else self.all_cpus & allowed
            )
            self._within[allowed] = within
        return within


def last_first(cpus: tuple[model.Cpu, ...]) -> list[model.Cpu]:
    """The host's CPUs backwards: threads of a core, cores of a cache together.

    Who takes some for a purpose begins there, as the host's own work tends
    to be on the first.
    """
    return sorted(
        cpus,
        key=lambda cpu: (cpu.socket, cpu.llc, cpu.core, cpu.id),
        reverse=True,
    )
