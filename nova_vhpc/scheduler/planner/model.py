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


"""The words of the planner: hosts, the request and the answer.

Plain values, pure. :class:`HostFacts` is a named tuple and no dataclass,
since a scheduler makes ten thousand of them for one request.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

NO_LIMIT = 1 << 30
"""``HostFacts.slots`` where nothing but CPUs and RAM limits the members."""


class Tier(enum.IntEnum):
    """The smallest part of the fabric that holds a whole placement."""

    HOST = 0
    SWITCH = 1
    RACK = 2
    ALL = 3


class Policy(enum.StrEnum):
    """Nova's server group policies."""

    AFFINITY = 'affinity'
    SOFT_AFFINITY = 'soft-affinity'
    ANTI_AFFINITY = 'anti-affinity'
    SOFT_ANTI_AFFINITY = 'soft-anti-affinity'


class HostFacts(NamedTuple):
    """What the planner must know of one host that passed the filters.

    :ivar name: any name that is unique among the hosts of the request.
    :ivar total_cpus: host CPUs (``HostState.vcpus_total``).
    :ivar used_vcpus: vCPUs of all guests that run or are claimed there.
    :ivar free_cpus: vCPUs that Nova would still claim there (total times
        allocation ratio, less the used ones).
    :ivar free_ram_mb: RAM that Nova would still claim there, in MB.
    :ivar slots: members that its free uplinks can still take in this
        network configuration, its devices and its disk; :data:`NO_LIMIT`
        if they take none of these.
    :ivar link_mbps: speed of the slowest uplink that would be used, in
        Mbit/s; 0 when unknown, taken as 1000.
    :ivar switch: value of ``vhpc:switch`` of its aggregate, or None.
    :ivar rack: value of ``vhpc:rack`` of its aggregate, or None.
    """

    name: str
    total_cpus: int
    used_vcpus: int
    free_cpus: float
    free_ram_mb: float
    slots: int = NO_LIMIT
    link_mbps: int = 1000
    switch: str | None = None
    rack: str | None = None


def one_of(name: str | None, other: str | None) -> str | None:
    """Which of two switches or racks counts that aggregates name for a host.

    Always the same, in whatever order Nova has the aggregates: hosts that
    are in both are to be seen together.
    """
    return min(name, other) if name and other else name or other or None


@dataclasses.dataclass(frozen=True, slots=True)
class PlanRequest:
    """A virtual cluster to be placed, and where it may go.

    :ivar members: members to place now, without the running ones.
    :ivar vcpus: vCPUs of one member.
    :ivar ram_mb: RAM of one member in MB.
    :ivar hosts: all hosts that may take members. A host that holds
        members but takes no more belongs here too, with ``slots=0``:
        then its place in the fabric is known.
    :ivar network: network configuration, None if the flavor names none
        (its cost is then that of ``shared``, what Nova does by default).
    :ivar paradigm: ``mpi``, ``openmp`` or ``hybrid``.
    :ivar policy: of the server group, or None.
    :ivar max_server_per_host: rule of ``anti-affinity``; None is 1.
    :ivar spare_cpus: host CPUs to leave free for packet work.
    :ivar max_overcommit: vCPUs per remaining host CPU at most.
    :ivar existing: members that run already: host name to their number.
    """

    members: int
    vcpus: int
    ram_mb: int
    hosts: Sequence[HostFacts]
    network: str | None = None
    paradigm: str = 'mpi'
    policy: str | None = None
    max_server_per_host: int | None = None
    spare_cpus: int = 0
    max_overcommit: float = 1.0
    existing: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterPlacement:
    """How many new members each host gets.

    :ivar assignments: host name to number of new members (>= 1), in the
        order in which the hosts should be filled; empty if infeasible.
    :ivar cost: predicted communication cost of the whole cluster, in
        microseconds per nominal message
        (:mod:`nova_vhpc.scheduler.planner.objective`); ``inf`` if
        infeasible.
    :ivar tier: smallest tier that holds running and new members.
    :ivar infeasible_reason: for people, None if there is a placement.
    """

    assignments: Mapping[str, int]
    cost: float
    tier: Tier = Tier.ALL
    infeasible_reason: str | None = None
