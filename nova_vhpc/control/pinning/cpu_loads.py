# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The CPUs that a VM may use, their loads, and the best for one more VM."""

import collections
from collections.abc import Iterable
from typing import NamedTuple

from nova_vhpc.control import fair_share, model

Place = tuple[int, ...]
"""One CPU per vCPU."""

WHOLE = 1_024
"""Load of a CPU that one vCPU uses all the time."""

_LEVEL = WHOLE // 8
"""Loads that differ by less count as equal: then a free core decides."""

MAX_SETS = 4_096
"""Sets of CPUs kept; bounds memory, since VMs come and go."""


class UsableCpus:
    """CPUs of the host that VMs may be pinned to.

    Many VMs have few different sets of allowed CPUs, so intersections are
    kept. To intersect for each VM in each tick takes 8% more of a decision
    (gang and balance, 200 VMs on 64 CPUs), most of it for hashing the results.

    :ivar all_cpus: all CPUs of the host.
    """

    __slots__ = ('_cpus', '_within', 'all_cpus')

    def __init__(self) -> None:
        """Start without any CPU."""
        self.all_cpus: frozenset[int] = frozenset()
        self._cpus: tuple[model.Cpu, ...] = ()
        self._within: dict[frozenset[int] | None, frozenset[int]] = {}

    def update(self, cpus: tuple[model.Cpu, ...]) -> bool:
        """Take the host's CPUs, once per tick.

        :returns: whether former results of :meth:`of` are void.
        """
        if cpus == self._cpus and len(self._within) <= MAX_SETS:
            return False
        self._cpus = cpus
        self.all_cpus = frozenset(cpu.id for cpu in cpus)
        self._within = {}
        return True

    def of(self, vm: model.VmView) -> frozenset[int]:
        """Return the CPUs for one VM; empty if it may use none of the host.

        VMs with equal allowed CPUs get the same object.
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
    """Return the host's CPUs, last socket first.

    The threads of a core and the cores of a cache are together. CPUs that are
    set apart for a purpose are taken in this order, because the host's own
    work tends to be on the first CPUs.
    """
    return sorted(
        cpus,
        key=lambda cpu: (cpu.socket, cpu.llc, cpu.core, cpu.id),
        reverse=True,
    )


class Request(NamedTuple):
    """A VM whose vCPUs are to be spread over CPUs.

    :ivar allowed_cpus: CPUs that the VM may get; not empty.
    :ivar compact: whether it should stay within one last-level cache, if it
        fits.
    :ivar cluster: name of its virtual cluster, whose members run at the same
        time and are kept apart from each other like siblings; '' for none.
    :ivar idle: whether it does nothing, so that it is no load.
    :ivar weight: original CPU shares of the whole VM.
    """

    uuid: str
    vcpus: int
    allowed_cpus: frozenset[int]
    compact: bool = False
    cluster: str = ''
    idle: bool = False
    weight: int = 1


def fair_loads(requests: Iterable[Request], cpus: int) -> dict[str, int]:
    """Return the load of one vCPU of each VM, in parts of :data:`WHOLE`.

    It is the CPU time that the vCPU would get if all CPUs were divided fairly
    by weight. So a vCPU of a narrow VM is a greater load than one of a wide VM
    with the same weight. If these loads are even over the CPUs, each VM can
    have its fair share.

    :param cpus: number of CPUs of the host.
    :returns: by UUID; idle VMs are missing.
    """
    demands = {
        one.uuid: fair_share.Demand(one.weight, one.vcpus, one.allowed_cpus)
        for one in requests
        if not one.idle
    }
    among = collections.Counter(demands.values())
    fair = fair_share.divide(
        among,
        lambda allowed_cpus: (
            cpus if allowed_cpus is None else len(allowed_cpus)
        ),
    )
    # Many VMs, few different demands.
    load = {
        demand: max(1, round(WHOLE * fair.get(demand, 0.0) / demand.cpus))
        for demand in among
    }
    return {uuid: load[demand] for uuid, demand in demands.items()}


class CpuLoads:
    """Loads of each CPU, core and last-level cache.

    All loads are in parts of a CPU (:data:`WHOLE`).
    """

    def __init__(self, cpus: Iterable[model.Cpu]) -> None:
        """Start without any VM."""
        # Cores and caches are numbered: tuples take longer to look up.
        cores: dict[tuple[int, int, int], int] = {}
        caches: dict[tuple[int, int], int] = {}
        self._core: dict[int, int] = {}
        self._cache: dict[int, int] = {}
        self._on_cpu: dict[int, int] = {}
        for cpu in cpus:
            cache = (cpu.socket, cpu.llc)
            self._core[cpu.id] = cores.setdefault(
                (*cache, cpu.core), len(cores)
            )
            self._cache[cpu.id] = caches.setdefault(cache, len(caches))
            self._on_cpu[cpu.id] = 0
        self._on_core = [0] * len(cores)
        self._on_cache = [0] * len(caches)
        # By cluster and CPU: number of vCPUs.
        self._members: dict[str, dict[int, int]] = {}

    def add(self, request: Request, place: Place, load: int) -> None:
        """Add the load of a VM.

        :param place: CPUs of its vCPUs.
        :param load: load of each vCPU; 0 if the VM is idle.
        """
        self._count(request, place, load, 1)

    def remove(self, request: Request, place: Place, load: int) -> None:
        """Remove the load of a VM; arguments as for :meth:`add`."""
        self._count(request, place, -load, -1)

    def reweigh(self, changes: Iterable[tuple[Place, int]]) -> None:
        """Change the loads of many VMs at a time.

        :param changes: for each VM, the CPUs of its vCPUs, and by how much
            the load of each vCPU grows. None of the VMs was idle or is now.
        """
        on_cpu = self._on_cpu
        for place, more in changes:
            for cpu in place:
                on_cpu[cpu] += more
        # Takes less time than to add each vCPU to core and cache.
        self._on_core = [0] * len(self._on_core)
        self._on_cache = [0] * len(self._on_cache)
        for cpu, load in on_cpu.items():
            self._on_core[self._core[cpu]] += load
            self._on_cache[self._cache[cpu]] += load

    def _count(
        self, request: Request, place: Place, load: int, vcpus: int
    ) -> None:
        if not load:
            return
        for cpu in place:
            self._on_cpu[cpu] += load
            self._on_core[self._core[cpu]] += load
            self._on_cache[self._cache[cpu]] += load
        if not request.cluster:
            return
        members = self._members.setdefault(request.cluster, {})
        for cpu in place:
            count = members.get(cpu, 0) + vcpus
            if count:
                members[cpu] = count
            else:
                del members[cpu]
        if not members:
            del self._members[request.cluster]

    def height(self, place: Place) -> int:
        """Return the load of the most loaded CPU of a place."""
        return max(map(self._on_cpu.__getitem__, place))

    def roughness(self, place: Place, load: int) -> int:
        """Return the sum of the other loads that each vCPU of a VM meets.

        The smaller, the more evenly the VM's place spreads the load.

        :param place: CPUs of the vCPUs, not counted for the VM itself.
        :param load: load of each vCPU of the VM.
        """
        if len(set(place)) == len(place):
            return sum(map(self._on_cpu.__getitem__, place))
        counts = collections.Counter(place)
        return sum(
            count * self._on_cpu[cpu] + load * count * (count - 1) // 2
            for cpu, count in counts.items()
        )

    def find(self, request: Request, load: int) -> Place:
        """Return the best CPUs for a VM that has none.

        :param load: load of each of its vCPUs.
        """
        ranked = self._ranked(request)
        if request.compact:
            inside = self._inside_one_cache(request, load, ranked)
            if inside is not None:
                return inside
        return self._pick(ranked, request.vcpus)

    def _ranked(self, request: Request) -> list[int]:
        """Return the VM's allowed CPUs, the best one first."""
        on_cpu, on_core, on_cache = self._on_cpu, self._on_core, self._on_cache
        core, cache = self._core, self._cache
        members = self._members.get(request.cluster, {})
        ranks = [
            (
                on_cpu[cpu] // _LEVEL,
                members.get(cpu, 0),
                on_core[core[cpu]],
                on_cache[cache[cpu]],
                cpu,
            )
            for cpu in request.allowed_cpus
        ]
        return [rank[-1] for rank in sorted(ranks)]

    def _inside_one_cache(
        self, request: Request, load: int, ranked: list[int]
    ) -> Place | None:
        """Return CPUs of the best cache that has one per vCPU, if any."""
        caches: dict[int, list[int]] = {}
        for cpu in ranked:
            caches.setdefault(self._cache[cpu], []).append(cpu)
        places = [
            self._pick(cpus, request.vcpus)
            for cpus in caches.values()
            if len(cpus) >= request.vcpus
        ]
        if not places:
            return None
        return min(places, key=lambda one: (self.roughness(one, load), one))

    def _pick(self, ranked: list[int], vcpus: int) -> Place:
        """Return the first CPUs, on different cores as far as possible.

        The second thread of a core comes after all cores of the same load,
        but before CPUs of a higher load.
        """
        rounds, rest = divmod(vcpus, len(ranked))
        cores: set[int] = set()
        picked: list[int] = []
        second: list[int] = []
        level = -1
        for cpu in ranked:
            its_level = self._on_cpu[cpu] // _LEVEL
            if its_level != level:
                level = its_level
                picked += second
                second = []
            if len(picked) >= rest:
                break
            core = self._core[cpu]
            if core in cores:
                second.append(cpu)
            else:
                cores.add(core)
                picked.append(cpu)
        picked += second
        return tuple(sorted(ranked * rounds + picked[:rest]))
