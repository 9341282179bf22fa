# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Explain, host by host, where filter and weigher would place a member.

The functions of filter, planner and weigher themselves are called, with values
that were read from a cloud or from a file.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nova_vhpc.explain import moves, steering
from nova_vhpc.explain.model import Answer, Host, HostAnswer, Question
from nova_vhpc.explain.moves import Step
from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.hosts import network_fit, ports
from nova_vhpc.scheduler.hosts.requirements import (
    FitResult,
    claimable,
    evaluate,
)
from nova_vhpc.scheduler.planner import cost, host_weights
from nova_vhpc.scheduler.planner.model import (
    NO_LIMIT,
    ClusterPlacement,
    HostFacts,
    Rail,
)
from nova_vhpc.scheduler.session import assembly
from nova_vhpc.scheduler.sources.snapshot import UplinkState

_UNPLANNED = (
    'the weight multiplier of no host that passes is above 0: '
    "Nova's other weighers decide alone"
)


class _Verdict(NamedTuple):
    """What is decided about one host.

    :ivar facts: values for the planner, those of its uplinks included.
    :ivar uplinks: uplinks that the next member could get.
    :ivar rejected_by: ``nova``, ``filter`` or None.
    """

    host: Host
    facts: HostFacts
    fit: FitResult
    uplinks: Sequence[UplinkState]
    rejected_by: str | None = None

    @property
    def name(self) -> str:
        return self.facts.name


def explain(question: Question) -> Answer:
    """Return what filter, planner and weigher decide about a request."""
    one_by_one = [_verdict(question, host) for host in question.hosts]
    verdicts = _within_tier(question, one_by_one)
    passing = [verdict for verdict in verdicts if verdict.fit.passes]
    planned = [
        verdict
        for verdict in passing
        if host_weights.is_planned(question.multiplier_of(verdict.host))
    ]
    cluster = question.cluster
    hosts = _facts(question, planned)
    unknown = {verdict.name for verdict in planned if verdict.fit.unknown}
    request = assembly.plan_request(cluster, hosts)
    if passing and not planned:
        placement = ClusterPlacement(
            {}, math.inf, infeasible_reason=_UNPLANNED
        )
    elif passing:
        request, placement = assembly.make_plan(cluster, hosts, unknown)
    else:
        # The planner says what is short of hosts that fit one by one.
        _, placement = assembly.plan_alone(
            cluster, _facts(question, one_by_one)
        )
    facts = [verdict.facts for verdict in planned]
    others = host_weights.other_weights(
        request, placement, facts, unknown, question.weight_of_unknown
    )
    weights = {
        verdict.name: host_weights.unplanned_weight(
            question.multiplier_of(verdict.host)
        )
        for verdict in passing
    }
    weights.update(zip((f.name for f in facts), others, strict=True))
    weights.update(host_weights.planned_weights(placement))
    answers = [
        _answer(
            question,
            verdict,
            placement,
            weights.get(verdict.name),
            planner.capacity(verdict.facts, request)
            if verdict.fit.passes
            else 0,
        )
        for verdict in verdicts
    ]
    answers.sort(key=_order)
    members = cluster.members - cluster.expected
    return Answer(
        hosts=tuple(answers),
        placement=placement,
        members=members,
        network=question.requirements.specs.network,
        flaws=question.flaws,
        notes=_notes(question, answers),
        slowdown=_slowdown(question, request.members, placement),
        moves=_moves(question, one_by_one) if question.moves else (),
        expected=max(0, request.members - members),
    )


def _verdict(question: Question, host: Host) -> _Verdict:
    """Judge one host by itself."""
    fit, rejected_by = _fit(question, host)
    requirements = question.requirements
    uplinks: Sequence[UplinkState] = fit.uplinks
    if requirements.requested_uplinks:
        uplinks = claimable(host.view, uplinks)
    rails: tuple[Rail, ...] = ()
    if requirements.rails_matter:
        rails = network_fit.free_rails((u, u.free or 1) for u in uplinks)
    facts = host.facts._replace(
        slots=min(host.facts.slots, fit.slots),
        link_mbps=fit.link_mbps,
        rails=rails,
    )
    return _Verdict(host, facts, fit, uplinks, rejected_by)


def _fit(question: Question, host: Host) -> tuple[FitResult, str | None]:
    """Return a host's fit result, and what rejects it."""
    devices = question.requirements.devices
    fit = evaluate(host.view, question.requirements, question.limits)
    if host.nova_reason is not None:
        # The filter's reason is added, because it names bridge and NIC.
        reason = host.nova_reason
        if fit.reason is not None:
            reason += f'; the filter would reject it, too: {fit.reason}'
        return fit._replace(reason=reason), 'nova'
    if fit.reason is not None:
        return fit, 'filter'
    if host.devices is None or not devices:
        return fit, None
    slots = host.devices // devices
    if slots:
        return fit._replace(slots=min(fit.slots, slots)), None
    reason = f'it has {host.devices} free PCI device(s), {devices} are needed'
    return fit._replace(reason=reason), 'filter'


def _within_tier(
    question: Question, verdicts: Sequence[_Verdict]
) -> list[_Verdict]:
    """Return the verdicts, with the hosts rejected beyond the tier."""
    reasons = assembly.beyond_tier(
        question.cluster, _facts(question, verdicts)
    )
    return [
        verdict._replace(
            fit=verdict.fit._replace(reason=reasons[verdict.name]),
            rejected_by='filter',
        )
        if verdict.fit.passes and verdict.name in reasons
        else verdict
        for verdict in verdicts
    ]


