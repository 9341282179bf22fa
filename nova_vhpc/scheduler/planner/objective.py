# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The objective that the planner minimises: the value of a placement.

The cost of a virtual cluster is half the mean and half the maximum of its
members' costs (:func:`nova_vhpc.scheduler.planner.cost.split_us`), running
members included. A soft policy of the server group comes before cost:
``soft-affinity`` minimises the number of hosts, ``soft-anti-affinity`` the
number of co-located pairs.
"""

from collections.abc import Iterable, Mapping

from nova_vhpc.scheduler.planner import cost
from nova_vhpc.scheduler.planner.model import (
    HostFacts,
    PlanRequest,
    Policy,
    Tier,
)

Counts = dict[int, int]
"""New members by position of the host in :attr:`Objective.hosts`."""

Value = tuple[int, float]
"""Hosts or pairs that the soft policy counts, then cost in microseconds."""

TOO_WIDE = 1 << 40
"""Added to the first number of a placement beyond ``max_tier``: more than any
placement has hosts or co-located pairs."""

SAME_SWITCH = cost.TIER_FACTOR[Tier.SWITCH]
NEXT_SWITCH = cost.TIER_FACTOR[Tier.RACK] - SAME_SWITCH
NEXT_RACK = cost.TIER_FACTOR[Tier.ALL] - cost.TIER_FACTOR[Tier.RACK]


class Objective:
    """Computes the values of placements of one request.

    :ivar hosts: the request's hosts, followed by hosts of running members
        that the request does not list.
    :ivar existing: number of running members by position of the host.
    :ivar members: number of members of the whole cluster, running and new.
    :ivar looked_at: number of hosts that the last :meth:`cost_us` visited;
        the local search charges its work budget with it.
    """

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.hosts = list(request.hosts)
        self.existing: Counts = {}
        if request.existing:
            position = {
                host.name: index for index, host in enumerate(self.hosts)
            }
            # Floating-point sums depend on the order of their terms, so the
            # order must not depend on how the mapping was made.
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
        """Return the value of a placement; lower is better."""
        policy = self.request.policy
        existing = self.existing
        if policy == Policy.SOFT_AFFINITY:
            policy_count = len(existing)
            for index, new in counts.items():
                if new and index not in existing:
                    policy_count += 1
        elif policy == Policy.SOFT_ANTI_AFFINITY:
            policy_count = self._running.pairs
            for index, new in counts.items():
                # Pairs of new members, and of a new with a running one.
                policy_count += new * (new - 1) // 2 + new * existing.get(
                    index, 0
                )
        else:
            policy_count = 0
        limit = self.request.max_tier
        if limit is not None and self.tier(self.merged(counts)) > limit:
            policy_count += TOO_WIDE
        return policy_count, self.cost_us(counts)

    def merged(self, counts: Counts) -> Counts:
        """Return the number of members, running and new, by host."""
        if not self.existing:
            return {index: new for index, new in counts.items() if new}
        merged = dict(self.existing)
        for index, new in counts.items():
            if new:
                merged[index] = merged.get(index, 0) + new
        return merged

    def cost_us(self, counts: Counts) -> float:
        """Return the communication cost of the cluster, in microseconds.

        The time this takes grows linearly with the number of used hosts,
        because peers are counted by switch and by rack. Hosts of running
        members are skipped if no member is added in their switch or rack.
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
        """Combine the sum over all members and the slowest member's cost."""
        slowest = cost.SLOWEST_SHARE
        mean_part = (1.0 - slowest) * total_us / max(1, self.members)
        return mean_part + slowest * worst_us

    def spread(self, counts: Counts) -> tuple[dict[str, int], dict[str, int]]:
        """Return the cluster's members by switch and by rack."""
        switches = dict(self._running.switches)
        racks = dict(self._running.racks)
        self._count(counts, switches, racks)
        return switches, racks

    def _count(
        self, counts: Counts, switches: dict[str, int], racks: dict[str, int]
    ) -> None:
        """Add new members to the counts by switch and by rack, in place."""
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
        """Return sum and maximum of the members' costs on some hosts, in us.

        :param merged: number of members, running and new, of these hosts.
        :param counts: number of new members by host.
        :param switches: number of the cluster's members by switch; a switch
            without new members may be missing.
        :param racks: number of the cluster's members by rack; a rack
            without new members may be missing.
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
        """Return local and remote cost of one member on a host, in us.

        Most hosts are alike, so results are kept: a plan of 64 members on
        1,000 hosts takes 7 ms with this memo and 26 ms without.

        :param here: number of members on the host, running and new.
        :param new: number of new members, which ``host.used_vcpus`` does
            not include.
        """
        key = (host.total_cpus, host.used_vcpus, host.link_mbps, here, new)
        term = self._terms.get(key)
        if term is None:
            request = self.request
            busy = host.used_vcpus + new * request.vcpus
            cpus = max(1, host.total_cpus)
            # Members of other flavors may have fewer vCPUs.
            own = min(here * request.vcpus, busy)
            term = cost.split_us(
                request.network,
                here,
                self.members,
                cost.load_of(busy, host.total_cpus),
                link_mbps=host.link_mbps,
                own=own / cpus,
                strangers=(busy - own) / cpus,
                paradigm=request.paradigm,
                table=request.costs,
            )
            self._terms[key] = term
        return term

    def tier(self, merged: Counts) -> Tier:
        """Return the smallest part of the fabric that contains a placement."""
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

    def tier_factor(self, merged: Counts) -> float:
        """Return the mean tier factor of pairs on different hosts.

        1.0, as under one switch, if there is no such pair.
        """
        hosts = self.hosts
        switches: dict[str, int] = {}
        racks: dict[str, int] = {}
        self._count(merged, switches, racks)
        members = sum(merged.values())
        pairs = weighted = 0.0
        for index, here in merged.items():
            host = hosts[index]
            near = here if host.switch is None else switches[host.switch]
            middle = near
            if host.rack is not None:
                middle = max(near, racks[host.rack])
            pairs += here * (members - here)
            weighted += here * (
                SAME_SWITCH * (members - here)
                + NEXT_SWITCH * (members - near)
                + NEXT_RACK * (members - middle)
            )
        return weighted / pairs if pairs else 1.0

    def named(self, counts: Mapping[int, int]) -> dict[str, int]:
        """Return the number of new members by host name."""
        return {
            self.hosts[index].name: new for index, new in counts.items() if new
        }


_Term = tuple[float, float]


def _unknown(name: str, request: PlanRequest, count: int) -> HostFacts:
    """Return facts of a host that the request does not list.

    Only its running members are known. The host is assumed to have spare
    CPUs and to be in no known switch or rack.
    """
    busy = count * request.vcpus
    return HostFacts(name, 2 * busy, busy, 0, 0, slots=0)


_FabricPart = tuple[str | None, str | None]
"""Switch and rack of a host: one part of the fabric."""


class _RunningMembers:
    """Costs of the running members while nothing changes near them.

    A large cluster that grows by a few members has hundreds of hosts that
    the search never touches. Their cost changes only if members are added
    in the same switch or rack, so it is summed up once per part of the
    fabric.

    :ivar switches: number of running members by switch.
    :ivar racks: number of running members by rack.
    :ivar pairs: number of co-located pairs of running members.
    """

    def __init__(self, objective: 'Objective') -> None:
        self.switches: dict[str, int] = {}
        self.racks: dict[str, int] = {}
        self.pairs = 0
        self._objective = objective
        self._parts: dict[_FabricPart, Counts] = {}
        # Ordered dicts instead of sets: floating-point sums depend on the
        # order of their terms, and the order of strings in a set differs
        # between processes.
        self._of_switch: dict[str, dict[_FabricPart, None]] = {}
        self._of_rack: dict[str, dict[_FabricPart, None]] = {}
        self._costs: dict[_FabricPart, tuple[float, float]] | None = None
        self._total = 0.0
        self._slowest: list[tuple[float, _FabricPart]] = []
        for index, here in objective.existing.items():
            self.pairs += here * (here - 1) // 2
            host = objective.hosts[index]
            part = (host.switch, host.rack)
            self._parts.setdefault(part, {})[index] = here
            if host.switch is not None:
                self._add(self.switches, host.switch, here)
                self._of_switch.setdefault(host.switch, {})[part] = None
            if host.rack is not None:
                self._add(self.racks, host.rack, here)
                self._of_rack.setdefault(host.rack, {})[part] = None

    def around(
        self,
        switches: Iterable[str],
        racks: Iterable[str],
        counts: Counts,
    ) -> tuple[Counts, float, float]:
        """Return the hosts to visit, and the cost of all other members.

        :param switches: switches to which members are added.
        :param racks: racks to which members are added.
        :param counts: number of added members by host.
        :returns: number of members, running and new, by host to visit; sum
            and maximum of the other members' costs, in microseconds.
        """
        if not self._parts:
            return {i: new for i, new in counts.items() if new}, 0.0, 0.0
        if self._costs is None:
            self._compute_costs()
        assert self._costs is not None
        changed: dict[_FabricPart, None] = {}
        for name in switches:
            changed |= self._of_switch.get(name, {})
        for name in racks:
            changed |= self._of_rack.get(name, {})
        hosts = self._objective.hosts
        walked: Counts = {}
        for index, new in counts.items():
            if new:
                host = hosts[index]
                part = (host.switch, host.rack)
                if part in self._parts:
                    changed[part] = None
                walked[index] = new
        total = self._total
        for part in changed:
            total -= self._costs[part][0]
            for index, here in self._parts[part].items():
                walked[index] = walked.get(index, 0) + here
        worst = 0.0
        for slowest, part in self._slowest:
            if part not in changed:
                worst = slowest
                break
        return walked, total, worst

    def _compute_costs(self) -> None:
        """Sum up the cost of each part of the fabric.

        Done at the first use, when the counts by switch and rack are complete.
        """
        self._costs = {
            part: self._objective.walk(here, {}, self.switches, self.racks)
            for part, here in self._parts.items()
        }
        self._total = sum(total for total, _ in self._costs.values())
        self._slowest = sorted(
            ((worst, part) for part, (_, worst) in self._costs.items()),
            key=lambda item: item[0],
            reverse=True,
        )

    @staticmethod
    def _add(sums: dict[str, int], name: str, here: int) -> None:
        sums[name] = sums.get(name, 0) + here
