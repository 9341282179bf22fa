# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The values of an explanation: the question and its answer."""

import dataclasses
from typing import Any

from nova_vhpc.explain.moves import Step
from nova_vhpc.scheduler.hosts.requirements import (
    NO_LIMITS,
    HostView,
    Limits,
    Requirements,
)
from nova_vhpc.scheduler.planner.model import ClusterPlacement, HostFacts
from nova_vhpc.scheduler.session.assembly import Cluster


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """One host, with the values that filter and planner need.

    :ivar facts: values for the planner, without those that the fit result
        adds: limit of the uplinks and their speed.
    :ivar view: values for the filter.
    :ivar nova_reason: why Nova or Placement leaves the host out, None if they
        do not.
    :ivar devices: number of free PCI devices of the kind that the flavor
        requests, None if unknown.
    :ivar multiplier: weight multiplier in the host's aggregates; None if they
        have none.
    """

    facts: HostFacts
    view: HostView
    nova_reason: str | None = None
    devices: int | None = None
    multiplier: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A request, and the hosts for which to explain it.

    :ivar cluster: members to place now and later, and those that run.
    :ivar hosts: all compute hosts.
    :ivar limits: how old or incomplete topology may be.
    :ivar weight_of_unknown: raw weight of hosts of unknown topology.
    :ivar multiplier: weight multiplier of hosts whose aggregates have none.
    :ivar unlocated: number of members of which Nova does not tell whether and
        where they run.
    :ivar flaws: sentences that say what is wrong with the flavor.
    :ivar notes: sentences on what the hosts' values do not cover.
    :ivar moves: whether to say what moves of running members would gain.
    """

    cluster: Cluster
    hosts: tuple[Host, ...]
    limits: Limits = NO_LIMITS
    weight_of_unknown: float = -1.0
    multiplier: float = 1.0
    unlocated: int = 0
    flaws: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    moves: bool = False

    @property
    def requirements(self) -> Requirements:
        """What one member needs of its host."""
        return self.cluster.requirements

    def multiplier_of(self, host: Host) -> float:
        """Return the weight multiplier of one host."""
        if host.multiplier is None:
            return self.multiplier
        return host.multiplier


@dataclasses.dataclass(frozen=True, slots=True)
class HostAnswer:
    """What filter and weigher decide about one host.

    :ivar reason: why the host is rejected, None if it passes.
    :ivar rejected_by: ``nova``, ``filter`` or None.
    :ivar weight: raw weight for the first member; None if rejected.
    :ivar slots: number of members that its uplinks can take, None without
        limit.
    :ivar capacity: number of members that it can take in all.
    :ivar link_mbps: speed of its slowest uplink for members, in Mbit/s; 0 if
        unknown.
    :ivar uplinks: NIC and bridge of each uplink that a member could get.
    :ivar switch: switch of its aggregates, or None.
    :ivar rack: rack of its aggregates, or None.
    :ivar planned: number of new members that the plan assigns to it.
    :ivar running: number of members that run on it.
    :ivar unknown: whether it passes although its topology is unknown.
    :ivar devices: number of free PCI devices of the kind that the flavor
        requests, None if unknown.
    :ivar devices_unknown: whether the flavor needs devices whose number is
        unknown.
    :ivar multiplier: weight multiplier of the host.
    :ivar steered_by: what makes a member's packets take its uplink: a
        :class:`nova_vhpc.explain.steering.Way`, or None.
    :ivar unsteered: why nothing does, None if something does, or no uplink is
        needed.
    :ivar rails: rail of each new member, if rails matter.
    :ivar planned_uplinks: NIC and bridge of the uplink of each of these.
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
    steered_by: str | None = None
    unsteered: str | None = None
    rails: tuple[str, ...] = ()
    planned_uplinks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The whole explanation.

    :ivar hosts: planned hosts first, then by weight times multiplier,
        rejected hosts last.
    :ivar placement: plan for all members.
    :ivar members: number of members to place now.
    :ivar expected: number of members to come for which the plan has room.
    :ivar moves: the cluster as it runs, then what more and more moves would
        make of it; empty if not asked.
    :ivar network: network configuration, None if the flavor names none.
    :ivar flaws: sentences that say what is wrong with the flavor.
    :ivar notes: sentences on what the answers do not cover.
    :ivar slowdown: predicted run time of a communicating program divided by
        that on native Linux under one switch, for the network configuration,
        the plan's mean members per host and its place in the fabric
        (:func:`nova_vhpc.scheduler.planner.cost.slowdown`); None without
        plan or network configuration.
    """

    hosts: tuple[HostAnswer, ...]
    placement: ClusterPlacement
    members: int
    network: str | None
    flaws: tuple[str, ...]
    notes: tuple[str, ...] = ()
    slowdown: float | None = None
    expected: int = 0
    moves: tuple[Step, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation for JSON."""
        document = self._plan_as_dict()
        if self.moves:
            document['moves'] = self._moves_as_list()
        return document

    def _moves_as_list(self) -> list[dict[str, Any]]:
        return [
            {
                'moves': step.moves,
                'leave': dict(step.leave),
                'join': dict(step.join),
                'cost_us': round(step.placement.cost, 1),
                'gain': round(step.gain_over(self.moves[0]), 4),
                'tier': step.placement.tier.name.lower(),
            }
            for step in self.moves
        ]

    def _plan_as_dict(self) -> dict[str, Any]:
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
                'expected': self.expected,
                'rails': {
                    name: list(rails)
                    for name, rails in placement.rails.items()
                },
                'stray_share': round(placement.stray_share, 3),
                'own_overcommit': round(placement.own_overcommit, 3)
                if feasible
                else None,
            },
            'hosts': [_host_as_dict(host) for host in self.hosts],
        }


def _host_as_dict(host: HostAnswer) -> dict[str, Any]:
    return {
        'room' if key == 'capacity' else key: value
        for key, value in dataclasses.asdict(host).items()
    }
