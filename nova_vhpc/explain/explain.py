# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Explain, host by host, where filter and weigher would place a member.

Pure: calls the functions of filter, planner and weigher themselves, with
values that were read from a cloud or from a file.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from nova_vhpc.explain import moves, steering
from nova_vhpc.explain.model import Answer, Host, HostAnswer, Question
from nova_vhpc.explain.moves import Step
from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.hosts import network_fit, ports
from nova_vhpc.scheduler.hosts.requirements import (
    FitResult,
    HostView,
    Requirements,
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


def explain(question: Question) -> Answer:
    """Return what filter, planner and weigher decide about a request."""
    one_by_one = [_fit_result(question, host) for host in question.hosts]
    fit_results = _within_tier(question, one_by_one)
    passing = [
        (host, fit_result)
        for host, (_, fit_result) in zip(
            question.hosts, fit_results, strict=True
        )
        if fit_result.passes
    ]
    planned = [
        pair
        for pair in passing
        if host_weights.is_planned(question.multiplier_of(pair[0]))
    ]
    facts = [_facts(question, *pair) for pair in planned]
    unknown = {
        host.facts.name for host, fit_result in planned if fit_result.unknown
    }
    cluster = _cluster(question)
    hosts = _with_not_offered(question, facts)
    request = assembly.plan_request(cluster, hosts)
    if passing and not facts:
        placement = ClusterPlacement(
            {}, math.inf, infeasible_reason=_UNPLANNED
        )
    elif passing:
        request, placement = assembly.make_plan(cluster, hosts, unknown)
    else:
        # The planner says what is short of hosts that fit one by one.
        alone = _passing_facts(question, one_by_one)
        _, placement = assembly.plan_alone(
            cluster, _with_not_offered(question, alone)
        )
    weights = {
        host.facts.name: host_weights.unplanned_weight(
            question.multiplier_of(host)
        )
        for host, _ in passing
    }
    weights.update(
        zip(
            (fact.name for fact in facts),
            host_weights.other_weights(
                request, placement, facts, unknown, question.weight_of_unknown
            ),
            strict=True,
        )
    )
    weights.update(host_weights.planned_weights(placement))
    capacities = {
        host.facts.name: planner.capacity(
            _facts(question, host, fit_result), request
        )
        for host, fit_result in passing
    }
    answers = [
        HostAnswer(
            name=host.facts.name,
            reason=fit_result.reason,
            rejected_by=rejected_by,
            weight=_rounded(weights.get(host.facts.name)),
            slots=None if fit_result.slots >= NO_LIMIT else fit_result.slots,
            capacity=capacities.get(host.facts.name, 0),
            link_mbps=fit_result.link_mbps,
            uplinks=_serving(question.requirements, host.view, fit_result),
            switch=host.facts.switch,
            rack=host.facts.rack,
            planned=placement.assignments.get(host.facts.name, 0),
            running=question.existing.get(host.facts.name, 0),
            unknown=fit_result.unknown,
            devices=host.devices,
            devices_unknown=question.requirements.devices > 0
            and host.devices is None,
            multiplier=question.multiplier_of(host),
            **_steering(
                question.requirements,
                host.view,
                fit_result,
                placement.rails.get(host.facts.name, ()),
            ),
        )
        for host, (rejected_by, fit_result) in zip(
            question.hosts, fit_results, strict=True
        )
    ]
    answers.sort(key=_order)
    return Answer(
        hosts=tuple(answers),
        placement=placement,
        members=question.members,
        network=question.requirements.specs.network,
        flaws=question.flaws,
        notes=_notes(question, answers),
        slowdown=_slowdown(question, request.members, placement),
        moves=_moves(question, one_by_one) if question.moves else (),
        expected=max(0, request.members - question.members),
    )


def _serving(
    requirements: Requirements, view: HostView, fit_result: FitResult
) -> tuple[str, ...]:
    """Return the uplinks that the next member could get."""
    if requirements.port_requests:
        return _serving_ports(requirements, view, fit_result)
    return tuple(map(str, _serving_uplinks(requirements, view, fit_result)))


def _serving_uplinks(
    requirements: Requirements, view: HostView, fit_result: FitResult
) -> Sequence[UplinkState]:
    if requirements.requested_uplinks:
        return claimable(view, fit_result.uplinks)
    return fit_result.uplinks


def _steering(
    requirements: Requirements,
    view: HostView,
    fit_result: FitResult,
    rails_of_members: Sequence[str],
) -> dict[str, Any]:
    """Return what a host's answer says of packets and their uplinks."""
    if not requirements.needs_topology or not fit_result.passes:
        return {}
    if fit_result.unknown or view.topology is None:
        return {'unsteered': 'its topology is unknown'}
    serving = _serving_uplinks(requirements, view, fit_result)
    found = steering.of_host(requirements, serving, view.topology.uplinks)
    return {
        'steered_by': found.way,
        'unsteered': found.reason,
        'rails': tuple(rails_of_members),
        'planned_uplinks': tuple(
            map(str, steering.of_rails(rails_of_members, serving))
        ),
    }


def _serving_ports(
    requirements: Requirements, view: HostView, fit_result: FitResult
) -> tuple[str, ...]:
    """Return the uplinks that the ports of the next member could get."""
    if view.topology is None or not fit_result.passes or fit_result.unknown:
        return ()
    assert requirements.rule is not None
    port_fit = ports.fit(
        requirements.rule,
        requirements.port_requests,
        view.topology,
        requirements.specs.min_link_mbps,
    )
    serving = frozenset[str]().union(*port_fit.serving.values())
    return tuple(
        str(uplink)
        for uplink in view.topology.neutron_uplinks
        if uplink.uuid in serving
    )


def _notes(
    question: Question, answers: Sequence[HostAnswer]
) -> tuple[str, ...]:
    """Return what an operator must know about the answers."""
    notes = list(question.notes)
    if not question.requirements.specs.requested:
        notes.append(
            'The flavor has no vhpc: extra specs: filter and weigher leave '
            'its servers to Nova. This is what they would decide if it had '
            'vhpc:workload.'
        )
    networks = question.requirements.networks
    if (
        question.requirements.needs_topology
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


def _fit_result(
    question: Question, host: Host
) -> tuple[str | None, FitResult]:
    """Return a host's fit result, and what rejects it.

    :returns: ``nova``, ``filter`` or None, and the fit result.
    """
    requirements = question.requirements
    fit_result = evaluate(host.view, requirements, question.limits)
    if host.nova_reason is not None:
        # The filter's reason is added, because it names bridge and NIC.
        reason = host.nova_reason
        if fit_result.reason is not None:
            reason += f'; the filter would reject it, too: {fit_result.reason}'
        return 'nova', fit_result._replace(reason=reason)
    if fit_result.reason is not None:
        return 'filter', fit_result
    if host.devices is None or not requirements.devices:
        return None, fit_result
    slots = host.devices // requirements.devices
    if slots:
        return None, fit_result._replace(slots=min(fit_result.slots, slots))
    return 'filter', fit_result._replace(
        reason=f'it has {host.devices} free PCI device(s), '
        f'{requirements.devices} are needed'
    )


def _within_tier(
    question: Question, fit_results: list[tuple[str | None, FitResult]]
) -> list[tuple[str | None, FitResult]]:
    """Return fit results, with the hosts rejected that are beyond the tier."""
    facts = _passing_facts(question, fit_results)
    reasons = assembly.beyond_tier(
        _cluster(question), _with_not_offered(question, facts)
    )
    return [
        ('filter', fit_result._replace(reason=reasons[host.facts.name]))
        if fit_result.passes and host.facts.name in reasons
        else (rejected_by, fit_result)
        for host, (rejected_by, fit_result) in zip(
            question.hosts, fit_results, strict=True
        )
    ]


def _passing_facts(
    question: Question, fit_results: Sequence[tuple[str | None, FitResult]]
) -> list[HostFacts]:
    return [
        _facts(question, host, fit_result)
        for host, (_, fit_result) in zip(
            question.hosts, fit_results, strict=True
        )
        if fit_result.passes
    ]


def _cluster(question: Question) -> assembly.Cluster:
    return assembly.Cluster(
        question.requirements,
        question.ram_mb,
        question.members + question.expected,
        question.expected,
        question.existing,
        question.policy,
        question.max_server_per_host,
        question.costs,
        question.running_rails if question.requirements.rails_matter else {},
    )


def _facts(question: Question, host: Host, fit_result: FitResult) -> HostFacts:
    requirements = question.requirements
    free: tuple[Rail, ...] = ()
    if requirements.rails_matter:
        serving = _serving_uplinks(requirements, host.view, fit_result)
        free = network_fit.free_rails((u, u.free or 1) for u in serving)
    return host.facts._replace(
        slots=min(host.facts.slots, fit_result.slots),
        link_mbps=fit_result.link_mbps,
        rails=free,
    )


def _with_not_offered(
    question: Question, facts: Sequence[HostFacts]
) -> list[HostFacts]:
    """Return the facts, and those of other hosts that hold members."""
    offered = {fact.name for fact in facts}
    return [
        *facts,
        *(
            host.facts._replace(slots=0)
            for host in question.hosts
            if host.facts.name in question.existing
            and host.facts.name not in offered
        ),
    ]


def _moves(
    question: Question, fit_results: Sequence[tuple[str | None, FitResult]]
) -> tuple[Step, ...]:
    """Return what moves of running members would gain.

    :param fit_results: of each host by itself: ``vhpc:max_tier`` leaves those
        out to which only all members together can be moved.
    """
    facts = [
        _facts(question, host, fit_result)
        for host, (_, fit_result) in zip(
            question.hosts, fit_results, strict=True
        )
        if fit_result.passes
        and not fit_result.unknown
        and host_weights.is_planned(question.multiplier_of(host))
    ]
    request = assembly.plan_request(
        dataclasses.replace(_cluster(question), members=0),
        _with_not_offered(question, facts),
    )
    return tuple(moves.advise(request))


def _slowdown(
    question: Question, new_members: int, placement: ClusterPlacement
) -> float | None:
    network = question.requirements.specs.network
    used = set(placement.assignments) | set(question.existing)
    if network is None or not placement.assignments:
        return None
    members = new_members + sum(question.existing.values())
    here = max(1, round(members / len(used)))
    return round(
        cost.slowdown(
            network,
            min(here, members),
            members,
            1.0,
            tier_factor=placement.tier_factor,
            table=question.costs,
        ),
        3,
    )


def _rounded(weight: float | None) -> float | None:
    return None if weight is None else round(weight, 4)


def _order(answer: HostAnswer) -> tuple[Any, ...]:
    weight = answer.weight
    return (
        answer.reason is not None,
        answer.planned == 0,
        0.0 if weight is None else -weight * answer.multiplier,
        answer.name,
    )
