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


"""Places a whole virtual cluster before its first member is placed.

DESIGN.md section 4. Pure: values in, values out, the same answer for the
same question. :func:`plan` is the only door.
"""

import dataclasses
import math

from nova_vhpc.scheduler.planner.group_policies import place
from nova_vhpc.scheduler.planner.host_groups import capacities
from nova_vhpc.scheduler.planner.infeasibility import why_not
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
    'capacity',
    'plan',
]


def capacity(host: HostFacts, request: PlanRequest) -> int:
    """Members that a host can still take, by CPUs, RAM and uplinks.

    The host keeps ``spare_cpus`` for its packet work, and its vCPUs stay
    within ``max_overcommit`` times the other CPUs. Server group policies
    are not looked at. Never more than ``request.members``.
    """
    alone = dataclasses.replace(request, hosts=(host,), existing={})
    return capacities(alone, Objective(alone))[0]


def plan(request: PlanRequest) -> ClusterPlacement:
    """Place all members of a virtual cluster at the least predicted cost.

    Soft policies come before cost, hard ones always hold.

    :returns: a placement, or one with ``infeasible_reason``. Never
        raises for want of capacity.
    """
    objective = Objective(request)
    counts = place(objective) if request.members > 0 else {}
    if counts is None:
        return ClusterPlacement(
            {}, math.inf, infeasible_reason=why_not(objective)
        )
    merged = objective.merged(counts)
    return ClusterPlacement(
        objective.named(counts),
        objective.cost_us(counts),
        objective.tier(merged),
    )
