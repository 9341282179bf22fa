# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Score hosts by the plan of the whole virtual cluster.

The plan is made when the first member is weighed, because only then is it
known which hosts passed all of Nova's filters. It is made again when a
member is placed on a host that the plan did not choose: another scheduler
took the uplink, or another weigher weighed more.
"""

import random
from collections import Counter
from collections.abc import (
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any

from oslo_log import log as logging

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.hosts.fabric import Fabric
from nova_vhpc.scheduler.planner import host_weights
from nova_vhpc.scheduler.planner.cost_table import CostTable
from nova_vhpc.scheduler.planner.model import HostFacts
from nova_vhpc.scheduler.session import assembly, server_group
from nova_vhpc.scheduler.session.host_fit import HostFit, HostInfo
from nova_vhpc.scheduler.sources import nova_db, server_groups

LOG = logging.getLogger(__name__)

JITTER = 1e-6
"""Largest random addition to the weight of a host outside of the plan:
schedulers that lose a race must not all try the same next host."""

DUPLICATE = 40.0
"""Taken off the weight, multiplier included, of a host's further entries: a
further uplink of a host is tried after all other hosts. Twice what the
plan itself weighs, if that is more."""

MAX_PLANS = 8
"""Plans per request. Each one reads all hosts; a request that was disturbed
eight times is better finished without a further plan."""


class PlanScore:
    """Scores hosts by the plan of the whole virtual cluster.

    :param spec_obj: Nova's RequestSpec.
    :param weight_of_unknown: raw weight of hosts of unknown topology.
    :param member_count: members that the request is for.
    :param is_move: whether the request moves a server that exists.
    :param cluster_size: number of members that the cluster will have, 0 if
        unknown.
    :param subset_size: number of best entries of the list of which Nova takes
        one by chance.
    :param costs: what was measured of the cloud's hosts.
    :param reorder: called with a host whose allocation candidates are to be
        put in order again, because the plan prefers some.
    :ivar duplicates: whether a host may be in the list more than once.
    :ivar placement: last plan, None before the first.
    """

    def __init__(
        self,
        spec_obj: Any,
        host_fit: HostFit,
        fabric: Fabric,
        weight_of_unknown: float,
        member_count: int,
        is_move: bool,
        cluster_size: int,
        subset_size: int,
        costs: CostTable,
        reorder: Callable[[HostInfo], None],
    ) -> None:
        self.duplicates = False
        self.placement: planner.ClusterPlacement | None = None
        self._spec_obj = spec_obj
        self._host_fit = host_fit
        self._fabric = fabric
        self._weight_of_unknown = weight_of_unknown
        self._member_count = member_count
        self._is_move = is_move
        self._cluster_size = cluster_size
        self._subset_size = subset_size
        self._costs = costs
        self._reorder = reorder
        self._rails_matter = host_fit.requirements.rails_matter
        self._placed: list[HostInfo] = []
        # Hosts on which members were placed after the first plan.
        self._used: dict[HostInfo, None] = {}
        self._earlier_rails: dict[str, Mapping[str, int]] = {}
        self._remaining: int | None = None
        self._expected = 0
        self._existing: dict[str, int] = {}
        self._quota: dict[HostInfo, int] = {}
        self._plans = 0
        self._stale = True
        self._racks_asked = False
        # Hosts within max_tier beside members on so many hosts.
        self._within_tier: set[HostInfo] = set()
        self._bound_by = 0

    def planned(self) -> Iterable[HostInfo]:
        """Return the hosts that the plan still assigns members to."""
        return tuple(self._quota)

    def may_come_next(self, host_info: HostInfo) -> bool:
        """Return whether the plan may assign the next member to a host.

        A plan that is to be made, or made again, may choose any host.
        """
        if self._remaining is not None:
            self._follow()
            if self._plans >= MAX_PLANS or not self._stale:
                return host_info in self._quota
        return host_weights.is_planned(host_info.multiplier)

    def placed(self, host_info: HostInfo) -> None:
        """Take note that a member was placed on this host."""
        self._placed.append(host_info)

    def beyond_tier(
        self, host_infos: Sequence[HostInfo]
    ) -> dict[HostInfo, str]:
        """Return why hosts cannot be used within ``vhpc:max_tier``.

        This does not wait for a plan: a member must not be placed where the
        others cannot follow, whatever other weighers prefer.
        """
        if self._remaining is None:
            self._begin(host_infos)
        self._follow()
        bound_by = len(self._existing)
        if bound_by == self._bound_by and self._within_tier.issuperset(
            host_infos
        ):
            # Further members on the same hosts do not change the part.
            return {}
        reasons = assembly.beyond_tier(
            self._cluster(), self._with_not_offered(self._facts(host_infos))
        )
        if bound_by:
            self._bound_by = bound_by
            self._within_tier = {
                host_info
                for host_info in host_infos
                if host_info.name not in reasons
            }
        return {
            host_info: reasons[host_info.name]
            for host_info in host_infos
            if host_info.name in reasons
        }

    def score(self, host_infos: Sequence[HostInfo]) -> list[float]:
        """Return one raw weight per host, 0.0 to 1.0, for the next member."""
        if self._remaining is None:
            self._begin(host_infos)
        self._follow()
        if (
            (self._stale or self._next_is_gone(host_infos))
            and (self._remaining or 0) > 0
            and self._plans < MAX_PLANS
        ):
            try:
                self._plan(
                    [
                        host_info
                        for host_info in dict.fromkeys(host_infos)
                        if host_weights.is_planned(host_info.multiplier)
                    ]
                )
            except Exception:
                # Placing without a plan is better than failing the request.
                self._plans = MAX_PLANS
                LOG.exception(
                    'No plan for this virtual cluster, its members are '
                    'placed without one; please report this'
                )
        if not self.duplicates:
            return [host_info.weight for host_info in host_infos]
        weights = []
        entries: dict[HostInfo, int] = {}
        for host_info in host_infos:
            weight = host_info.weight
            entry = entries[host_info] = entries.get(host_info, 0) + 1
            full_weight = self._subset_size if host_info in self._quota else 1
            if entry > full_weight:
                weight -= _behind(host_info.multiplier)
            weights.append(weight)
        return weights

    def _begin(self, host_infos: Sequence[HostInfo]) -> None:
        # With few hosts, members may be placed before the first weighing.
        if self._host_fit.requirements.specs.max_tier is None and not any(
            host_weights.is_planned(host_info.multiplier)
            for host_info in host_infos
        ):
            self._remaining = 0
            return
        members = server_group.Members(
            self._spec_obj,
            self._member_count,
            self._is_move,
            host_infos,
            self._placed,
            self._cluster_size,
        )
        self._existing = members.running
        self._remaining = members.remaining
        self._expected = members.expected
        self._placed.clear()
        if self._rails_matter and self._existing:
            self._earlier_rails = self._claimed_rails(host_infos)

    def _follow(self) -> None:
        """Take note of the members placed since the last call."""
        placed, self._placed = self._placed, []
        for host_info in placed:
            assert self._remaining is not None
            self._remaining -= 1
            if self._rails_matter:
                self._used[host_info] = None
            name = host_info.name or host_info.state.host
            self._existing[name] = self._existing.get(name, 0) + 1
            quota = self._quota.get(host_info, 0)
            if quota > 1:
                self._quota[host_info] = quota - 1
            elif quota:
                del self._quota[host_info]
                host_info.weight = host_weights.OTHERS_MOST / 2
            else:
                self._stale = True

    def _next_is_gone(self, host_infos: Sequence[HostInfo]) -> bool:
        """Return whether other filters dropped the plan's next host."""
        following = next(iter(self._quota), None)
        return following is not None and following not in host_infos

    def _plan(self, host_infos: Sequence[HostInfo]) -> None:
        self._stale = False
        self._plans += 1
        spec_obj = self._spec_obj
        facts = self._with_clusters(self._facts(host_infos), host_infos)
        unknown = {
            host_info.name
            for host_info in host_infos
            if host_info.fit_result.unknown
        }
        cluster = self._cluster()
        request, placement = assembly.make_plan(
            cluster, self._with_not_offered(facts), unknown
        )
        self._expected -= cluster.members - request.members
        self._remaining = request.members
        self.placement = placement
        if placement.infeasible_reason is not None:
            # Placing further members frees no capacity: do not plan again.
            self._plans = MAX_PLANS
        LOG.debug(
            'Plan for %d member(s): %s',
            self._remaining,
            placement.infeasible_reason or dict(placement.assignments),
            instance_uuid=spec_obj.instance_uuid,
        )
        if placement.own_overcommit > 1.0:
            LOG.warning(
                'Members of this virtual cluster will share CPUs with each '
                'other, up to %.2f of its vCPUs per CPU of a host, and take '
                'turns: without that, its %d member(s) do not fit. '
                'nova-vhpc-explain shows what is short',
                placement.own_overcommit,
                self._remaining,
                instance_uuid=spec_obj.instance_uuid,
            )
        weights = host_weights.other_weights(
            request, placement, facts, unknown, self._weight_of_unknown
        )
        for host_info, weight in zip(host_infos, weights, strict=True):
            host_info.weight = weight + JITTER * random.random()
        self._quota = {}
        by_name = {host_info.name: host_info for host_info in host_infos}
        for name, weight in host_weights.planned_weights(placement).items():
            host_info = by_name[name]
            self._quota[host_info] = placement.assignments[name]
            host_info.weight = weight
            if name in placement.rails and host_info.reservations is not None:
                host_info.reservations.plan_rails(placement.rails[name])
                self._reorder(host_info)

    def _cluster(self) -> assembly.Cluster:
        """Return the cluster as it is now."""
        assert self._remaining is not None
        group = server_group.for_request(self._spec_obj)
        return assembly.Cluster(
            self._host_fit.requirements,
            self._spec_obj.memory_mb,
            self._remaining,
            self._expected,
            dict(self._existing),
            group and group.policy,
            group and (group.rules or {}).get('max_server_per_host'),
            self._costs,
            self._running_rails(),
        )

    def _claimed_rails(
        self, host_infos: Iterable[HostInfo]
    ) -> dict[str, Mapping[str, int]]:
        """Return the rails of members that were placed before the first plan.

        :returns: number of members by rail, by name of the host; by its UUID
            if it cannot take more.
        """
        group = server_group.for_request(self._spec_obj)
        uuid = self._spec_obj.instance_uuid
        others = [each for each in group.members or () if each != uuid]
        names = {
            host_info.state.uuid: host_info.name or host_info.state.host
            for host_info in host_infos
        }
        found = self._host_fit.claimed_rails(others)
        return {names.get(root, root): found[root] for root in found}

    def _running_rails(self) -> dict[str, Mapping[str, int]]:
        """Return the rails of the members that run, by host name."""
        running = {
            name: Counter(rails) for name, rails in self._earlier_rails.items()
        }
        for host_info in self._used:
            if host_info.reservations is not None:
                name = host_info.name or host_info.state.host
                running.setdefault(name, Counter()).update(
                    host_info.reservations.used_rails()
                )
        return dict(running)

    def _facts(self, host_infos: Sequence[HostInfo]) -> list[HostFacts]:
        names: set[str] = set()
        for host_info in host_infos:
            if not host_info.name:
                name = host_info.state.host
                if name in names:
                    # One nova-compute may have several nodes (Ironic).
                    name = f'{name}/{host_info.state.nodename}'
                host_info.name = name
            names.add(host_info.name)
        facts = self._host_fit.facts
        return [facts(host_info, self._fabric) for host_info in host_infos]

    def _with_clusters(
        self, facts: Sequence[HostFacts], host_infos: Sequence[HostInfo]
    ) -> list[HostFacts]:
        """Return the facts with the other virtual clusters of each host."""
        group = server_group.for_request(self._spec_obj)
        if group is None:
            return list(facts)
        clusters_of_hosts = server_groups.for_process().of_hosts(
            [host_info.state.instances for host_info in host_infos],
            group.uuid,
        )
        return [
            fact._replace(clusters=clusters) if clusters else fact
            for fact, clusters in zip(facts, clusters_of_hosts, strict=True)
        ]

    def _with_not_offered(self, facts: Sequence[HostFacts]) -> list[HostFacts]:
        """Return the facts, and those of other hosts that hold members."""
        fabric = self._fabric
        offered = {fact.name for fact in facts}
        names = [name for name in self._existing if name not in offered]
        if not self._racks_asked and (missing := fabric.racks_missing(names)):
            # The aggregates of offered hosts do not name these hosts.
            self._racks_asked = True
            fabric.add_racks(nova_db.racks(missing, fabric.rack_key))
        return [
            *facts,
            *(
                HostFacts(name, 0, 0, 0, 0, 0, 0, *fabric.place_of(name))
                for name in names
            ),
        ]


def _behind(multiplier: float) -> float:
    """Return the raw weight to subtract for a host's second list entry.

    Times the multiplier it is :data:`DUPLICATE`, or twice the multiplier's
    absolute value if that is more.

    :param multiplier: the host's weight multiplier.
    """
    return max(DUPLICATE, 2 * abs(multiplier)) / (multiplier or 1.0)
