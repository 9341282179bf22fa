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

"""Where a member goes that is asked for alone.

Many make their clusters one server after another. The first one has no
peer yet, and so costs nothing anywhere; later ones often cost the same on
many hosts. They go where those that are to follow find room beside them.
Of a member without a server group none follow: it leaves big holes whole.
"""

import dataclasses
from collections.abc import Callable, Sequence

from nova_vhpc.scheduler.planner.host_groups import capacities, limited
from nova_vhpc.scheduler.planner.model import NO_LIMIT, Policy
from nova_vhpc.scheduler.planner.objective import Counts, Objective, Value

_PEER = '\0peer'
"""A host's name that no host has."""

_TOGETHER = (Policy.AFFINITY, Policy.SOFT_AFFINITY)


def first(objective: Objective, capacity: Sequence[int]) -> Counts | None:
    """The host of a cluster's first member, None if there is no capacity.

    :param capacity: new members by position of the host, policy observed.
    """
    request = objective.request
    # Load, link and over-commit count as soon as there is somebody to talk to.
    paired = Objective(dataclasses.replace(request, existing={_PEER: 1}))
    value = _valued(paired)
    hosts = objective.hosts
    indices = [index for index, free in enumerate(capacity) if free > 0]
    if not indices:
        return None
    if request.policy is None:
        best = min(indices, key=lambda i: (value(i), hosts[i].free_cpus))
        return {best: 1}
    followers = _followers(objective)
    if request.policy == Policy.AFFINITY:
        # Those that find no room beside it are not placed at all.
        best = min(indices, key=lambda i: (-followers[i], value(i)))
        return {best: 1}
    if request.policy == Policy.SOFT_AFFINITY:
        # As for whole clusters, few hosts come before cost; but that one or
        # two more would fit is no reason to take a slow link.
        best = min(
            indices,
            key=lambda i: (
                -followers[i].bit_length(),
                value(i),
                -followers[i],
            ),
        )
        return {best: 1}
    around = _around(objective, followers)
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


def later(
    objective: Objective, capacity: Sequence[int], found: Counts | None
) -> Counts | None:
    """Of the hosts as good as that which was found, the roomiest.

    :param found: of one member that has running peers.
    """
    if not found:
        return found
    (index,) = found
    if index in objective.existing:
        return found
    value = _valued(objective)
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
    around = _around(objective, followers)
    if objective.request.policy in _TOGETHER:
        return {min(equal, key=lambda i: (-followers[i], around(i))): 1}
    return {min(equal, key=lambda i: (around(i), -followers[i])): 1}


def _followers(objective: Objective) -> list[int]:
    """Members that fit on each host without over-commit."""
    request = objective.request
    strict = dataclasses.replace(
        request,
        members=NO_LIMIT,
        max_overcommit=min(1.0, request.max_overcommit),
    )
    limit = None
    if request.policy == Policy.ANTI_AFFINITY:
        limit = request.max_server_per_host or 1
    elif request.policy == Policy.SOFT_ANTI_AFFINITY:
        limit = 1
    return limited(objective, capacities(strict, objective), limit)


def _around(
    objective: Objective, followers: Sequence[int]
) -> Callable[[int], tuple[int, int]]:
    """By how many fit into a host's switch and rack, most first."""
    switches: dict[str | None, int] = {}
    racks: dict[str | None, int] = {}
    for host, free in zip(objective.hosts, followers, strict=True):
        if free:
            switches[host.switch] = switches.get(host.switch, 0) + free
            racks[host.rack] = racks.get(host.rack, 0) + free
    # Hosts of no known switch are near nobody.
    switches[None] = racks[None] = 0

    def key(index: int) -> tuple[int, int]:
        host = objective.hosts[index]
        return -switches.get(host.switch, 0), -racks.get(host.rack, 0)

    return key


def _near(
    objective: Objective,
) -> Callable[[int], tuple[str | None, str | None]]:
    """To which running members a host is near: their switch and rack."""
    switches, racks = objective.spread({})

    def near(index: int) -> tuple[str | None, str | None]:
        host = objective.hosts[index]
        return (
            host.switch if host.switch in switches else None,
            host.rack if host.rack in racks else None,
        )

    return near


def _valued(objective: Objective) -> Callable[[int], Value]:
    """What one new member on a host makes of the placement, remembered."""
    values: dict[tuple[object, ...], Value] = {}
    near = _near(objective)

    def value(index: int) -> Value:
        host = objective.hosts[index]
        key = (host.total_cpus, host.used_vcpus, host.link_mbps, near(index))
        found = values.get(key)
        if found is None:
            found = values[key] = objective.value({index: 1})
        return found

    return value
