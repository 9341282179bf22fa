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

"""Leads each member along the plan of its whole virtual cluster.

The plan is made when the first member is weighed, not when it is
filtered: only then is it known which hosts passed all of Nova's filters.
It is made again when a member lands elsewhere, since another scheduler
took its uplink or another weigher weighed more.
"""

import dataclasses
import random
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from oslo_log import log as logging

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.hosts import state as hosts
from nova_vhpc.scheduler.planner import host_weights
from nova_vhpc.scheduler.planner.model import HostFacts, PlanRequest
from nova_vhpc.scheduler.session import server_group
from nova_vhpc.scheduler.sources import nova_db

if TYPE_CHECKING:
    from nova_vhpc.scheduler.session.host_info import Record
    from nova_vhpc.scheduler.session.session import Request

LOG = logging.getLogger(__name__)

JITTER = 1e-6
"""Most that chance adds to the weight of a host outside of the plan:
schedulers that lose a race must not all go on to the same next host."""

DUPLICATE = 40.0
"""Taken off the weight, multiplier included, of a host's second entry: a
further uplink of a host is tried after all other hosts. Twice what the
plan itself weighs, if that is more."""

MAX_PLANS = 8
"""Plans per request. Each costs a look at all hosts; a request that eight
others have run into is better finished than planned."""