def _facts(
    question: Question, verdicts: Sequence[_Verdict]
) -> list[HostFacts]:
    """Return the facts of hosts that pass, then of those that hold members."""
    facts = [verdict.facts for verdict in verdicts if verdict.fit.passes]
    return assembly.with_not_offered(
        facts,
        question.cluster.existing,
        {host.facts.name: host.facts for host in question.hosts},
    )


def _answer(
    question: Question,
    verdict: _Verdict,
    placement: ClusterPlacement,
    weight: float | None,
    capacity: int,
) -> HostAnswer:
    host, fit = verdict.host, verdict.fit
    name = verdict.name
    return HostAnswer(
        name=name,
        reason=fit.reason,
        rejected_by=verdict.rejected_by,
        weight=None if weight is None else round(weight, 4),
        slots=None if fit.slots >= NO_LIMIT else fit.slots,
        capacity=capacity,
        link_mbps=fit.link_mbps,
        uplinks=_serving_ports(question, verdict)
        if question.requirements.port_requests
        else tuple(map(str, verdict.uplinks)),
        switch=host.facts.switch,
        rack=host.facts.rack,
        planned=placement.assignments.get(name, 0),
        running=question.cluster.existing.get(name, 0),
        unknown=fit.unknown,
        devices=host.devices,
        devices_unknown=question.requirements.devices > 0
        and host.devices is None,
        multiplier=question.multiplier_of(host),
        **_steering(question, verdict, placement.rails.get(name, ())),
    )


def _steering(
    question: Question, verdict: _Verdict, rails: Sequence[str]
) -> Mapping[str, Any]:
    """Return what a host's answer says of packets and their uplinks.

    :param rails: rails of the members that are planned there.
    """
    topology, fit = verdict.host.view.topology, verdict.fit
    if not question.requirements.needs_topology or not fit.passes:
        return {}
    if fit.unknown or topology is None:
        return {'unsteered': 'its topology is unknown'}
    found = steering.of_host(
        question.requirements, verdict.uplinks, topology.uplinks
    )
    return {
        'steered_by': found.way,
        'unsteered': found.reason,
        'rails': tuple(rails),
        'planned_uplinks': tuple(
            map(str, steering.of_rails(rails, verdict.uplinks))
        ),
    }


def _serving_ports(question: Question, verdict: _Verdict) -> tuple[str, ...]:
    """Return the uplinks that the ports of the next member could get."""
    topology, fit = verdict.host.view.topology, verdict.fit
    if topology is None or not fit.passes or fit.unknown:
        return ()
    requirements = question.requirements
    assert requirements.rule is not None
    serving = ports.fit(
        requirements.rule,
        requirements.port_requests,
        topology,
        requirements.specs.min_link_mbps,
    ).serving.values()
    uuids = frozenset[str]().union(*serving)
    return tuple(str(u) for u in topology.neutron_uplinks if u.uuid in uuids)


def _notes(
    question: Question, answers: Sequence[HostAnswer]
) -> tuple[str, ...]:
    """Return what an operator must know about the answers."""
    notes = list(question.notes)
    requirements = question.requirements
    if question.unlocated:
        notes.append(
            f'Nova does not tell whether and where {question.unlocated} '
            'member(s) run, because their cell does not answer: the plan is '
            'made without them, and may place others far from them.'
        )
    if not requirements.specs.requested:
        notes.append(
            'The flavor has no vhpc: extra specs: filter and weigher leave '
            'its servers to Nova. This is what they would decide if it had '
            'vhpc:workload.'
        )
    networks = requirements.networks
    if (
        requirements.needs_topology
        and networks is not None
        and networks.tunneled
        and not networks.by_encap_ip
    ):
        notes.append(
            'No host has published an uplink with an encap IP of OVN: no '
            'claim on an uplink steers packets of a tunneled network, on any '
            'host. Give each uplink an IP address, and list them in '
            'external_ids:ovn-encap-ip of Open_vSwitch.'
        )
    unknown = sum(1 for answer in answers if answer.devices_unknown)
    if unknown:
        notes.append(
            f'Free PCI devices are unknown for {unknown} of {len(answers)} '
            'host(s) and not counted there; nova-scheduler will count them. '
            'They are known for one alias that is in [pci] alias of '
            '--config-file, where nova-compute has [pci] '
            'report_in_placement; devices of SR-IOV ports never are.'
        )
    return tuple(notes)


def _moves(
    question: Question, verdicts: Sequence[_Verdict]
) -> tuple[Step, ...]:
    """Return what moves of running members would gain.

    :param verdicts: of each host by itself: ``vhpc:max_tier`` leaves those
        out to which only all members together can be moved.
    """
    useful = [
        verdict
        for verdict in verdicts
        if not verdict.fit.unknown
        and host_weights.is_planned(question.multiplier_of(verdict.host))
    ]
    request = assembly.plan_request(
        dataclasses.replace(question.cluster, members=0),
        _facts(question, useful),
    )
    return tuple(moves.advise(request))


def _slowdown(
    question: Question, new_members: int, placement: ClusterPlacement
) -> float | None:
    network = question.requirements.specs.network
    existing = question.cluster.existing
    used = set(placement.assignments) | set(existing)
    if network is None or not placement.assignments:
        return None
    members = new_members + sum(existing.values())
    here = max(1, round(members / len(used)))
    slowdown = cost.slowdown(
        network,
        min(here, members),
        members,
        1.0,
        tier_factor=placement.tier_factor,
        table=question.cluster.costs,
    )
    return round(slowdown, 3)


def _order(answer: HostAnswer) -> tuple[Any, ...]:
    weight = answer.weight
    return (
        answer.reason is not None,
        answer.planned == 0,
        0.0 if weight is None else -weight * answer.multiplier,
        answer.name,
    )
