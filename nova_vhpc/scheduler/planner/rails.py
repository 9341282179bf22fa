# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Let the members of a cluster use uplinks of the same rails.

On tenant networks of OVN, routing chooses the uplink by which a frame leaves
its host: the one on the rail of the *receiver's* uplink. A frame to another
rail therefore leaves by an uplink that the sender has not claimed, and that
may be another cluster's. The measure of a placement is how many frames leave
by uplinks on which the cluster has no claim for them, the *stray* ones.

A claim on an uplink pays for as many frames as arrive by it: those from all
members on other hosts to the member that claims it. Let every member talk to
every other. On a host, ``m`` members run, ``m_r`` of them on rail ``r``; in
all, ``M`` and ``M_r``. Then ``m (M_r - m_r)`` frames leave the host by its
uplink of rail ``r``, and ``m_r (M - m)`` arrive there. What leaves beyond
that is stray. Nothing is

* if all members are on one rail, as they can be with one member on each host;
* if every host has the same part of its members on each rail. Where each
  uplink is for one guest, members of one host must be on different rails. A
  frame to another rail then leaves by the uplink of a sibling, whose frames
  to this rail leave by the own one: each uplink carries as much as it would
  if each member used its own only.

Both come from one rule: all hosts fill the same rails in the same order.

