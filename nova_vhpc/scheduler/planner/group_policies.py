# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Choose the hosts that the search may use, and how many members on each.

* A server group's policy is applied.
* ``vhpc:max_tier``: a cluster is placed in a *part* of the fabric (a host, the
  hosts of a switch, or those of a rack) that holds all of it, or not at all.
* A cluster is not over-committed against itself while there is room
  elsewhere. Members that share CPUs with each other take turns, so each of
  them waits for members that cannot run at the same time. Sharing CPUs with
  other guests costs far less: the agent's windows let all members of a
  cluster run at once.
"""

import dataclasses
import heapq
from collections.abc import Iterable, Sequence

from nova_vhpc.scheduler.planner import single_member
from nova_vhpc.scheduler.planner.host_groups import (
    HostPool,
    cap_members,
    capacities,
    limit_of,
    make_host_pool,
    strict_capacities,
)
from nova_vhpc.scheduler.planner.local_search import search
from nova_vhpc.scheduler.planner.model import (
    HostFacts,
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

Part = tuple[Tier, str]
"""Tier and name of a host, switch or rack."""


def place(objective: Objective) -> Counts | None:
    """Place the request's members within its policy.

    The cluster is over-committed against itself as little as it can be: not
    at all if its members fit so.

    :returns: number of new members by host, None if they do not fit.
    """
    request = objective.request
    capacity = cap_members(
        objective, capacities(request, objective), limit_of(request)
    )
    for most in OVERCOMMITS:
        capped = cap_own_vcpus(objective, capacity, most)
        if capped == capacity:
            break
        if sum(capped) >= request.members:
            counts = _place(objective, capped)
            if counts is not None:
                return counts
    return _place(objective, capacity)


def _place(objective: Objective, capacity: list[int]) -> Counts | None:
    """Place the members within ``max_tier``, in a part that holds them."""
    limit = objective.request.max_tier
    if limit is None:
        return _place_anywhere(objective, capacity)
    parts = holding_parts(objective, capacity)
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
        parts = _part_with_most_room(objective, parts)
    if request.policy == Policy.SOFT_ANTI_AFFINITY:
        return _place_apart_in_part(objective, capacity, list(parts.values()))
    indices = [index for part in parts.values() for index in part]
    capacity = cap_to_hosts(capacity, indices)
    return _place_anywhere(objective, capacity)


def _part_with_most_room(
    objective: Objective, parts: dict[Part, list[int]]
) -> dict[Part, list[int]]:
    """Return the part where most members fit without over-commit.

    Members that follow a first one must be placed there or not at all.
    """
    free = strict_capacities(objective, limit_of(objective.request))
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
        return single_member.place_first_member(objective, capacity)
    counts = _placed(objective, capacity)
    if request.policy is None:
        return counts
    return single_member.place_later_member(objective, capacity, counts)


def _placed(objective: Objective, capacity: list[int]) -> Counts | None:
    request = objective.request
    if request.policy == Policy.SOFT_ANTI_AFFINITY:
        return _place_apart(objective, capacity)
    pool = make_host_pool(objective, capacity)
    if request.policy == Policy.AFFINITY:
        return _place_together(pool)
    return search(pool, _seed_pools(pool))


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


def _place_together(pool: HostPool) -> Counts | None:
    """Place by ``affinity``: on one host, that of running members if any."""
    objective = pool.objective
    members = objective.request.members
    if not objective.existing:
        return one_host(pool, members)
    capacity = [0] * len(pool.capacity)
    for index in objective.existing:
        capacity[index] = pool.capacity[index]
    return search(make_host_pool(objective, capacity))


def _place_apart(objective: Objective, capacity: list[int]) -> Counts | None:
    """Place by ``soft-anti-affinity``: as evenly as capacities allow.

    The lowest level is found at which all members fit, with so many on each
    host. All hosts are filled to the level below it; the search chooses by
    cost which hosts get one more.
    """
    request = objective.request
    level = _water_level(objective, capacity)
    if level is None:
        return None
    capacity = cap_members(objective, capacity, level)
    below = {
        index: new
        for index, new in enumerate(
            cap_members(objective, capacity, level - 1)
        )
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


def _place_apart_in_part(
    objective: Objective, capacity: list[int], parts: list[list[int]]
) -> Counts | None:
    """Place by ``soft-anti-affinity`` in the part with the fewest pairs.

    :param parts: hosts of the parts that hold the cluster.
    """
    evenest: list[tuple[int, int, list[int]]] = []
    for number, indices in enumerate(parts):
        inside = cap_to_hosts(capacity, indices)
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
        if sum(cap_members(objective, capacity, middle)) >= members:
            high = middle
        else:
            low = middle + 1
    return low


def parts_of(host: HostFacts, limit: Tier) -> tuple[Part, ...]:
    """Return the largest parts, within the limit, that a host is in.

    They are its rack and its switch, which may serve hosts of other racks; if
    both are unknown or beyond the limit, the host itself.
    """
    parts = []
    if limit >= Tier.RACK and host.rack is not None:
        parts.append((Tier.RACK, host.rack))
    if limit >= Tier.SWITCH and host.switch is not None:
        parts.append((Tier.SWITCH, host.switch))
    return tuple(parts) or ((Tier.HOST, host.name),)


def common_parts(objective: Objective) -> dict[Part, list[int]]:
    """Return the parts that contain all running members, and their hosts.

    :returns: positions of the hosts by part; all parts without running
        members.
    """
    limit = objective.request.max_tier
    assert limit is not None
    hosts = objective.hosts
    parts: dict[Part, list[int]] = {}
    for index, host in enumerate(hosts):
        for part in parts_of(host, limit):
            parts.setdefault(part, []).append(index)
    running: set[Part] | None = None
    for index in objective.existing:
        around = set(parts_of(hosts[index], limit))
        running = around if running is None else running & around
    if running is None:
        return parts
    return {part: at for part, at in parts.items() if part in running}


def holding_parts(
    objective: Objective, capacity: Sequence[int]
) -> dict[Part, list[int]]:
    """Return the common parts that have capacity for all new members."""
    members = objective.request.members
    return {
        part: indices
        for part, indices in common_parts(objective).items()
        if sum(map(capacity.__getitem__, indices)) >= members
    }


def cap_to_hosts(capacity: Sequence[int], indices: Iterable[int]) -> list[int]:
    """Return capacities with those of all other hosts set to 0."""
    kept = [0] * len(capacity)
    for index in indices:
        kept[index] = capacity[index]
    return kept


def cap_own_vcpus(
    objective: Objective, capacity: list[int], ratio: float
) -> list[int]:
    """Return capacities under a limit on the cluster's own vCPUs.

    :param capacity: number of new members that each host may get.
    :param ratio: most vCPUs of the cluster, running members included, per
        host CPU.
    """
    request = objective.request
    vcpus = request.vcpus
    # A limit above 1.0 on all vCPUs is needed to exceed one on own vCPUs.
    if request.max_overcommit <= ratio:
        return capacity
    fits = {
        cpus: int((cpus * ratio + 1e-9) // vcpus)
        for cpus in {host.total_cpus for host in objective.hosts}
    }
    capped = [
        free if free < fits[host.total_cpus] else fits[host.total_cpus]
        for free, host in zip(capacity, objective.hosts, strict=True)
    ]
    for index, here in objective.existing.items():
        host = objective.hosts[index]
        # Members of other flavors may have fewer vCPUs.
        own = min(here * vcpus, host.used_vcpus)
        free = int((host.total_cpus * ratio - own + 1e-9) // vcpus)
        capped[index] = max(0, min(capacity[index], free))
    return capped


def most_own_overcommit(objective: Objective, counts: Counts) -> float:
    """Return the most vCPUs of the cluster per CPU on a host of a placement.

    Only hosts that get new members count; 0.0 without any.
    """
    vcpus = objective.request.vcpus
    most = 0.0
    for index, new in counts.items():
        if new:
            host = objective.hosts[index]
            running = objective.existing.get(index, 0) * vcpus
            own = new * vcpus + min(running, host.used_vcpus)
            most = max(most, own / max(1, host.total_cpus))
    return most
