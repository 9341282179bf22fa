# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Divide the host's CPUs into I/O pool and computing pool.

I/O-perception paper, section III.C, "Cpupool topology optimization": the pools
lie in separate sockets, so that the members of a cluster share a cache when
they exchange data. Section VI.A leaves sizing the pools from demand to future
work; the sizing here is ours.

A pool may have fewer CPUs than vCPUs, but it must be as wide as each parallel
VM in it. Otherwise vCPUs of such a VM share a CPU, and one that spins for a
sibling keeps it from running. On Linux this made programs up to 1000 times
slower, much more than any pool can gain.
"""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.pinning import cpu_loads

WHOLE_CACHE_WITHIN = 8
"""A pool ends at the edge of a cache if that costs at most 1/8 of the CPUs."""


class Demand:
    """Demand on a pool: one item for each VM that belongs into it.

    :ivar vcpus: number of the VM's vCPUs.
    :ivar widths: number of CPUs that the VM needs: one for each vCPU of a
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
        """Return the demand of VMs up to a width, and of wider ones."""
        fit, rest = Demand(), Demand()
        for vcpus, width in zip(self.vcpus, self.widths, strict=True):
            part = fit if width <= max_width else rest
            part.vcpus.append(vcpus)
            part.widths.append(width)
        return fit, rest

    def plus(self, other: 'Demand') -> 'Demand':
        """Return the demand of the VMs of both."""
        both = Demand()
        both.vcpus = self.vcpus + other.vcpus
        both.widths = self.widths + other.widths
        return both


class PoolSizer:
    """Divides the host's CPUs into pools, with hysteresis.

    :ivar diagnostic: what was not done as configured, and why; or ''.
    :ivar max_width: width of the widest VM that may be in the I/O pool; the
        demand of wider ones was counted for the computing pool.
    """

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start with the smallest I/O pool, lent to the computing pool."""
        self._config = config
        self._size = 1
        # Sizes of the latest periods in a row in which less was demanded.
        self._smaller_sizes: list[int] = []
        self._idle_periods = config.pool_shrink_periods
        self.diagnostic = ''
        self.max_width = 0

    def divide(
        self,
        cpus: tuple[model.Cpu, ...],
        io: Demand,
        computing: Demand,
    ) -> model.Pools | None:
        """Return the pools of the next period; None if there can be none.

        :param cpus: CPUs of the host.
        :param io: demand of the VMs that belong into the I/O pool.
        :param computing: demand of all other VMs.
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
            # From the last socket, cache by cache: a pool that grows keeps
            # the CPUs that it has.
            ranked = cpu_loads.last_first(cpus)
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
            # No VM may lack CPUs that no other VM uses.
            or len(pools.computing) < min(computing.widest, total)
        )
        return model.Pools(pools.io, pools.computing, lent)

    def _configured(self, cpus: tuple[model.Cpu, ...]) -> model.Pools | None:
        """Return the configured pools, as far as the host has their CPUs."""
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

    def _with_hysteresis(self, target: int) -> int:
        """Return the size: grow at once, shrink after a delay."""
        if target >= self._size:
            self._size = target
            self._smaller_sizes.clear()
            return self._size
        self._smaller_sizes.append(target)
        if len(self._smaller_sizes) >= self._config.pool_shrink_periods:
            self._size = max(self._smaller_sizes)
            self._smaller_sizes.clear()
        return self._size


def _max_width(total: int, io: int, computing: int) -> int:
    """Return the greatest width of VMs in the I/O pool.

    :param total: number of CPUs of the host.
    :param io: width of the widest VM that belongs into the I/O pool.
    :param computing: width of the widest VM that belongs into the computing
        pool.
    """
    # The computing pool keeps at least one CPU.
    max_width = total - min(max(computing, 1), total)
    if io <= max_width:
        return max_width
    # The widest VM stays in the computing pool, which must be as wide.
    return total - min(max(io, computing), total)


def _target(
    ranked: list[model.Cpu], io: Demand, computing: Demand, most: int
) -> int:
    """Return the number of CPUs of the I/O pool by demand, 1 to ``most``.

    It is in proportion to vCPUs, but both pools are as wide as each parallel
    VM in them. They are as wide as other VMs, whose vCPUs may share CPUs, up
    to half of the host.

    :param ranked: CPUs of the host, in the order in which the pool grows.
    :param most: greatest number of CPUs.
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
    """Return the nearest size that divides no cache, or ``target``."""
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
