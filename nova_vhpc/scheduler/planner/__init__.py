# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Plan where all members of a virtual cluster go.

Role
    Choose hosts for a whole cluster before Nova places its first member, at
    the least predicted cost that its policy and tier allow.
Doors
    :func:`plan`, :func:`capacity` and :func:`beyond_tier`;
    :mod:`.host_weights` turns a plan into weights; :mod:`.cost` predicts.
Invariants
    Pure: no clock, no chance; the same request always gets the same placement.
    Work is bounded, whatever the number of hosts. A cluster is not
    over-committed against itself while there is room elsewhere.
Tests
    ``nova_vhpc/tests/unit/scheduler/planner``; ``oracle.py`` there compares
    with the optimum.
"""

import dataclasses
import math

from nova_vhpc.scheduler.planner import ties
from nova_vhpc.scheduler.planner.group_policies import (
    most_own_overcommit,
    place,
)
from nova_vhpc.scheduler.planner.host_groups import capacities
from nova_vhpc.scheduler.planner.infeasibility import beyond_tier, why_not
from nova_vhpc.scheduler.planner.model import (
    NO_LIMIT,
    ClusterPlacement,
    HostFacts,
    PlanRequest,
    Policy,
    Tier,
)
from nova_vhpc.scheduler.planner.objective import Objective

__all__ = [
    'NO_LIMIT',
    'ClusterPlacement',
    'HostFacts',
    'PlanRequest',
    'Policy',
    'Tier',
    'beyond_tier',
    'capacity',
    'plan',
]


def capacity(host: HostFacts, request: PlanRequest) -> int:
    """Return how many members a host can still take.

    CPUs, RAM, uplinks, devices and disk limit that number. ``spare_cpus``
    host CPUs stay free for packet work, and the host's vCPUs stay within
    ``max_overcommit`` times its other CPUs. The policy of the server group
    is ignored.

    :returns: 0 to ``request.members``.
    """
    alone = dataclasses.replace(request, hosts=(host,), existing={})
    return capacities(alone, Objective(alone))[0]


def plan(request: PlanRequest) -> ClusterPlacement:
    """Place all members of a virtual cluster at the least predicted cost.

    A hard policy of the server group is always kept; a soft one comes
    before cost. Of placements that cost the same, one is chosen whose members
    use the same rails, then one with which the sets of clusters of hosts
    become equal or disjoint.

    :returns: a placement. If the members do not fit, it is empty and has an
        ``infeasible_reason``; no exception is raised.
    """
    objective = Objective(request)
    counts = place(objective) if request.members > 0 else {}
    if counts is None:
        return ClusterPlacement(
            {}, math.inf, infeasible_reason=why_not(objective)
        )
    counts = ties.prefer_same_rails(objective, counts, place)
    counts = ties.exchange_for_nesting(objective, counts)
    rails_of_members = ties.rails_of_members(objective, counts)
    merged = objective.merged(counts)
    return ClusterPlacement(
        objective.named(counts),
        objective.cost_us(counts),
        objective.tier(merged),
        own_overcommit=most_own_overcommit(objective, counts),
        tier_factor=objective.tier_factor(merged),
        rails={
            objective.hosts[index].name: names
            for index, names in rails_of_members.items()
        },
        stray_share=ties.stray_share(objective, rails_of_members),
    )
