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


"""What a placement costs at the very least, before it is made.

The planner's seeds are tried from many members per host to few, and those
of few take longest: they touch hundreds of hosts. Where not even the best
hosts there could be would make one cheap enough, none is tried.
"""

from nova_vhpc.scheduler.planner.host_groups import HostPool
from nova_vhpc.scheduler.planner.model import HostFacts, Policy
from nova_vhpc.scheduler.planner.objective import (
    NEXT_RACK,
    NEXT_SWITCH,
    SAME_SWITCH,
    Value,
)

MOST_LEVEL = 512
"""Members per host up to which a bound is looked for, one after another."""

ROUNDING = 1.0 - 1e-9
"""What a sum of costs may be below the cost it should be."""


class Bound:
    """Least values of the placements that a pool has room for."""

    def __init__(self, pool: HostPool, fastest: int) -> None:
        """Look at no more than the sizes of the parts of the fabric.

        :param fastest: position of a host whose link none is faster than.
        """
        objective = pool.objective
        self._objective = objective
        # The cost model gets no cheaper than on an idle host without end.
        self._best = HostFacts(
            '',
            1 << 30,
            0,
            0,
            0,
            link_mbps=objective.hosts[fastest].link_mbps,
        )
        self._in_switch, self._in_rack = (
            max((len(group.order) for group in groups.values()), default=1)
            for groups in (pool.switches, pool.racks)
        )

    def least(self, level: int) -> Value:
        """No placement with at most so many new members per host is below.

        A smaller level has no smaller one; none is greater than the number
        of members. ``(0, 0.0)`` where members run
        already, as these may be more on a host, and beyond
        :data:`MOST_LEVEL`.
        """
        objective = self._objective
        members = objective.members
        if objective.existing or level > MOST_LEVEL:
            return 0, 0.0
        near = min(members, level * self._in_switch)
        middle = min(members, max(near, level * self._in_rack))
        tiers = NEXT_SWITCH * (members - near) + NEXT_RACK * (members - middle)
        least_us = float('inf')
        for here in range(1, level + 1):
            each_us, remote_us = objective.term(self._best, here, 0)
            if here < members:
                factor = SAME_SWITCH + tiers / (members - here)
                each_us += remote_us * factor
            least_us = min(least_us, each_us)
        # The mean is no less than the least, nor is the slowest.
        first = 0
        if objective.request.policy == Policy.SOFT_AFFINITY:
            first = -(-members // level)
        return first, least_us * ROUNDING
