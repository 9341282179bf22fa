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

A pool may be short of CPUs, but not narrower than a parallel VM in it: the
vCPUs of such a VM would share a CPU, and one that spins for its sibling keeps
it from running. On Linux that made programs up to 1000 times slower, much more
than any pool can win.
"""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.pinning import usable_cpus

WHOLE_CACHE_WITHIN = 8
"""The pool ends at a cache's edge if that costs at most 1/8 of the host."""


class Demand:
    """What the VMs that belong into a pool want of it, one item per VM.

    :ivar vcpus: their vCPUs.
    :ivar widths: CPUs that each must have there: one for each vCPU of a
        parallel VM, one for any other VM.
    """

    __slots__ = ('vcpus', 'widths')

    def __init__(self) -> None:
        self.vcpus: list[int] = []
        self.widths: list[int] = []

    @property
    def widest(self) -> int:
        """The greatest width; 0 without any VM."""
        return max(self.widths, default=0)

    def split_by_width(self, max_width: int) -> 'tuple[Demand, Demand]':
        """Those that fit into a pool, and those that do not."""
        fit, rest = Demand(), Demand()
        for vcpus, width in zip(self.vcpus, self.widths, strict=True):
            part = fit if width <= max_width else rest
            part.vcpus.append(vcpus)
            part.widths.append(width)
        return fit, rest

    def plus(self, other: 'Demand') -> 'Demand':
        """Both together."""
        both = Demand()
        both.vcpus = self.vcpus + other.vcpus
        both.widths = self.widths + other.widths
        return both


class PoolSizer:
    """Divides the host's CPUs, and keeps to it.

    :ivar diagnostic: what was not done as configured, and why; or ''.
    :ivar max_width: width of the widest VM that may be in the I/O pool; wider
        ones were not counted there but in the computing pool.
    """

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start with the smallest I/O pool, lent out."""
        self._config = config
        self._size = 1
        self._smaller_periods = 0
        self._smaller_size = 0
        self._idle_periods = config.pool_shrink_periods
        self._cpus: tuple[model.Cpu, ...] = ()
        self._order: list[model.Cpu] = []
        self.diagnostic = ''
        self.max_width = 0

    def divide(
        self,
        cpus: tuple[model.Cpu, ...],
        io: Demand,
        computing: Demand,
    ) -> model.Pools | None:
        """The pools of the coming period; None where there can be none.

        :param io: of the VMs that belong into the I/O pool.
        :param computing: of the others.
        """
        self.diagnostic = ''
        self.max_width = 0
        if len(cpus) < 2:
            self.diagnostic = (
                f'no pools: {len(cpus)} CPU to pin to, and two pools need two'
            )
            return None
        total = len(cpus)
        pools = self._configured(cpus)
        if pools is None:
            self.max_width = _max_width(total, io.widest, computing.widest)
        else:
            self.max_width = len(pools.io)
        if io.widest > self.max_width:
            io, outside = io.split_by_width(self.max_width)
            computing = computing.plus(outside)
        if pools is None:
            ranked = self._ranked(cpus)
            most = max(1, min(total - computing.widest, total - 1))
            size = self._with_hysteresis(_target(ranked, io, computing, most))
            size = min(size, most)
            pools = model.Pools(
                io=frozenset(cpu.id for cpu in ranked[:size]),
                computing=frozenset(cpu.id for cpu in ranked[size:]),
            )
        self._idle_periods = 0 if io.vcpus else self._idle_periods + 1
        lent = not io.vcpus and (
            self._idle_periods >= self._config.pool_shrink_periods
            # Nobody is to be short of CPUs that nobody uses.
            or len(pools.computing) < min(computing.widest, total)
        )
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
        self.diagnostic = (
            'configured pools leave no CPU for '
            f'{"computing" if io else "I/O"} here; sized from demand instead'
        )
        return None

    def _ranked(self, cpus: tuple[model.Cpu, ...]) -> list[model.Cpu]:
        """CPUs in the order in which the I/O pool takes them.

        From the last socket, cache by cache: a pool that grows keeps what
        it has.
        """
        if cpus != self._cpus:
            self._cpus = cpus
            self._order = usable_cpus.last_first(cpus)
        return self._order

    def _with_hysteresis(self, target: int) -> int:
        """Grow at once, shrink only when less was enough for long."""
        if target >= self._size:
            self._size = target
            self._smaller_periods = 0
            self._smaller_size = 0
            return self._size
        self._smaller_periods += 1
        self._smaller_size = max(self._smaller_size, target)
        if self._smaller_periods >= self._config.pool_shrink_periods:
            self._size = self._smaller_size
            self._smaller_periods = 0
            self._smaller_size = 0
        return self._size


def _max_width(total: int, io: int, computing: int) -> int:
    """How wide a VM in the I/O pool may be.

    :param total: CPUs of the host.
    :param io: width of the widest VM that belongs into the I/O pool.
    :param computing: the same for the computing pool.
    """
    # Never the last CPU of the computing pool.
    max_width = total - min(max(computing, 1), total)
    if io <= max_width:
        return max_width
    # That one stays in the computing pool, which must be wide enough for it.
    return total - min(max(io, computing), total)


def _target(
    ranked: list[model.Cpu], io: Demand, computing: Demand, most: int
) -> int:
    """CPUs that the I/O pool ought to have by demand; 1 .. most.

    In proportion to vCPUs, but wide enough for every parallel VM; and for
    others, whose vCPUs may share CPUs, as far as half of the host goes.
    """
    if not io.vcpus:
        return 1
    total = len(ranked)
    half = max(1, total // 2)
    demand = sum(io.vcpus)
    share = -(-total * demand // (demand + sum(computing.vcpus)))
    least = max(io.widest, min(max(io.vcpus), half))
    spare = total - min(max(computing.vcpus, default=1), half)
    target = _to_cache_edge(ranked, min(max(share, least), demand))
    target = min(max(target, least), max(spare, io.widest))
    return max(1, min(target, most))


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