The cost of a placement does not depend on rails. They only decide between
placements of the same cost. Pure.
"""

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nova_vhpc.scheduler.planner.host_groups import capacities
from nova_vhpc.scheduler.planner.model import Rail
from nova_vhpc.scheduler.planner.objective import Counts, Objective
from nova_vhpc.scheduler.planner.own_overcommit import most_own

MOST_PLANS = 4
"""Most plans on chosen rails. Hosts seldom have more rails than that."""

_facts = operator.itemgetter(1, 2, 3, 6, 7, 8)
"""Facts of a host without name, RAM, slots, clusters and rails."""

Rails = Mapping[int, tuple[str, ...]]
"""Rail of each new member of a host, by position of the host."""


def on_same_rails(
    objective: Objective,
    counts: Counts,
    place: Callable[[Objective], Counts | None],
) -> Counts:
    """Return the placement, or one that costs no more and has fewer strays.

    :param counts: placement of the least cost.
    :param place: finds a placement of the least cost.
    """
    least = stray_share(objective, assigned(objective, counts))
    if not counts or not least:
        return counts
    policy_count, cost_us = objective.value(counts)
    most = most_own(objective, counts)
    best = counts
    exchanged = _exchanged(objective, counts)
    stray = stray_share(objective, assigned(objective, exchanged))
    if stray < least:
        best, least = exchanged, stray
    if not least:
        return best
    for names in _choices(objective, max(counts.values())):
        other = place(_restricted(objective, frozenset(names)))
        if other is None:
            continue
        value = objective.value(other)
        if (
            value[0] > policy_count
            or value[1] > cost_us * (1 + 1e-9)
            or most_own(objective, other) > most
        ):
            continue
        stray = stray_share(objective, assigned(objective, other))
        if stray < least:
            best, least = other, stray
        if not least:
            break
    return best


def assigned(objective: Objective, counts: Counts) -> Rails:
    """Return the rail of each new member; empty if hosts have no rails."""
    hosts = objective.hosts
    used = {i: new for i, new in counts.items() if new and hosts[i].rails}
    if not used:
        return {}
    order = _order(
        objective, ((hosts[i].rails, new) for i, new in used.items())
    )
    packed = objective.request.network == 'shared'
    return {
        i: tuple(_filled(hosts[i].rails, order, new, packed))
        for i, new in used.items()
    }


def stray_share(objective: Objective, rails: Rails) -> float:
    """Return the part of the frames between hosts that is stray, 0.0 to 1.0.

    Members whose rail is unknown do not count.

    :param rails: rails of the new members, as :func:`assigned` returns them.
    """
    here: dict[str, Counter[str]] = {
        name: Counter(running)
        for name, running in objective.request.running_rails.items()
    }
    for index, names in rails.items():
        here.setdefault(objective.hosts[index].name, Counter()).update(names)
    everywhere: Counter[str] = Counter()
    for members in here.values():
        everywhere.update(members)
    total = everywhere.total()
    between = stray = 0
    for members in here.values():
        count = members.total()
        between += count * (total - count)
        for rail, in_all in everywhere.items():
            leaving = count * (in_all - members[rail])
            arriving = members[rail] * (total - count)
            stray += max(0, leaving - arriving)
    return stray / between if between else 0.0


def _order(
    objective: Objective, hosts: Iterable[tuple[Sequence[Rail], int]]
) -> list[str]:
    """Return the names of rails, the one with the most bandwidth first.

    That is what the cluster's members get there, running ones included; among
    equal rails, the one with the most free slots is first.

    :param hosts: rails of hosts, and for how many members.
    """
    mbps: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    fastest: Counter[str] = Counter()
    for rails, members in hosts:
        for rail in rails:
            mbps[rail.name] += min(rail.slots, members) * rail.mbps
            slots[rail.name] += rail.slots
            fastest[rail.name] = max(fastest[rail.name], rail.mbps)
    for running in objective.request.running_rails.values():
        for name, members in running.items():
            mbps[name] += members * fastest[name]
    return sorted(mbps, key=lambda name: (-mbps[name], -slots[name], name))


def _filled(
    rails: Sequence[Rail], order: Sequence[str], members: int, packed: bool
) -> Iterator[str]:
    """Yield the rail of each member on one host.

    :param packed: whether a rail is filled before the next one is used: the
        configuration ``shared`` has all guests on one uplink.
    """
    free = {rail.name: rail.slots for rail in rails}
    while members:
        with_slots = [name for name in order if free.get(name, 0) > 0]
        if not with_slots:
            # More members than slots: they are not all to be placed now.
            return
        for name in with_slots[:1] if packed else with_slots[:members]:
            count = min(members, free[name]) if packed else 1
            free[name] -= count
            members -= count
            yield from (name for _ in range(count))


def _exchanged(objective: Objective, counts: Counts) -> Counts:
    """Return the placement, on hosts that cost the same and have more rails.

    A host is exchanged for an unused one that differs in rails, RAM and
    clusters only, if the rails that most others have are free there.
    """
    request = objective.request
    hosts = objective.hosts
    if request.members == 1:
        # Its host was chosen for the room around it.
        return counts
    wanted = {_facts(hosts[index]) for index in counts}
    spare = [
        index
        for index, host in enumerate(request.hosts)
        if index not in counts
        and index not in objective.existing
        and _facts(host) in wanted
    ]
    room = dict(zip(spare, _room(objective, spare), strict=True))
    order = _order(
        objective,
        [(hosts[i].rails, new) for i, new in counts.items()]
        + [(hosts[i].rails, room[i]) for i in spare],
    )
    packed = request.network == 'shared'
    chosen: dict[int, int] = {}
    for start in range(len(order)):
        suits = _suiting(objective, order[start:], packed)
        taken = set(chosen.values())
        pools: dict[tuple[object, int], list[int]] = {}
        for index, new in counts.items():
            if index in chosen or index in objective.existing:
                continue
            if suits(index, new):
                chosen[index] = index
                continue
            key = (_facts(hosts[index]), new)
            if key not in pools:
                pools[key] = [
                    other
                    for other in reversed(spare)
                    if (_facts(hosts[other]), min(room[other], new)) == key
                    and suits(other, new)
                ]
            while pools[key] and index not in chosen:
                other = pools[key].pop()
                if other not in taken:
                    taken.add(other)
                    chosen[index] = other
    return {chosen.get(index, index): new for index, new in counts.items()}


def _suiting(
    objective: Objective, order: Sequence[str], packed: bool
) -> Callable[[int, int], bool]:
    """Return a function: whether the first rails are free for members there.

    It takes the position of a host and a number of members.
    """

    def suits(index: int, members: int) -> bool:
        rails = objective.hosts[index].rails
        names = list(_filled(rails, order, members, packed))
        first = order[: 1 if packed else members]
        return len(names) == members and set(names) <= set(first)

    return suits


def _room(objective: Objective, indices: Sequence[int]) -> list[int]:
    """Return how many new members each of some hosts can take."""
    request = dataclasses.replace(
        objective.request,
        hosts=[objective.hosts[index] for index in indices],
        existing={},
    )
    return capacities(request, Objective(request))


def _choices(objective: Objective, most: int) -> Iterator[Sequence[str]]:
    """Yield sets of rails on which all members may be placed, the best first.

    :param most: most members of one host.
    """
    request = objective.request
    order = _order(
        objective, ((host.rails, request.members) for host in request.hosts)
    )
    size = 1 if request.network == 'shared' else most
    for start in range(min(MOST_PLANS, len(order) - size + 1)):
        yield order[start : start + size]


def _restricted(objective: Objective, names: frozenset[str]) -> Objective:
    """Return the objective with members on some rails only."""
    request = objective.request
    hosts = [
        host._replace(
            slots=min(
                host.slots,
                sum(rail.slots for rail in host.rails if rail.name in names),
            )
        )
        for host in request.hosts
    ]
    return Objective(dataclasses.replace(request, hosts=hosts))