class Steering:
    """The plan of one request, and the hosts' weights that follow.

    :ivar duplicates: whether hosts stand in the list more than once.
    """

    def __init__(self, request: 'Request') -> None:
        self.duplicates = False
        self.placement: planner.ClusterPlacement | None = None
        self._request = request
        self._landed: list[Record] = []
        self._left: int | None = None
        self._coming = 0
        self._existing: dict[str, int] = {}
        self._quota: dict[Record, int] = {}
        self._plans = 0
        self._stale = True
        self._run = 0
        self._racks_asked = False

    def planned(self) -> Iterable['Record']:
        """Hosts that the plan has members left for."""
        return tuple(self._quota)

    def landed(self, record: 'Record') -> None:
        """A member has landed on this host."""
        self._landed.append(record)

    def weigh(self, states: Sequence[Any]) -> list[float]:
        """Raw weights of hosts for the next member, from 0.0 to 1.0."""
        request = self._request
        try:
            records = [state._vhpc for state in states]
        except AttributeError:
            records = [request.record(state) for state in states]
        if self._left is None:
            self._begin(records)
        self._follow()
        if (
            (self._stale or self._next_is_gone(records))
            and (self._left or 0) > 0
            and self._plans < MAX_PLANS
        ):
            try:
                self._plan(
                    [r for r in dict.fromkeys(records) if r.multiplier > 0]
                )
            except Exception:
                # A request is better placed without a plan than not at all.
                self._plans = MAX_PLANS
                LOG.exception(
                    'No plan for this virtual cluster, its members are '
                    'placed without one; please report this'
                )
        if not self.duplicates:
            return [record.weight for record in records]
        self._run += 1
        weights = []
        for record in records:
            weight = record.weight
            if record.weigh_run == self._run:
                weight -= _behind(record.multiplier)
            record.weigh_run = self._run
            weights.append(weight)
        return weights

    def _begin(self, records: Sequence['Record']) -> None:
        # With few hosts, members may have landed before any weighing.
        if not any(record.multiplier > 0 for record in records):
            self._left = 0
            return
        members = server_group.Members(self._request, records, self._landed)
        self._existing = members.running
        self._left = members.left
        self._coming = members.coming
        self._landed.clear()

    def _follow(self) -> None:
        """Take note of the members that landed since."""
        landed, self._landed = self._landed, []
        for record in landed:
            assert self._left is not None
            self._left -= 1
            name = record.name or record.state.host
            self._existing[name] = self._existing.get(name, 0) + 1
            quota = self._quota.get(record, 0)
            if quota > 1:
                self._quota[record] = quota - 1
            elif quota:
                del self._quota[record]
                record.weight = host_weights.OTHERS_MOST / 2
            else:
                self._stale = True

    def _next_is_gone(self, records: Sequence['Record']) -> bool:
        """Whether other filters have dropped the plan's next host."""
        following = next(iter(self._quota), None)
        return following is not None and following not in records

    def _plan(self, records: Sequence['Record']) -> None:
        self._stale = False
        self._plans += 1
        request = self._request
        wanted = request.wanted
        spec_obj = request.spec_obj
        policy, most = _policy(spec_obj)
        facts = self._facts(records)
        away = self._away({fact.name for fact in facts})
        assert self._left is not None
        question = PlanRequest(
            members=self._left,
            vcpus=wanted.vcpus,
            ram_mb=max(1, spec_obj.memory_mb),
            hosts=[*facts, *away] if away else facts,
            network=wanted.specs.network,
            paradigm=wanted.specs.paradigm,
            policy=policy,
            max_server_per_host=most,
            spare_cpus=wanted.spare_cpus,
            max_overcommit=wanted.max_overcommit,
            existing=dict(self._existing),
        )
        placement = self._placement(question, records)
        if placement.infeasible_reason is not None and self._coming:
            # Better near those that run than without a plan for the others.
            self._left -= self._coming
            self._coming = 0
            question = dataclasses.replace(question, members=self._left)
            placement = self._placement(question, records)
        self.placement = placement
        if placement.infeasible_reason is not None:
            # Members that are placed now make no more room.
            self._plans = MAX_PLANS
        LOG.debug(
            'Plan for %d member(s): %s',
            self._left,
            placement.infeasible_reason or dict(placement.assignments),
            instance_uuid=spec_obj.instance_uuid,
        )
        self._weigh_others(question, records, facts)
        self._quota = {}
        by_name = {record.name: record for record in records}
        for name, weight in host_weights.planned_weights(placement).items():
            record = by_name[name]
            self._quota[record] = placement.assignments[name]
            record.weight = weight

    def _placement(
        self, question: PlanRequest, records: Sequence['Record']
    ) -> planner.ClusterPlacement:
        """Plan, on hosts of unknown topology only if there is no other."""
        unknown = {r.name for r in records if r.verdict.unknown}
        if unknown:
            known = [h for h in question.hosts if h.name not in unknown]
            placement = planner.plan(
                dataclasses.replace(question, hosts=known)
            )
            if placement.infeasible_reason is None:
                return placement
        return planner.plan(question)

    def _facts(self, records: Sequence['Record']) -> list[HostFacts]:
        request = self._request
        judge = request.judge
        member = hosts.Member(
            judge.pinned,
            request.wanted.vcpus,
            request.spec_obj.memory_mb,
        )
        facts = []
        names: set[str] = set()
        for record in records:
            state = record.state
            if not record.name:
                name = state.host
                if name in names:
                    # One service may have several nodes.
                    name = f'{name}/{state.nodename}'
                record.name = name
            names.add(record.name)
            fact = hosts.facts(
                state,
                record.name,
                judge.slots(record),
                record.verdict.link_mbps,
                request.fabric,
                judge.defaults,
                member,
                judge.resources(record),
                record.landed,
            )
            stopping = judge.stopping_vcpus(state)
            if stopping:
                fact = fact._replace(used_vcpus=fact.used_vcpus - stopping)
            facts.append(fact)
        return facts

    def _away(self, offered: Collection[str]) -> list[HostFacts]:
        """Hosts that members run on, but none can be added to."""
        fabric = self._request.fabric
        names = [name for name in self._existing if name not in offered]
        if not self._racks_asked and (missing := fabric.racks_missing(names)):
            # No host of their switch is offered, whose aggregates would tell.
            self._racks_asked = True
            fabric.add_racks(nova_db.racks(missing, fabric.rack_key))
        return [
            HostFacts(name, 0, 0, 0, 0, 0, 0, *fabric.place_of(name))
            for name in names
        ]

    def _weigh_others(
        self,
        question: PlanRequest,
        records: Sequence['Record'],
        facts: Sequence[HostFacts],
    ) -> None:
        """Weigh hosts outside of the plan by what a lone member costs."""
        assert self.placement is not None
        weights = host_weights.other_weights(question, self.placement, facts)
        unknown = self._request.conf.vhpc_scheduler.weight_of_unknown
        for record, weight in zip(records, weights, strict=True):
            weight = unknown if record.verdict.unknown else weight
            record.weight = weight + JITTER * random.random()


def _behind(multiplier: float) -> float:
    """What takes :data:`DUPLICATE` off, in raw weight."""
    return max(DUPLICATE, 2 * abs(multiplier)) / (multiplier or 1.0)


def _policy(spec_obj: Any) -> tuple[str | None, int | None]:
    servers = server_group.of(spec_obj)
    if servers is None:
        return None, None
    most = (servers.rules or {}).get('max_server_per_host')
    return servers.policy, most
