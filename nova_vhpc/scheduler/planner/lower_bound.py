# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Lower bounds on the values of placements, as in branch and bound.

Seeds are constructed from many members per host down to few. Those with few
take longest, because they use hundreds of hosts. They are skipped if even
ideal hosts could not make such a placement good enough.
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
"""Most members per host for which a bound is computed; each takes a step."""

ROUNDING = 1.0 - 1e-9
"""Margin for a sum of costs that rounding makes too small."""


class Bound:
    """Lower bounds on the values of a pool's placements."""

    def __init__(self, pool: HostPool, fastest: int) -> None:
        """Read the sizes of the pool's switches and racks.

        :param fastest: position of a host with the fastest link.
        """
        objective = pool.objective
        self._objective = objective
        # In the cost model, no host is cheaper than an idle, endless one.
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
        """Return a lower bound for placements with a limit per host.

        The bound never falls as ``level`` falls. It is ``(0, 0.0)`` if
        members run already, because a host may have more of them than the
        limit, and if ``level`` exceeds :data:`MOST_LEVEL`.

        :param level: most new members per host, at most the number of
            members.
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
        # Neither the mean nor the maximum is below the minimum.
        first = 0
        if objective.request.policy == Policy.SOFT_AFFINITY:
            first = -(-members // level)
        return first, least_us * ROUNDING
