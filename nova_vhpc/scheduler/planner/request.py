# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Build the request for a plan, and plan it, as the weigher does.

Pure. The scheduling session and ``nova-vhpc-explain`` both call these
functions, so that an explanation shows what the weigher decides.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Protocol

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner.cost import PAPER, CostTable
from nova_vhpc.scheduler.planner.model import (
    ClusterPlacement,
    HostFacts,
    PlanRequest,
    Tier,
)


class ClusterSpecs(Protocol):
    """A flavor's ``vhpc:*`` extra specs, as far as the planner uses them."""

    @property
    def network(self) -> str | None:
        """Network configuration, None if the flavor names none."""

    @property
    def paradigm(self) -> str:
        """``mpi``, ``openmp`` or ``hybrid``."""

    @property
    def max_tier(self) -> str | None:
        """``host``, ``switch`` or ``rack``; None for no limit."""


class MemberRequirements(Protocol):
    """What one member asks of its host, as far as the planner uses it.

    :class:`nova_vhpc.scheduler.hosts.requirements.Requirements` has it.
    """

    @property
    def specs(self) -> ClusterSpecs:
        """The flavor's ``vhpc:*`` extra specs."""

    @property
    def vcpus(self) -> int:
        """vCPUs of one member that the planner counts."""

    @property
    def spare_cpus(self) -> int:
        """Host CPUs to leave free for packet work."""

    @property
    def max_overcommit(self) -> float:
        """vCPUs per remaining host CPU, at most."""


def build_plan_request(
    requirements: MemberRequirements,
    ram_mb: int,
    members: int,
    hosts: Sequence[HostFacts],
    existing: Mapping[str, int],
    policy: str | None,
    max_server_per_host: int | None,
    costs: CostTable = PAPER,
    running_rails: Mapping[str, Mapping[str, int]] | None = None,
) -> PlanRequest:
    """Return the request for a plan of a whole virtual cluster.

    :param requirements: what one member asks of its host.
    :param ram_mb: RAM of one member, in MB; the planner divides by it, so
        0 counts as 1.
    :param members: members to place now, without the running ones.
    :param hosts: hosts that may take members, and with ``slots=0`` the
        others that hold running ones.
    :param existing: number of running members by host name.
    :param policy: policy of the server group, None without a group.
    :param max_server_per_host: rule of ``anti-affinity``; None is 1.
    :param costs: what was measured of this kind of host.
    :param running_rails: number of running members by rail, by host name, as
        far as known.
    """
    max_tier = requirements.specs.max_tier
    return PlanRequest(
        members=members,
        vcpus=requirements.vcpus,
        ram_mb=max(1, ram_mb),
        hosts=hosts,
        network=requirements.specs.network,
        paradigm=requirements.specs.paradigm,
        policy=policy,
        max_server_per_host=max_server_per_host,
        spare_cpus=requirements.spare_cpus,
        max_overcommit=requirements.max_overcommit,
        existing=existing,
        max_tier=None if max_tier is None else Tier[max_tier.upper()],
        costs=costs,
        running_rails=running_rails or {},
    )


def plan_on_known_hosts_first(
    request: PlanRequest, unknown: Set[str]
) -> ClusterPlacement:
    """Plan on hosts of known topology first.

    Plan on all hosts if the members do not fit, or if only all hosts keep the
    cluster from being over-committed against itself.

    :param unknown: names of the hosts whose topology is unknown.
    """
    if unknown:
        known = [host for host in request.hosts if host.name not in unknown]
        placement = planner.plan(dataclasses.replace(request, hosts=known))
        if placement.infeasible_reason is None:
            if placement.own_overcommit <= 1.0:
                return placement
            wider = planner.plan(request)
            return wider if wider.own_overcommit <= 1.0 else placement
    return planner.plan(request)


def with_fewer_expected(
    request: PlanRequest, expected: int
) -> Iterator[PlanRequest]:
    """Yield requests for ever fewer members that are to come.

    The first one is the given request. If it does not fit, plan the next one:
    half as many members are to come there, and none in the last one.

    :param request: request whose ``members`` include the expected ones.
    :param expected: number of members for which further requests will follow.
    """
    yield request
    now = request.members - expected
    while expected:
        expected //= 2
        yield dataclasses.replace(request, members=now + expected)
