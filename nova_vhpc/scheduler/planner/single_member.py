# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Place a member that is requested alone.

Many users create the servers of a cluster one at a time. The first member
has no peer yet, so it costs nothing anywhere; later members often cost the
same on many hosts. Such a member goes to the host with the most capacity,
on it and near it, for members that may follow. None follow a member without
a server group: it goes to the fullest host, which keeps large hosts free.
"""

import dataclasses
from collections.abc import Callable, Sequence

from nova_vhpc.scheduler.planner.host_groups import (
    limit_of,
    strict_capacities,
)
from nova_vhpc.scheduler.planner.model import Policy
from nova_vhpc.scheduler.planner.objective import Counts, Objective, Value

_PEER = '\0peer'
"""Name of an assumed host with a peer; no real host can have it."""

_TOGETHER = (Policy.AFFINITY, Policy.SOFT_AFFINITY)


def place_first_member(
    objective: Objective, capacity: Sequence[int]
) -> Counts | None:
    """Choose the host of a cluster's first member.

    :param capacity: number of new members that each host may get, within
        the policy's limit.
    :returns: None if no host has capacity.
    """
    request = objective.request
    # Without a peer, all hosts cost 0. With one on an assumed host, load,
    # link and over-commit count.
    paired = Objective(dataclasses.replace(request, existing={_PEER: 1}))
    value = _value_by_host(paired)
    hosts = objective.hosts
    indices = [index for index, free in enumerate(capacity) if free > 0]
    if not indices:
        return None
    if request.policy is None:
        best = min(indices, key=lambda i: (value(i), hosts[i].free_cpus))
        return {best: 1}
    followers = _followers(objective)
    if request.policy == Policy.AFFINITY:
        # Members that do not fit on this host later cannot be placed at all.
        best = min(indices, key=lambda i: (-followers[i], value(i)))
        return {best: 1}
    if request.policy == Policy.SOFT_AFFINITY:
        # Few hosts come before cost, as for whole clusters. But capacity for
        # one or two members more does not justify a slow link, so capacity
        # is compared by its order of magnitude first.
        best = min(
            indices,
            key=lambda i: (
                -followers[i].bit_length(),
                value(i),
                -followers[i],
            ),
        )
        return {best: 1}
    around = _sort_key_around(objective, followers)
    best = min(
        indices,
        key=lambda i: (
            value(i),
            around(i),
            -followers[i],
            hosts[i].free_cpus,
        ),
    )
    return {best: 1}


def place_later_member(
    objective: Objective, capacity: Sequence[int], counts: Counts | None
) -> Counts | None:
    """Choose, among hosts as good as the chosen one, that with most capacity.

    :param counts: best placement of one member that has running peers.
    """
    if not counts:
        return counts
    (index,) = counts
    if index in objective.existing:
        return counts
    value = _value_by_host(objective)
    near = _near(objective)
    most, where = value(index), near(index)
    equal = [
        i
        for i, free in enumerate(capacity)
        if free > 0
        and i not in objective.existing
        and near(i) == where
        and value(i)[0] == most[0]
        and value(i)[1] <= most[1] * (1 + 1e-9)
    ]
    followers = _followers(objective)
    around = _sort_key_around(objective, followers)
    if objective.request.policy in _TOGETHER:
        return {min(equal, key=lambda i: (-followers[i], around(i))): 1}
    return {min(equal, key=lambda i: (around(i), -followers[i])): 1}


def _followers(objective: Objective) -> list[int]:
    """Return how many members fit on each host without over-commit."""
    soft = objective.request.policy == Policy.SOFT_ANTI_AFFINITY
    return strict_capacities(
        objective, 1 if soft else limit_of(objective.request)
    )


def _sort_key_around(
    objective: Objective, followers: Sequence[int]
) -> Callable[[int], tuple[int, int]]:
    """Return a sort key: most followers in a host's switch, then its rack."""
    switches: dict[str | None, int] = {}
    racks: dict[str | None, int] = {}
    for host, free in zip(objective.hosts, followers, strict=True):
        if free:
            switches[host.switch] = switches.get(host.switch, 0) + free
            racks[host.rack] = racks.get(host.rack, 0) + free
    # Hosts without a known switch or rack are near no other host.
    switches[None] = racks[None] = 0

    def key(index: int) -> tuple[int, int]:
        host = objective.hosts[index]
        return -switches.get(host.switch, 0), -racks.get(host.rack, 0)

    return key


def _near(
    objective: Objective,
) -> Callable[[int], tuple[str | None, str | None]]:
    """Return a function: the host's switch and rack, if members run there.

    A switch (or rack) without running members is None.
    """
    switches, racks = objective.spread({})

    def near(index: int) -> tuple[str | None, str | None]:
        host = objective.hosts[index]
        return (
            host.switch if host.switch in switches else None,
            host.rack if host.rack in racks else None,
        )

    return near


def _value_by_host(objective: Objective) -> Callable[[int], Value]:
    """Return a function: the placement's value with one new member on a host.

    Most hosts are alike, so values are kept: the first member of a cluster
    takes 1.6 ms on 1,000 hosts, and 4.0 ms without this memo.
    """
    values: dict[tuple[object, ...], Value] = {}
    near = _near(objective)

    def value(index: int) -> Value:
        host = objective.hosts[index]
        key = (host.total_cpus, host.used_vcpus, host.link_mbps, near(index))
        known = values.get(key)
        if known is None:
            known = values[key] = objective.value({index: 1})
        return known

    return value
