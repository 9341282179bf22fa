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


"""What is asked of an explanation, and what it answers."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from nova_vhpc.scheduler.hosts.requirements import (
    NO_LIMITS,
    HostView,
    Limits,
    Requirements,
)
from nova_vhpc.scheduler.planner.model import ClusterPlacement, HostFacts


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """One host as it is shown to filter and planner.

    :ivar facts: for the planner; its slots and link are filled in from
        the filter's fit_result.
    :ivar view: for the filter.
    :ivar nova_reason: why Nova itself or Placement leaves the host out, None
        if they do not.
    :ivar devices: free PCI devices of the kind that ``exported`` asks for,
        None if unknown.
    :ivar multiplier: of the weigher, by the host's aggregates; None if they
        say nothing of it.
    """

    facts: HostFacts
    view: HostView
    nova_reason: str | None = None
    devices: int | None = None
    multiplier: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What is to be explained.

    :ivar members: to be placed now.
    :ivar ram_mb: of one member.
    :ivar policy: of the server group, or None.
    :ivar existing: running members by host.
    :ivar multiplier: of the weigher, where aggregates say nothing of it.
    :ivar flaws: what is wrong with the flavor, for people.
    """

    requirements: Requirements
    members: int
    ram_mb: int
    hosts: tuple[Host, ...]
    policy: str | None = None
    max_server_per_host: int | None = None
    existing: Mapping[str, int] = dataclasses.field(default_factory=dict)
    limits: Limits = NO_LIMITS
    weight_of_unknown: float = -1.0
    multiplier: float = 1.0
    flaws: tuple[str, ...] = ()

    def multiplier_of(self, host: Host) -> float:
        """The weigher's on one host; above 0 the host is planned."""
        own = host.multiplier
        return self.multiplier if own is None else own


@dataclasses.dataclass(frozen=True, slots=True)
class HostAnswer:
    """What filter and weigher say of one host.

    :ivar reason: why the host is rejected, None if it passes.
    :ivar rejected_by: ``nova``, ``filter`` or None.
    :ivar weight: raw weight for the first member; None if rejected.
    :ivar slots: members that its uplinks can take, None without limit.
    :ivar capacity: members that it can take in all.
    :ivar planned: new members that the plan gives it.
    :ivar running: members that it has.
    :ivar devices: free PCI devices of the kind that is asked for, None if
        unknown.
    :ivar devices_unknown: whether that matters here.
    :ivar multiplier: of the weight; the host is planned above 0.
    """

    name: str
    reason: str | None
    rejected_by: str | None
    weight: float | None
    slots: int | None
    capacity: int
    link_mbps: int
    uplinks: tuple[str, ...]
    switch: str | None
    rack: str | None
    planned: int
    running: int
    unknown: bool = False
    devices: int | None = None
    devices_unknown: bool = False
    multiplier: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The whole explanation.

    :ivar hosts: planned ones first, then by weight times multiplier, rejected
        ones last.
    :ivar notes: what to know of all this, or could not be found out.
    :ivar slowdown: predicted run time of a communicating program over
        native Linux at the plan's mean members per host, by network
        configuration (:func:`nova_vhpc.scheduler.planner.cost.slowdown`).
    """

    hosts: tuple[HostAnswer, ...]
    placement: ClusterPlacement
    members: int
    network: str | None
    flaws: tuple[str, ...]
    notes: tuple[str, ...] = ()
    slowdown: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        placement = self.placement
        feasible = placement.infeasible_reason is None
        return {
            'members': self.members,
            'network': self.network,
            'flaws': list(self.flaws),
            'notes': list(self.notes),
            'plan': {
                'assignments': dict(placement.assignments),
                'cost_us': round(placement.cost, 1) if feasible else None,
                'tier': placement.tier.name.lower() if feasible else None,
                'infeasible_reason': placement.infeasible_reason,
                'slowdown': self.slowdown,
            },
            'hosts': [dataclasses.asdict(host) for host in self.hosts],
        }
