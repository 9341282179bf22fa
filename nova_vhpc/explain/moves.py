# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What moves would make of an existing virtual cluster.

Pure advice: nothing is moved. :func:`advise` plans a cluster as it runs, with
one of its members moved, with two, and so on, and says what each step gains.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.planner.model import (
    NO_LIMIT,
    ClusterPlacement,
    HostFacts,
    PlanRequest,
)

MOST_CHOICES = 64
"""Most choices of the members to move that are all planned for one number of
moves."""

SOME_CHOICES = 8
"""Choices that are planned from either end if there are more: with most
members of the smallest hosts, and with most of the largest ones."""

MOST_MOVES = 8
"""Numbers of moves up to this one are tried one by one; after them its
doubles, and that of all members."""

_LEAST_GAIN = 1e-3
"""Least gain for which one move more is worth naming, as part of the cost."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What a cluster would be after some of its members were moved.

    :ivar moves: number of members that are moved.
    :ivar leave: number of members that leave a host, by its name.
    :ivar join: number of members that join a host, by its name.
    :ivar members: number of members by host name after the moves.
    :ivar placement: cost and tier of the whole cluster after the moves.
    """

    moves: int
    leave: Mapping[str, int]
    join: Mapping[str, int]
    members: Mapping[str, int]
    placement: ClusterPlacement

    def gain_over(self, now: 'Step') -> float:
        """Return which part of the predicted cost the moves save.

        :param now: the cluster as it runs.
        """
        cost_us = now.placement.cost
        return 1.0 - self.placement.cost / cost_us if cost_us else 0.0


def advise(request: PlanRequest) -> list[Step]:
    """Return the cluster as it runs, then each step that gains by more moves.

    A host from which a member leaves can take as many again as have left. A
    move may need room at both ends at a time; the steps do not say in which
    order to move.

    :param request: request for no new member (``members`` is 0); its hosts
        include those of the running members.
    """
    now = Step(0, {}, {}, dict(request.existing), planner.plan(request))
    steps = [now]
    total = sum(request.existing.values())
    numbers = [*range(1, MOST_MOVES + 1)]
    while numbers[-1] < total:
        numbers.append(2 * numbers[-1])
    for number in sorted({min(number, total) for number in numbers}):
        best = _best(request, number)
        if best is not None and _gains(best, steps[-1]):
            steps.append(best)
    return steps


def _gains(step: Step, before: Step) -> bool:
    """Return whether more moves are better than those of the step before."""
    cost_us = before.placement.cost * (1 - _LEAST_GAIN)
    return step.moves > before.moves and step.placement.cost < cost_us


def _best(request: PlanRequest, number: int) -> Step | None:
    """Return the best cluster after some moves, None if none can be planned.

    :param number: number of members to move.
    """
    best = None
    for leave in _choices(request.existing, number):
        step = _moved(request, leave)
        if step is not None and (best is None or _rank(step) < _rank(best)):
            best = step
    return best


def _rank(step: Step) -> tuple[float, int]:
    return round(step.placement.cost, 6), step.moves


def _moved(request: PlanRequest, leave: Mapping[str, int]) -> Step | None:
    """Plan the members that leave their hosts anew.

    :param leave: number of members that leave a host, by its name.
    """
    existing = request.existing
    stay = {
        name: here - leave.get(name, 0)
        for name, here in existing.items()
        if here > leave.get(name, 0)
    }
    placement = planner.plan(
        dataclasses.replace(
            request,
            members=sum(leave.values()),
            existing=stay,
            hosts=[
                _without(host, leave.get(host.name, 0), request)
                for host in request.hosts
            ],
        )
    )
    if placement.infeasible_reason is not None:
        return None
    members = dict(stay)
    for name, new in placement.assignments.items():
        members[name] = members.get(name, 0) + new
    # A member that the plan puts back is not moved.
    left = {
        name: here - members.get(name, 0)
        for name, here in existing.items()
        if here > members.get(name, 0)
    }
    joined = {
        name: here - existing.get(name, 0)
        for name, here in members.items()
        if here > existing.get(name, 0)
    }
    return Step(sum(left.values()), left, joined, members, placement)


def _without(host: HostFacts, count: int, request: PlanRequest) -> HostFacts:
    """Return a host's facts after some members have left it."""
    if not count:
        return host
    vcpus = count * request.vcpus
    return host._replace(
        used_vcpus=max(0, host.used_vcpus - vcpus),
        free_cpus=host.free_cpus + vcpus,
        free_ram_mb=host.free_ram_mb + count * request.ram_mb,
        slots=min(NO_LIMIT, host.slots + count),
    )


def _choices(
    existing: Mapping[str, int], number: int
) -> Iterator[Mapping[str, int]]:
    """Yield choices of how many members leave each host.

    Members of one host are alike, so only their number matters.
    """
    if number == sum(existing.values()):
        yield existing
        return
    smallest_first = sorted(existing, key=lambda name: (existing[name], name))
    ways = list(
        itertools.islice(
            _divisions(existing, smallest_first, number), MOST_CHOICES + 1
        )
    )
    if len(ways) <= MOST_CHOICES:
        yield from ways
        return
    yield from ways[:SOME_CHOICES]
    yield from itertools.islice(
        _divisions(existing, smallest_first[::-1], number), SOME_CHOICES
    )


def _divisions(
    existing: Mapping[str, int], names: Sequence[str], number: int
) -> Iterator[dict[str, int]]:
    """Yield ways to take members of hosts, most of the first host first."""
    if number == 0:
        yield {}
        return
    if not names or sum(existing[name] for name in names) < number:
        return
    first, *others = names
    for count in range(min(existing[first], number), -1, -1):
        for rest in _divisions(existing, others, number - count):
            yield {first: count, **rest} if count else rest
