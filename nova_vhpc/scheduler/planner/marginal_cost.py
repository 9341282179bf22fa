# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Estimate what a move would change, without valuing the whole placement.

Valuing a placement visits each of its hosts, and a cluster on dozens of
hosts has thousands of neighbouring placements. :class:`MarginalCosts`
estimates, host by host, what adding or removing members would change.
"""

import heapq
from typing import NamedTuple

from nova_vhpc.scheduler.planner.model import Policy
from nova_vhpc.scheduler.planner.objective import (
    NEXT_RACK,
    NEXT_SWITCH,
    SAME_SWITCH,
    Counts,
    Objective,
)


class Change(NamedTuple):
    """Effect of a host's gaining or losing members.

    :ivar first: change of the number that the soft policy minimises, see
        :mod:`nova_vhpc.scheduler.planner.objective`.
    :ivar total_us: change of the sum of all members' costs, in us.
    :ivar each_us: cost of each member of the host afterwards, in us.
    """

    first: int
    total_us: float
    each_us: float


class _Place(NamedTuple):
    """A host of the placement, or one that the placement may use.

    :ivar here: number of its members, running and new.
    :ivar new: number of its new members.
    :ivar near: number of the cluster's members in its switch.
    :ivar in_rack: number of the cluster's members in its rack.
    :ivar pull_us: what members on hosts near it save, in us, by one more
        member on it.
    :ivar each_us: cost of each of its members, in us.
    """

    here: int
    new: int
    near: int
    in_rack: int
    pull_us: float
    each_us: float = 0.0


class MarginalCosts:
    """Marginal costs of adding members to, or removing them from, hosts.

    A move changes two hosts; each is estimated as if it changed alone.

    :ivar work: number of hosts visited, the unit of the search's budget.
    :ivar dearest: positions of the used hosts, highest member cost first.
    """

    def __init__(self, objective: Objective, counts: Counts) -> None:
        self.objective = objective
        self.counts = {index: new for index, new in counts.items() if new}
        self.work = 0
        self._members = objective.members
        self._switches, self._racks = objective.spread(self.counts)
        self._pull_switch: dict[str | None, float] = {}
        self._pull_rack: dict[str | None, float] = {}
        self._own_pull: dict[int, float] = {}
        # A memo that also counts work: each host is charged once. First it
        # has the used hosts only, without pull_us.
        self._places: dict[int, _Place] = {}
        each_us = {index: self._place(index).each_us for index in self.counts}
        for index in self.counts:
            self._pull(index)
        self._places = {}
        self.dearest = heapq.nlargest(
            len(each_us), each_us, key=each_us.__getitem__
        )
        self._slowest = [(each_us[i], i) for i in self.dearest[:3]]

    @property
    def worst_us(self) -> float:
        """Return the cost of the slowest new member, in us."""
        return self._slowest[0][0]

    def worst_without(self, one: int, other: int = -1) -> float:
        """Return the cost of the slowest new member on the other hosts."""
        for each_us, index in self._slowest:
            if index not in (one, other):
                return each_us
        return 0.0

    def change(self, index: int, more: int) -> Change:
        """Return the effect of adding members to a host.

        :param more: number of members to add; negative to remove.
        """
        self.work += 1
        place = self._place(index)
        here = place.here
        then = here + more
        each_us = self._each_us(index, place, more) if then else 0.0
        policy = self.objective.request.policy
        first = 0
        if policy == Policy.SOFT_AFFINITY:
            first = (then > 0) - (here > 0)
        elif policy == Policy.SOFT_ANTI_AFFINITY:
            first = (then * (then - 1) - here * (here - 1)) // 2
        return Change(
            first,
            then * each_us - here * place.each_us - more * place.pull_us,
            each_us,
        )

    def _place(self, index: int) -> _Place:
        place = self._places.get(index)
        if place is not None:
            return place
        self.work += 1
        objective = self.objective
        host = objective.hosts[index]
        new = self.counts.get(index, 0)
        here = new + objective.existing.get(index, 0)
        near = in_rack = 0
        pull_us = 0.0
        if host.switch is not None:
            near = self._switches.get(host.switch, 0)
            pull_us = self._pull_switch.get(host.switch, 0.0)
        if host.rack is not None:
            in_rack = self._racks.get(host.rack, 0)
            pull_us += self._pull_rack.get(host.rack, 0.0)
        # The host's own members count with their new cost instead.
        pull_us -= self._own_pull.get(index, 0.0)
        place = _Place(here, new, near, in_rack, pull_us)
        if here:
            place = place._replace(each_us=self._each_us(index, place, 0))
        self._places[index] = place
        return place

    def _each_us(self, index: int, place: _Place, more: int) -> float:
        """Return the cost of one member after ``more`` were added, in us."""
        here = place.here + more
        objective = self.objective
        local_us, remote_us = objective.term(
            objective.hosts[index], here, place.new + more
        )
        away = self._members - here
        if away <= 0:
            return local_us
        near = max(place.near + more, here)
        middle = max(place.in_rack + more, near)
        factor = (
            SAME_SWITCH
            + (
                NEXT_SWITCH * (self._members - near)
                + NEXT_RACK * (self._members - middle)
            )
            / away
        )
        return local_us + remote_us * factor

    def _pull(self, index: int) -> None:
        """Add what a host's members save by one more peer near them."""
        here = self._places[index].here
        if here >= self._members:
            return
        host = self.objective.hosts[index]
        _, remote_us = self.objective.term(host, here, self.counts[index])
        weight_us = here * remote_us / (self._members - here)
        own_us = 0.0
        if host.switch is not None:
            # Without a known rack, no other switch is in the same rack.
            step = NEXT_SWITCH + (NEXT_RACK if host.rack is None else 0.0)
            own_us = weight_us * step
            self._pull_switch[host.switch] = (
                self._pull_switch.get(host.switch, 0.0) + own_us
            )
        if host.rack is not None:
            rack_us = weight_us * NEXT_RACK
            own_us += rack_us
            self._pull_rack[host.rack] = (
                self._pull_rack.get(host.rack, 0.0) + rack_us
            )
        self._own_pull[index] = own_us
