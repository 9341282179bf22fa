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


"""What the planner minimises: the cost of a placement as one number.

The cost of a virtual cluster is taken over its members, running ones
included, from :func:`nova_vhpc.scheduler.planner.cost.member_us`: half of it
is the mean, half the slowest member's. A soft policy of the server group
comes before it: ``soft-affinity`` wants few hosts, ``soft-anti-affinity``
few co-located pairs.
"""

from collections.abc import Iterable, Mapping

from nova_vhpc.scheduler.planner import cost, cost_table
from nova_vhpc.scheduler.planner.model import (
    HostFacts,
    PlanRequest,
    Policy,
    Tier,
)

Counts = dict[int, int]
"""New members by position of the host in :attr:`Objective.hosts`."""

Value = tuple[int, float]
"""What the soft policy counts, then microseconds."""

SAME_SWITCH = cost_table.TIER_FACTOR[Tier.SWITCH]
NEXT_SWITCH = cost_table.TIER_FACTOR[Tier.RACK] - SAME_SWITCH
NEXT_RACK = (
    cost_table.TIER_FACTOR[Tier.ALL] - cost_table.TIER_FACTOR[Tier.RACK]
)


class Objective:
    """Values placements of one request.

    :ivar hosts: the request's hosts, and after them those that hold
        members and were not named.
    :ivar existing: running members by position of their host.
    :ivar members: of the whole cluster, running and new.
    :ivar looked_at: hosts that the last :meth:`cost_us` looked at.
    """

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.hosts = list(request.hosts)
        self.existing: Counts = {}
        if request.existing:
            position = {
                host.name: index for index, host in enumerate(self.hosts)
            }
            # Equal mappings need not be in the same order, but sums are to be.
            for name, count in sorted(request.existing.items()):
                if name not in position:
                    position[name] = len(self.hosts)
                    self.hosts.append(_unknown(name, request, count))
                if count:
                    self.existing[position[name]] = count
        self.members = request.members + sum(self.existing.values())
        self._terms: dict[tuple[int, int, int, int, int], _Term] = {}
        self._running = _RunningMembers(self)
        self.looked_at = 0

    def value(self, counts: Counts) -> Value:
        """Value of a placement, the lower the better."""
        policy = self.request.policy
        existing = self.existing
        if policy == Policy.SOFT_AFFINITY:
            first = len(existing)
            for index, new in counts.items():
                if new and index not in existing:
                    first += 1
        elif policy == Policy.SOFT_ANTI_AFFINITY:
            first = self._running.pairs
            for index, new in counts.items():
                # Among themselves, and each with those that run there.
                first += new * (new - 1) // 2 + new * existing.get(index, 0)
        else:
            first = 0
        return first, self.cost_us(counts)

    def merged(self, counts: Counts) -> Counts:
        """Running and new members of every host that has any."""
        if not self.existing:
            return {index: new for index, new in counts.items() if new}
        merged = dict(self.existing)
        for index, new in counts.items():
            if new:
                merged[index] = merged.get(index, 0) + new
        return merged

    def cost_us(self, counts: Counts) -> float:
        """Communication cost of the cluster: its members' and its slowest.

        Time grows with the number of hosts used, not with its square: a
        member's peers are counted by switch and by rack. Running members
        of whose part of the fabric nothing changes are not looked at.
        """
        running = self._running
        switches: dict[str, int] = {}
        racks: dict[str, int] = {}
        self._count(counts, switches, racks)
        walked, total, worst = running.around(switches, racks, counts)
        self.looked_at = len(walked)
        for name in switches:
            switches[name] += running.switches.get(name, 0)
        for name in racks:
            racks[name] += running.racks.get(name, 0)
        more, most = self.walk(walked, counts, switches, racks)
        total += more
        worst = max(worst, most)
        return self.value_us(total, worst)

    def value_us(self, total_us: float, worst_us: float) -> float:
        """A sum over all members and a slowest one, as they count."""
        slowest = cost_table.SLOWEST_SHARE
        mean_part = (1.0 - slowest) * total_us / max(1, self.members)
        return mean_part + slowest * worst_us

    def spread(self, counts: Counts) -> tuple[dict[str, int], dict[str, int]]:
        """Members of the whole cluster by switch and by rack."""
        switches = dict(self._running.switches)
        racks = dict(self._running.racks)
        self._count(counts, switches, racks)
        return switches, racks

    def _count(
        self, counts: Counts, switches: dict[str, int], racks: dict[str, int]
    ) -> None:
        """Add new members to those of each switch and rack."""
        hosts = self.hosts
        for index, new in counts.items():
            if new:
                host = hosts[index]
                if host.switch is not None:
                    switches[host.switch] = switches.get(host.switch, 0) + new
                if host.rack is not None:
                    racks[host.rack] = racks.get(host.rack, 0) + new

    def walk(
        self,
        merged: Counts,
        counts: Counts,
        switches: Mapping[str, int],
        racks: Mapping[str, int],
    ) -> tuple[float, float]:
        """Cost of the members of some hosts: their sum, and the slowest.

        :param merged: members of these hosts, new ones included.
        :param counts: the new ones.
        :param switches: members of the cluster by switch; may leave out
            those that only running ones are on.
        :param racks: the same by rack.
        """
        hosts = self.hosts
        running = self._running
        members = self.members
        total = worst = 0.0
        for index, here in merged.items():
            host = hosts[index]
            local_us, remote_us = self.term(host, here, counts.get(index, 0))
            member_us = local_us
            if here < members:
                near = middle = here
                if host.switch is not None:
                    near = middle = (
                        switches.get(host.switch)
                        or running.switches[host.switch]
                    )
                if host.rack is not None:
                    in_rack = racks.get(host.rack) or running.racks[host.rack]
                    if in_rack > near:
                        middle = in_rack
                factor = SAME_SWITCH + (
                    NEXT_SWITCH * (members - near)
                    + NEXT_RACK * (members - middle)
                ) / (members - here)
                member_us += remote_us * factor
            total += here * member_us
            if member_us > worst:
                worst = member_us
        return total, worst

    def term(self, host: HostFacts, here: int, new: int) -> '_Term':
        """Local and remote cost of one member of a host, remembered.

        :param here: members on the host, new ones included.
        :param new: those of them that ``host.used_vcpus`` leaves out.
        """
        key = (host.total_cpus, host.used_vcpus, host.link_mbps, here, new)
        found = self._terms.get(key)
        if found is None:
            request = self.request
            busy = host.used_vcpus + new * request.vcpus
            found = cost.split_us(
                request.network,
                here,
                self.members,
                cost.load_of(busy, host.total_cpus),
                link_mbps=host.link_mbps,
                overcommit=busy / max(1, host.total_cpus),
                paradigm=request.paradigm,
            )
            self._terms[key] = found
        return found

    def tier(self, merged: Counts) -> Tier:
        """Smallest part of the fabric that holds a placement."""
        used = [self.hosts[index] for index in merged]
        if len(used) <= 1:
            return Tier.HOST
        first = used[0]
        if first.switch is not None and all(
            host.switch == first.switch for host in used
        ):
            return Tier.SWITCH
        if first.rack is not None and all(
            host.rack == first.rack for host in used
        ):
            return Tier.RACK
        return Tier.ALL

    def named(self, counts: Mapping[int, int]) -> dict[str, int]:
        """Names instead of positions."""
        return {
            self.hosts[index].name: new for index, new in counts.items() if new
        }


