# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The planner's values: hosts, the request and the placement.

:class:`HostFacts` is a named tuple, which is faster to make than a frozen
dataclass: a scheduler makes ten thousand of them for one request.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nova_vhpc.scheduler.planner import cost_table

NO_LIMIT = 1 << 30
"""``HostFacts.slots`` of a host that only CPUs and RAM limit."""


class Tier(enum.IntEnum):
    """Smallest part of the fabric that contains a whole placement."""

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


class Rail(NamedTuple):
    """The free uplinks of one host on one rail.

    :ivar name: name of the rail; empty for uplinks whose rail is unknown.
    :ivar slots: number of members that can still claim them.
    :ivar mbps: speed of the slowest of them, in Mbit/s.
    """

    name: str
    slots: int
    mbps: int


class HostFacts(NamedTuple):
    """One host that passed the filters, as the planner sees it.

    :ivar name: name that is unique among the hosts of the request.
    :ivar total_cpus: host CPUs (``HostState.vcpus_total``).
    :ivar used_vcpus: vCPUs of all guests that run or are being built there.
    :ivar free_cpus: vCPUs that Nova can still allocate there: total times
        allocation ratio, minus the used ones.
    :ivar free_ram_mb: RAM that Nova can still allocate there, in MB.
    :ivar slots: members for which the host has free uplinks (in the
        request's network configuration), PCI devices and disk;
        :data:`NO_LIMIT` if members need none of these.
    :ivar link_mbps: speed of the slowest uplink that members would use, in
        Mbit/s; 0 if unknown, which counts as 1000.
    :ivar switch: ``vhpc:switch`` of the host's aggregate, or None.
    :ivar rack: ``vhpc:rack`` of the host's aggregate, or None.
    :ivar clusters: ids of the other virtual clusters with members there, as
        far as known.
    :ivar rails: rails of its free uplinks; empty if the rail of an uplink
        does not matter to the members' packets.
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
    clusters: frozenset[str] = frozenset()
    rails: tuple[Rail, ...] = ()


def one_of(name: str | None, other: str | None) -> str | None:
    """Choose between two switches (or racks) that aggregates give a host.

    The choice does not depend on the order in which Nova lists aggregates,
    so all hosts that are in both aggregates get the same switch.
    """
    return min(name, other) if name and other else name or other or None


@dataclasses.dataclass(frozen=True, slots=True)
class PlanRequest:
    """A virtual cluster to place, and the hosts that may take it.

    :ivar members: number of members to place now, running ones excluded.
    :ivar vcpus: vCPUs of one member.
    :ivar ram_mb: RAM of one member in MB.
    :ivar hosts: all hosts that may take members. A host with running
        members that can take no more belongs here too, with ``slots=0``,
        so that its switch and rack are known.
    :ivar network: network configuration; None if the flavor names none,
        which costs as much as ``shared``, Nova's default.
    :ivar paradigm: ``mpi``, ``openmp`` or ``hybrid``.
    :ivar policy: policy of the server group, None without a group.
    :ivar max_server_per_host: rule of ``anti-affinity``; None counts as 1.
    :ivar spare_cpus: host CPUs to leave free for packet work.
    :ivar max_overcommit: most vCPUs per host CPU, spare CPUs excluded.
    :ivar existing: number of running members by host name.
    :ivar max_tier: largest tier that may be needed to contain all members;
        None for no limit.
    :ivar costs: what was measured of this kind of host.
    :ivar running_rails: number of running members by rail, by host name, as
        far as known.
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
    max_tier: Tier | None = None
    costs: cost_table.CostTable = cost_table.PAPER
    running_rails: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterPlacement:
    """Number of new members for each host.

    :ivar assignments: number of new members (>= 1) by host name, in the
        order in which to fill the hosts; empty if infeasible.
    :ivar cost: predicted communication cost of the whole cluster, in
        microseconds per nominal message
        (:mod:`nova_vhpc.scheduler.planner.objective`); ``inf`` if
        infeasible.
    :ivar tier: smallest part of the fabric that contains all members,
        running and new.
    :ivar infeasible_reason: sentence for an operator, None if the members
        fit.
    :ivar own_overcommit: most vCPUs of the cluster per CPU on a host that
        gets new members; above 1.0, members take turns with each other.
    :ivar tier_factor: mean factor by which the fabric prolongs a message
        between members on different hosts; 1.0 under one switch.
    :ivar rails: rail of each new member by host name; empty if rails do not
        matter.
    :ivar stray_share: part of the frames between hosts that leave by uplinks
        on which the cluster has no claim for them, 0.0 to 1.0
        (:mod:`nova_vhpc.scheduler.planner.ties`).
    """

    assignments: Mapping[str, int]
    cost: float
    tier: Tier = Tier.ALL
    infeasible_reason: str | None = None
    own_overcommit: float = 0.0
    tier_factor: float = 1.0
    rails: Mapping[str, tuple[str, ...]] = dataclasses.field(
        default_factory=dict
    )
    stray_share: float = 0.0
