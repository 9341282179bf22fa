# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Turn a plan into raw weights of hosts.

The hosts of the plan come first, in its order. All others follow, ordered by
what a single further member would cost on them.
"""

import dataclasses
import math
from collections.abc import Sequence, Set

from nova_vhpc.scheduler.planner import cost
from nova_vhpc.scheduler.planner.model import (
    ClusterPlacement,
    HostFacts,
    PlanRequest,
    Tier,
)
from nova_vhpc.scheduler.planner.objective import Objective

MULTIPLIER_KEY = 'vhpc_weight_multiplier'
"""Aggregate metadata key that overrides the weight multiplier."""

PLANNED_LEAST = 0.9
"""Raw weight of the last host of the plan; the first has 1.0."""

OTHERS_MOST = 0.5
"""Raw weight of the cheapest host outside of the plan."""

SHARING_MOST = 0.9
"""Largest weight of a host where the next member would share CPUs with its
siblings, as part of the least weight of the hosts where it would not."""


def is_planned(multiplier: float) -> bool:
    """Return whether plans include a host, by its weight multiplier.

    Hosts with a multiplier of 0 or below are left to Nova's other weighers.
    """
    return multiplier > 0


def unplanned_weight(multiplier: float) -> float:
    """Return the raw weight of a host that no plan includes.

    It is 1.0 with a negative multiplier: Nova adds the product of both, so
    the multiplier counts against the host in full. Else it is 0.0.
    """
    return 1.0 if multiplier < 0 else 0.0


def planned_weights(placement: ClusterPlacement) -> dict[str, float]:
    """Return the raw weights of a plan's hosts, by host name."""
    step = (1.0 - PLANNED_LEAST) / max(1, len(placement.assignments))
    return {
        name: 1.0 - number * step
        for number, name in enumerate(placement.assignments)
    }


def other_weights(
    request: PlanRequest,
    placement: ClusterPlacement,
    facts: Sequence[HostFacts],
    unknown: Set[str] = frozenset(),
    weight_of_unknown: float = -1.0,
) -> list[float]:
    """Return raw weights of hosts as if they were not in the plan.

    :param request: the request that was planned; its hosts include all that
        have running members.
    :param facts: hosts to weigh.
    :param unknown: names of the hosts whose topology is unknown.
    :param weight_of_unknown: raw weight of those hosts.
    :returns: one weight for each of ``facts``, 0.0 to :data:`OTHERS_MOST`.
        Hosts where the member would share CPUs with running ones come last.
    """
    costs_us = single_member_costs_us(request, placement, facts)
    least = min(costs_us, default=math.inf)
    weights = [
        OTHERS_MOST * least / cost_us if cost_us > 0 else OTHERS_MOST
        for cost_us in costs_us
    ]
    existing = request.existing
    shared = [
        number
        for number, fact in enumerate(facts)
        if fact.name in existing
        and (existing[fact.name] + 1) * request.vcpus > fact.total_cpus
    ]
    if shared:
        kept = set(range(len(weights))).difference(shared)
        most = SHARING_MOST * min(
            (weights[number] for number in kept), default=OTHERS_MOST
        )
        for number in shared:
            weights[number] *= most / OTHERS_MOST
    if unknown:
        for number, fact in enumerate(facts):
            if fact.name in unknown:
                weights[number] = weight_of_unknown
    return weights


def single_member_costs_us(
    request: PlanRequest,
    placement: ClusterPlacement,
    facts: Sequence[HostFacts],
) -> list[float]:
    """Return what one further member costs on each host, in us per message.

    Its peers are on the hosts of the plan and of the running members.
    """
    existing = request.existing
    used = set(placement.assignments) | set(existing)
    near = [fact for fact in request.hosts if fact.name in used]
    switches = {fact.switch for fact in near} - {None}
    racks = {fact.rack for fact in near} - {None}
    objective = Objective(
        dataclasses.replace(request, members=max(1, request.members))
    )
    costs_us = []
    for fact in facts:
        if fact.switch in switches:
            tier = Tier.SWITCH
        elif fact.rack in racks:
            tier = Tier.RACK
        else:
            tier = Tier.ALL
        here = existing.get(fact.name, 0) + 1
        local_us, remote_us = objective.term(fact, here, 1)
        costs_us.append(local_us + remote_us * cost.TIER_FACTOR[tier])
    return costs_us
