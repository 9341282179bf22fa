# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Keep a cluster within one part of the fabric: ``vhpc:max_tier``.

A *part* is a host, the hosts of a switch, or those of a rack. With a limit, a
cluster is placed in a part that holds all of it, or not at all.
"""

from collections.abc import Iterable, Sequence

from nova_vhpc.scheduler.planner.model import HostFacts, Tier
from nova_vhpc.scheduler.planner.objective import Objective

Part = tuple[Tier, str]
"""Tier and name of a host, switch or rack."""


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


def restricted(capacity: Sequence[int], indices: Iterable[int]) -> list[int]:
    """Return capacities with those of all other hosts set to 0."""
    kept = [0] * len(capacity)
    for index in indices:
        kept[index] = capacity[index]
    return kept