_Term = tuple[float, float]


def _unknown(name: str, request: PlanRequest, count: int) -> HostFacts:
    """A host of which is known only that it holds members.

    It is taken to have CPUs left, and to be far from all others.
    """
    busy = count * request.vcpus
    return HostFacts(name, 2 * busy, busy, 0, 0, slots=0)


_Place = tuple[str | None, str | None]
"""Switch and rack of a host: one part of the fabric."""


class _RunningMembers:
    """The running members of one request.

    :ivar switches: running members by switch.
    :ivar racks: running members by rack.
    :ivar pairs: pairs of co-located ones.
    """

    def __init__(self, objective: 'Objective') -> None:
        self.switches: dict[str, int] = {}
        self.racks: dict[str, int] = {}
        self.pairs = 0
        self._objective = objective
        self._parts: dict[_Place, Counts] = {}
        # No sets: sums depend, in the last digit, on the order of what is
        # summed up, and that of strings in a set on the process.
        self._of_switch: dict[str, dict[_Place, None]] = {}
        self._of_rack: dict[str, dict[_Place, None]] = {}
        self._costs: dict[_Place, tuple[float, float]] | None = None
        self._total = 0.0
        self._slowest: list[tuple[float, _Place]] = []
        for index, here in objective.existing.items():
            self.pairs += here * (here - 1) // 2
            host = objective.hosts[index]
            place = (host.switch, host.rack)
            self._parts.setdefault(place, {})[index] = here
            if host.switch is not None:
                self._add(self.switches, host.switch, here)
                self._of_switch.setdefault(host.switch, {})[place] = None
            if host.rack is not None:
                self._add(self.racks, host.rack, here)
                self._of_rack.setdefault(host.rack, {})[place] = None

    def around(
        self,
        switches: Iterable[str],
        racks: Iterable[str],
        counts: Counts,
    ) -> tuple[Counts, float, float]:
        """Hosts whose members' cost a placement changes, and the rest's.

        :param switches: on which members are added.
        :param racks: in which members are added.
        :param counts: the members that are added.
        :returns: all members by host of those that must be looked at;
            the sum and the slowest of all others.
        """
        if not self._parts:
            return {i: new for i, new in counts.items() if new}, 0.0, 0.0
        if self._costs is None:
            self._learn()
        assert self._costs is not None
        changed: dict[_Place, None] = {}
        for name in switches:
            changed |= self._of_switch.get(name, {})
        for name in racks:
            changed |= self._of_rack.get(name, {})
        hosts = self._objective.hosts
        walked: Counts = {}
        for index, new in counts.items():
            if new:
                host = hosts[index]
                place = (host.switch, host.rack)
                if place in self._parts:
                    changed[place] = None
                walked[index] = new
        total = self._total
        for place in changed:
            total -= self._costs[place][0]
            for index, here in self._parts[place].items():
                walked[index] = walked.get(index, 0) + here
        worst = 0.0
        for slowest, place in self._slowest:
            if place not in changed:
                worst = slowest
                break
        return walked, total, worst

    def _learn(self) -> None:
        """Sum up every part of the fabric, once: it needs all members."""
        self._costs = {
            place: self._objective.walk(part, {}, self.switches, self.racks)
            for place, part in self._parts.items()
        }
        self._total = sum(total for total, _ in self._costs.values())
        self._slowest = sorted(
            ((worst, place) for place, (_, worst) in self._costs.items()),
            key=lambda item: item[0],
            reverse=True,
        )

    @staticmethod
    def _add(sums: dict[str, int], name: str, here: int) -> None:
        sums[name] = sums.get(name, 0) + here
