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

"""Which CPUs are the I/O pool, and which the computing pool.

I/O-perception paper, section III.C, "Cpupool topology optimization": the
pools lie in separate sockets, so that the members of a cluster share a
cache when they exchange data. Section VI.A leaves sizing them from demand
to future work; here is ours.
"""

from collections.abc import Sequence

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model

WHOLE_CACHE_WITHIN = 8
"""The pool ends at a cache's edge if that costs at most 1/8 of the host."""


class PoolSizer:
    """Divides the host's CPUs, and keeps to it."""

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start with the smallest I/O pool, lent out."""
        self._config = config
        self._size = 1
        self._smaller_for = 0
        self._smaller_size = 0
        self._idle_for = config.pool_shrink_periods
        self._cpus: tuple[model.Cpu, ...] = ()
        self._order: list[model.Cpu] = []
        self.remark = ''

    def divide(
        self,
        cpus: tuple[model.Cpu, ...],
        io_vcpus: Sequence[int],
        computing_vcpus: Sequence[int],
    ) -> model.Pools | None:
        """The pools of the coming period; None where there can be none.

        :param io_vcpus: vCPUs of each VM that belongs into the I/O pool.
        :param computing_vcpus: of each of the others.
        """
        self.remark = ''
        if len(cpus) < 2:
            self.remark = (
                f'no pools: {len(cpus)} CPU to pin to, and two pools need two'
            )
            return None
        pools = self._configured(cpus)
        if pools is None:
            ranked = self._ranked(cpus)
            size = self._settle(_target(ranked, io_vcpus, computing_vcpus))
            size = min(size, len(ranked) - 1)
            pools = model.Pools(
                io=frozenset(cpu.id for cpu in ranked[:size]),
                computing=frozenset(cpu.id for cpu in ranked[size:]),
            )
        self._idle_for = 0 if io_vcpus else self._idle_for + 1
        lent = self._idle_for >= self._config.pool_shrink_periods
        return model.Pools(pools.io, pools.computing, lent)

    def _configured(self, cpus: tuple[model.Cpu, ...]) -> model.Pools | None:
        """The operator's pools, as far as their CPUs are there."""
        wanted_io = self._config.io_pool_cpus
        wanted_computing = self._config.computing_pool_cpus
        if wanted_io is None and wanted_computing is None:
            return None
        usable = frozenset(cpu.id for cpu in cpus)
        if wanted_io is None:
            io = usable - (wanted_computing or frozenset())
        else:
            io = usable & wanted_io
        if wanted_computing is None:
            computing = usable - io
        else:
            computing = (usable & wanted_computing) - io
        if io and computing:
            return model.Pools(io, computing)
        self.remark = (
            'configured pools leave no CPU for '
            f'{"computing" if io else "I/O"} here; sized from demand instead'
        )
        return None

    def _ranked(self, cpus: tuple[model.Cpu, ...]) -> list[model.Cpu]:
        """CPUs in the order in which the I/O pool takes them.

        From the last socket, cache by cache: the host's own work tends to
        be on the first CPUs, and a pool that grows keeps what it has.
        """
        if cpus != self._cpus:
            self._cpus = cpus
            self._order = sorted(
                cpus,
                key=lambda cpu: (cpu.socket, cpu.llc, cpu.core, cpu.id),
                reverse=True,
            )
        return self._order

    def _settle(self, target: int) -> int:
        """Grow at once, shrink only when less was enough for long."""
        if target >= self._size:
            self._size = target
            self._smaller_for = 0
            self._smaller_size = 0
            return self._size
        self._smaller_for += 1
        self._smaller_size = max(self._smaller_size, target)
        if self._smaller_for >= self._config.pool_shrink_periods:
            self._size = self._smaller_size
            self._smaller_for = 0
            self._smaller_size = 0
        return self._size


def _target(
    ranked: list[model.Cpu],
    io_vcpus: Sequence[int],
    computing_vcpus: Sequence[int],
) -> int:
    """CPUs that the I/O pool ought to have by demand; 1 .. all but one.

    In proportion to vCPUs, but siblings of a VM shall be on different
    CPUs, in either pool, as far as half of the host goes.
    """
    total = len(ranked)
    if not io_vcpus:
        return 1
    demand = sum(io_vcpus)
    share = -(-total * demand // (demand + sum(computing_vcpus)))
    least = min(max(io_vcpus), max(1, total // 2))
    most = total - min(max(computing_vcpus, default=1), max(1, total // 2))
    target = min(max(share, least), demand)
    target = _to_cache_edge(ranked, target)
    return max(1, min(max(target, least), most, total - 1))


def _to_cache_edge(ranked: list[model.Cpu], target: int) -> int:
    """The nearest size that leaves no cache divided, if it is near."""
    edges = [
        index
        for index in range(1, len(ranked))
        if (ranked[index].socket, ranked[index].llc)
        != (ranked[index - 1].socket, ranked[index - 1].llc)
    ]
    if not edges:
        return target
    nearest = min(edges, key=lambda edge: (abs(edge - target), edge))
    if abs(nearest - target) * WHOLE_CACHE_WITHIN <= len(ranked):
        return nearest
    return target
