# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Explain to an operator why a virtual cluster does not fit."""

from collections.abc import Iterable, Sequence

from nova_vhpc.scheduler.planner.group_policies import (
    Part,
    common_parts,
    holding_parts,
    parts_of,
)
from nova_vhpc.scheduler.planner.host_groups import (
    cap_members,
    capacities,
    limit_of,
)
from nova_vhpc.scheduler.planner.model import (
    HostFacts,
    PlanRequest,
    Policy,
    Tier,
)
from nova_vhpc.scheduler.planner.objective import Objective


def why_not(objective: Objective) -> str:
    """Return a sentence that says what the hosts are short of.

    It counts the members that fit by CPUs, by RAM and by uplinks, and names
    a hard policy of the server group, or a limit of the fabric, with what
    that leaves.
    """
    request = objective.request
    capacity = capacities(request, objective)
    hosts = request.hosts
    text = (
        f'{request.members} members of {request.vcpus} vCPUs and '
        f'{request.ram_mb} MB need {request.members} places; '
        f'{len(hosts)} hosts have {_places(request, hosts, capacity)}'
    )
    if request.policy == Policy.AFFINITY:
        if objective.existing:
            text += '; affinity ties them to the hosts of the others'
        else:
            largest = max(capacity, default=0)
            text += f'; affinity wants one host, the best has {largest}'
    elif request.policy == Policy.ANTI_AFFINITY:
        each = limit_of(request)
        capacity = cap_members(objective, capacity, each)
        text += f'; anti-affinity at {each} per host leaves {sum(capacity)}'
    if request.max_tier is not None:
        text += '; ' + _beyond_tier(objective, request.max_tier, capacity)
    return text


def beyond_tier(request: PlanRequest) -> dict[str, str]:
    """Return why hosts are useless within ``max_tier``, by host name.

    A host is left out if it is in a part of the fabric that contains all
    running members and has capacity for all new ones.
    """
    limit = request.max_tier
    if limit is None:
        return {}
    objective = Objective(request)
    capacity = cap_members(
        objective, capacities(request, objective), limit_of(request)
    )
    holding = holding_parts(objective, capacity)
    useful = {index for indices in holding.values() for index in indices}
    hosts = range(len(request.hosts))
    if not useful:
        text = f'{request.members} members do not fit: ' + _beyond_tier(
            objective, limit, capacity
        )
        return {request.hosts[index].name: text for index in hosts}
    places: dict[Part, int] = {}
    for index in hosts:
        for part in parts_of(request.hosts[index], limit):
            places[part] = places.get(part, 0) + capacity[index]
    common = common_parts(objective)
    reasons = {}
    for index in hosts:
        if index not in useful:
            host = request.hosts[index]
            part = max(parts_of(host, limit), key=places.__getitem__)
            reasons[host.name] = (
                f'{_named(part)} has {places[part]} of {request.members} '
                f'places, and vhpc:max_tier={limit.name.lower()}'
                if part in common
                else 'vhpc:max_tier='
                f'{limit.name.lower()}, and members of its cluster run in '
                + ' and '.join(sorted(map(_named, common)))
            )
    return reasons


def _places(
    request: PlanRequest, hosts: Sequence[HostFacts], capacity: Iterable[int]
) -> str:
    """Return the places that hosts have in all and by each resource."""
    most = request.members
    by_cpus = by_ram = by_uplinks = 0
    for host in hosts:
        limit = (host.total_cpus - request.spare_cpus) * request.max_overcommit
        cpus = min(limit - host.used_vcpus + 1e-9, host.free_cpus)
        by_cpus += max(0, min(most, int(cpus // request.vcpus)))
        ram = host.free_ram_mb // (request.ram_mb or 1)
        by_ram += max(0, int(min(most, ram)))
        by_uplinks += max(0, min(most, host.slots))
    ratio = request.max_overcommit
    overcommit = f'{ratio:g}' if ratio < 1000 else 'without limit'
    return (
        f'{sum(capacity)} (CPUs give {by_cpus} with {request.spare_cpus} '
        f'spare per host and over-commit {overcommit}, RAM {by_ram}, '
        f'uplinks, devices and disk {by_uplinks})'
    )


def _beyond_tier(
    objective: Objective, limit: Tier, capacity: Sequence[int]
) -> str:
    """Return why no part of the fabric within the limit holds the cluster."""
    request = objective.request
    text = f'vhpc:max_tier={limit.name.lower()} wants one {_NOUNS[limit]}'
    parts = common_parts(objective)
    if not parts:
        if not objective.existing:
            return text
        names = sorted(
            {
                _named(part)
                for index in objective.existing
                for part in parts_of(objective.hosts[index], limit)
            }
        )
        return f'{text}, but members run already in: {", ".join(names)}'
    best = max(
        parts,
        key=lambda part: (
            sum(map(capacity.__getitem__, parts[part])),
            part[0],
        ),
    )
    indices = parts[best]
    have = _places(
        request,
        [objective.hosts[index] for index in indices],
        [capacity[index] for index in indices],
    )
    if objective.existing:
        return f'{text}, and members run in {_named(best)}, which has {have}'
    unknown = (
        ' (no aggregate names its switch)'
        if best[0] < limit and best[0] == Tier.HOST
        else ''
    )
    return f'{text}; the best, {_named(best)}{unknown}, has {have}'


def _named(part: Part) -> str:
    tier, name = part
    return f'{_NOUNS[tier]} {name}'


_NOUNS = {Tier.HOST: 'host', Tier.SWITCH: 'switch', Tier.RACK: 'rack'}
