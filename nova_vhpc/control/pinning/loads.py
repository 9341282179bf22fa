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

"""What is on each CPU, and which CPUs are best for one more VM."""

import collections
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from nova_vhpc.control import model

Place = tuple[int, ...]
"""One CPU per vCPU."""


class Request(NamedTuple):
    """A VM that is to be spread.

    :ivar domain: CPUs that it may get; not empty.
    :ivar compact: inside one last-level cache, if it fits.
    :ivar mates: VMs with the same name run together, so they are kept
        apart from each other like siblings; '' for none.
    :ivar idle: it does nothing, so it is no load.
    """

    uuid: str
    vcpus: int
    domain: frozenset[int]
    compact: bool = False
    mates: str = ''
    idle: bool = False


class Loads:
    """How many vCPUs are on each CPU, core and cache."""

    def __init__(self, cpus: Iterable[model.Cpu]) -> None:
        """Start with nobody placed."""
        # Numbers of cores and caches: tuples take longer to look up.
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
        # By name and CPU.
        self._mates: dict[str, dict[int, int]] = {}

    def add(self, request: Request, place: Place, by: int = 1) -> None:
        """Count a VM that is placed."""
        if request.idle:
            return
        for cpu in place:
            self._on_cpu[cpu] += by
            self._on_core[self._core[cpu]] += by
            self._on_cache[self._cache[cpu]] += by
        if not request.mates:
            return
        mates = self._mates.setdefault(request.mates, {})
        for cpu in place:
            count = mates.get(cpu, 0) + by
            if count:
                mates[cpu] = count
            else:
                del mates[cpu]
        if not mates:
            del self._mates[request.mates]

    def remove(self, request: Request, place: Place) -> None:
        """Count it no longer."""
        self.add(request, place, by=-1)

    def height(self, place: Place) -> int:
        """Load of the fullest of a VM's CPUs."""
        return max(self._on_cpu[cpu] for cpu in place)

    def roughness(self, place: Place) -> int:
        """What a VM meets on its CPUs; less is more even."""
        counts = collections.Counter(place)
        return sum(
            count * self._on_cpu[cpu] + count * (count - 1) // 2
            for cpu, count in counts.items()
        )

    def find(self, request: Request) -> Place:
        """The best CPUs for a VM that is not placed."""
        ranked = self._ranked(request)
        if request.compact:
            inside = self._inside_one_cache(request, ranked)
            if inside is not None:
                return inside
        return self._pick(ranked, request.vcpus)

    def _ranked(self, request: Request) -> list[int]:
        """The CPUs of its domain, the best one first."""
        on_cpu, on_core, on_cache = self._on_cpu, self._on_core, self._on_cache
        core, cache = self._core, self._cache
        mates = self._mates.get(request.mates, {})
        ranks = [
            (
                on_cpu[cpu],
                mates.get(cpu, 0),
                on_core[core[cpu]],
                on_cache[cache[cpu]],
                cpu,
            )
            for cpu in request.domain
        ]
        return [rank[-1] for rank in sorted(ranks)]

    def _inside_one_cache(
        self, request: Request, ranked: list[int]
    ) -> Place | None:
        """The least loaded cache that has a CPU for every vCPU."""
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
        return min(places, key=lambda place: (self.roughness(place), place))

    def _pick(self, ranked: list[int], vcpus: int) -> Place:
        """The first CPUs, on different cores as far as there are any.

        A core's second thread is taken only before a busier CPU would be.
        """
        rounds, rest = divmod(vcpus, len(ranked))
        chosen = ranked * rounds
        cores: set[int] = set()
        picked: list[int] = []
        for _, group in itertools.groupby(ranked, self._on_cpu.__getitem__):
            second: list[int] = []
            for cpu in group:
                core = self._core[cpu]
                if core in cores:
                    second.append(cpu)
                else:
                    cores.add(core)
                    picked.append(cpu)
            picked.extend(second)
            if len(picked) >= rest:
                break
        return tuple(sorted(chosen + picked[:rest]))
