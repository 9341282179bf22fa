# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Apply a server group's policy: choose the hosts that the search may use."""

import dataclasses
import heapq
from collections.abc import Sequence

from nova_vhpc.scheduler.planner import (
    own_overcommit,
    single_member,
    tier_limit,
)
from nova_vhpc.scheduler.planner.host_groups import (
    HostPool,
    capacities,
    limited,
    make_host_pool,
)
from nova_vhpc.scheduler.planner.local_search import search
from nova_vhpc.scheduler.planner.model import (
    NO_LIMIT,
    PlanRequest,
    Policy,
    Tier,
)
from nova_vhpc.scheduler.planner.objective import Counts, Objective
from nova_vhpc.scheduler.planner.seeds import one_host

OVERCOMMITS = (1.0, 1.125, 1.25, 1.5, 2.0, 4.0)
"""Limits on vCPUs per CPU that are tried in turn, the lowest first."""

MOST_PARTS = 4
"""Parts of the fabric, those with the fewest members per host, in which a
cluster that must stay in one part is placed by ``soft-anti-affinity``."""


def place(objective: Objective) -> Counts | None:
    """Place the request's members within its policy.

    The cluster is over-committed against itself as little as it can be: not
    at all if its members fit so.

    :returns: number of new members by host, None if they do not fit.
    """
    request = objective.request
    capacity = limited(
        objective, capacities(request, objective), limit_of(request)
    )
    for most in OVERCOMMITS:
        apart = own_overcommit.limited(objective, capacity, most)
        if apart == capacity:
            break
        if sum(apart) >= request.members:
            counts = _place(objective, apart)
            if counts is not None:
                return counts
    return _place(objective, capacity)


def _place(objective: Objective, capacity: list[int]) -> Counts | None:
    """Place the members within ``max_tier``, in a part that holds them."""
    limit = objective.request.max_tier
    if limit is None:
        return _place_anywhere(objective, capacity)
    parts = tier_limit.holding_parts(objective, capacity)
    if not parts:
        return None
    request = objective.request
    if limit == Tier.HOST:
        # Capacities have the limit of anti-affinity already.
        objective = Objective(
            dataclasses.replace(request, policy=Policy.AFFINITY)
        )
        return _place_anywhere(objective, capacity)
    if request.members == 1 and not objective.existing:
        parts = _roomiest(objective, parts)
    if request.policy == Policy.SOFT_ANTI_AFFINITY:
        return _apart_in_part(objective, capacity, list(parts.values()))
    indices = [index for part in parts.values() for index in part]
    capacity = tier_limit.restricted(capacity, indices)
    return _place_anywhere(objective, capacity)


def _roomiest(
    objective: Objective, parts: dict[tier_limit.Part, list[int]]
) -> dict[tier_limit.Part, list[int]]:
    """Return the part where most members fit without over-commit.

    Members that follow a first one must be placed there or not at all.
    """
    request = objective.request
    strict = dataclasses.replace(
        request,
        members=NO_LIMIT,
        max_overcommit=min(1.0, request.max_overcommit),
    )
    free = limited(objective, capacities(strict, objective), limit_of(request))
    part = max(
        parts, key=lambda part: sum(free[index] for index in parts[part])
    )
    return {part: parts[part]}


def _place_anywhere(
    objective: Objective, capacity: list[int]
) -> Counts | None:
    request = objective.request
    if request.members > 1:
        return _placed(objective, capacity)
    if not objective.existing:
        return single_member.first(objective, capacity)
    counts = _placed(objective, capacity)
    if request.policy is None:
        return counts
    return single_member.later(objective, capacity, counts)


def _placed(objective: Objective, capacity: list[int]) -> Counts | None:
    request = objective.request
    if request.policy == Policy.SOFT_ANTI_AFFINITY:
        return _apart(objective, capacity)
    pool = make_host_pool(objective, capacity)
    if request.policy == Policy.AFFINITY:
        return _together(pool)
    return search(pool, _seed_pools(pool))


def limit_of(request: PlanRequest) -> int | None:
    """Return how many members per host a hard policy allows; None: any."""
    if request.policy == Policy.ANTI_AFFINITY:
        return request.max_server_per_host or 1
    return None


