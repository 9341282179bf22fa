# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Assemble the request for a plan, and plan it, as the weigher does.

The scheduling session and ``nova-vhpc-explain`` both call these functions, so
that an explanation shows what the weigher decides.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.hosts.requirements import Requirements
from nova_vhpc.scheduler.planner.cost_table import PAPER, CostTable
from nova_vhpc.scheduler.planner.model import (
    ClusterPlacement,
    HostFacts,
    PlanRequest,
    Tier,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """A virtual cluster for which a plan is made.

    :ivar requirements: what one member asks of its host.
    :ivar ram_mb: RAM of one member, in MB; the planner divides by it, so 0
        counts as 1.
    :ivar members: number of members to plan for, without the running ones.
    :ivar expected: number of those for which further requests will follow.
    :ivar existing: number of running members by host name.
    :ivar policy: policy of the server group, None without a group.
    :ivar max_server_per_host: rule of ``anti-affinity``; None is 1.
    :ivar costs: what was measured of this kind of host.
    :ivar running_rails: number of running members by rail, by host name, as
        far as known.
    """

    requirements: Requirements
    ram_mb: int
    members: int
    expected: int = 0
    existing: Mapping[str, int] = dataclasses.field(default_factory=dict)
    policy: str | None = None
    max_server_per_host: int | None = None
    costs: CostTable = PAPER
    running_rails: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict
    )


class Plan(NamedTuple):
    """A plan, and the request that it answers.

    :ivar request: request for all members, or for fewer if not all that are
        expected fit.
    """

    request: PlanRequest
    placement: ClusterPlacement


def plan_request(cluster: Cluster, hosts: Sequence[HostFacts]) -> PlanRequest:
    """Return the request for a plan of all members.

    :param hosts: hosts that may take members, and with ``slots=0`` the
        others that hold running ones.
    """
    requirements = cluster.requirements
    max_tier = requirements.specs.max_tier
    return PlanRequest(
        members=cluster.members,
        vcpus=requirements.vcpus,
        ram_mb=max(1, cluster.ram_mb),
        hosts=hosts,
        network=requirements.specs.network,
        paradigm=requirements.specs.paradigm,
        policy=cluster.policy,
        max_server_per_host=cluster.max_server_per_host,
        spare_cpus=requirements.spare_cpus,
        max_overcommit=requirements.max_overcommit,
        existing=cluster.existing,
        max_tier=None if max_tier is None else Tier[max_tier.upper()],
        costs=cluster.costs,
        running_rails=cluster.running_rails,
    )


def make_plan(
    cluster: Cluster,
    hosts: Sequence[HostFacts],
    unknown: Set[str] = frozenset(),
) -> Plan:
    """Plan as many of the expected members as fit with those to place now.

    :param hosts: as for :func:`plan_request`.
    :param unknown: names of the hosts whose topology is unknown.
    """
    for request in _requests(cluster, hosts):
        placement = _plan_on_known_hosts_first(request, unknown)
        if placement.infeasible_reason is None:
            break
    return Plan(request, placement)


def plan_alone(cluster: Cluster, hosts: Sequence[HostFacts]) -> Plan:
    """Plan only the members to place now."""
    *_, request = _requests(cluster, hosts)
    return Plan(request, planner.plan(request))


def beyond_tier(
    cluster: Cluster, hosts: Sequence[HostFacts]
) -> dict[str, str]:
    """Return why hosts cannot be used within ``vhpc:max_tier``, by name.

    :param hosts: as for :func:`plan_request`.
    """
    for request in _requests(cluster, hosts):
        reasons = planner.beyond_tier(request)
        if len(reasons) < len(request.hosts):
            break
    return reasons


def with_not_offered(
    facts: Sequence[HostFacts],
    existing: Iterable[str],
    facts_of: Mapping[str, HostFacts],
) -> list[HostFacts]:
    """Return the facts, and those of other hosts that hold members.

    :param existing: names of the hosts that hold running members.
    :param facts_of: facts by host name, as far as known.
    """
    offered = {fact.name for fact in facts}
    return [
        *facts,
        *(
            facts_of[name]._replace(slots=0)
            for name in existing
            if name not in offered and name in facts_of
        ),
    ]


def _requests(
    cluster: Cluster, hosts: Sequence[HostFacts]
) -> Iterator[PlanRequest]:
    """Yield requests for all members, then for ever fewer expected ones.

    If a request does not fit, plan the next one: half as many members are to
    come there, and none in the last one.
    """
    request = plan_request(cluster, hosts)
    yield request
    expected = cluster.expected
    now = cluster.members - expected
    while expected:
        expected //= 2
        yield dataclasses.replace(request, members=now + expected)


def _plan_on_known_hosts_first(
    request: PlanRequest, unknown: Set[str]
) -> ClusterPlacement:
    """Plan on hosts of known topology first.

    Plan on all hosts if the members do not fit, or if only all hosts keep the
    cluster from being over-committed against itself.
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