def _seed_pools(pool: HostPool) -> list[HostPool]:
    """Return pools to construct seeds in, with the least over-commit first.

    If over-commit is allowed, seeds fill a host beyond its CPUs before they
    use the next one. Single moves cannot repair that: each of them removes
    part of the over-commit, while the slowest member stays as slow. So seeds
    are also constructed with the least over-commit at which all members fit,
    anywhere and then within a rack. Spare CPUs are used before CPUs are
    shared.
    """
    objective = pool.objective
    request = objective.request
    least = Tier.ALL + 1
    pools = []
    spare = request.spare_cpus
    ladder = [(1.0, spare)] if spare else []
    for most, spare in ladder + [(most, 0) for most in OVERCOMMITS]:
        if most >= request.max_overcommit:
            break
        strict = dataclasses.replace(
            request, max_overcommit=most, spare_cpus=spare
        )
        capacity = list(map(min, capacities(strict, objective), pool.capacity))
        if capacity == pool.capacity:
            break
        if sum(capacity) < request.members:
            continue
        tier = _tier(pool, capacity)
        if tier < least:
            least = tier
            pools.append(make_host_pool(objective, capacity))
        if tier < Tier.ALL or not pool.racks:
            break
    return [*pools, pool]


def _tier(pool: HostPool, capacity: Sequence[int]) -> Tier:
    """Return the smallest tier with capacity for all new members."""
    members = pool.objective.request.members
    for groups, tier in (
        (pool.switches, Tier.SWITCH),
        (pool.racks, Tier.RACK),
    ):
        for group in groups.values():
            if (
                group.total >= members
                and sum(map(capacity.__getitem__, group.order)) >= members
            ):
                return tier
    return Tier.ALL


def _together(pool: HostPool) -> Counts | None:
    """Place by ``affinity``: on one host, that of running members if any."""
    objective = pool.objective
    members = objective.request.members
    if not objective.existing:
        return one_host(pool, members)
    capacity = [0] * len(pool.capacity)
    for index in objective.existing:
        capacity[index] = pool.capacity[index]
    return search(make_host_pool(objective, capacity))


def _apart(objective: Objective, capacity: list[int]) -> Counts | None:
    """Place by ``soft-anti-affinity``: as evenly as capacities allow.

    The lowest level is found at which all members fit, with so many on each
    host. All hosts are filled to the level below it; the search chooses by
    cost which hosts get one more.
    """
    request = objective.request
    level = _water_level(objective, capacity)
    if level is None:
        return None
    capacity = limited(objective, capacity, level)
    below = {
        index: new
        for index, new in enumerate(limited(objective, capacity, level - 1))
        if new
    }
    if below:
        # These members are certain, so they count as running ones.
        hosts = list(objective.hosts)
        for index, new in below.items():
            busy = hosts[index].used_vcpus + new * request.vcpus
            hosts[index] = hosts[index]._replace(used_vcpus=busy)
            capacity[index] -= new
        running = objective.merged(below)
        objective = Objective(
            dataclasses.replace(
                request,
                members=request.members - sum(below.values()),
                hosts=hosts,
                existing={hosts[i].name: n for i, n in running.items()},
            )
        )
    pool = make_host_pool(objective, capacity)
    rest = search(pool, _seed_pools(pool))
    if rest is None:
        return None
    for index, new in below.items():
        rest[index] = rest.get(index, 0) + new
    return rest


def _apart_in_part(
    objective: Objective, capacity: list[int], parts: list[list[int]]
) -> Counts | None:
    """Place by ``soft-anti-affinity`` in the part with the fewest pairs.

    :param parts: hosts of the parts that hold the cluster.
    """
    evenest: list[tuple[int, int, list[int]]] = []
    for number, indices in enumerate(parts):
        inside = tier_limit.restricted(capacity, indices)
        level = _water_level(objective, inside)
        if level is not None:
            evenest.append((level, number, inside))
    found = [
        counts
        for _, _, inside in heapq.nsmallest(MOST_PARTS, evenest)
        if (counts := _place_anywhere(objective, inside)) is not None
    ]
    return min(found, key=objective.value, default=None)


def _water_level(objective: Objective, capacity: list[int]) -> int | None:
    """Return the lowest limit per host at which all members fit."""
    members = objective.request.members
    if sum(capacity) < members:
        return None
    low, high = 1, members + max(objective.existing.values(), default=0)
    while low < high:
        middle = (low + high) // 2
        if sum(limited(objective, capacity, middle)) >= members:
            high = middle
        else:
            low = middle + 1
    return low
