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


"""What the kernel's fair scheduler would give everyone, by weight."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nova_vhpc.control import defaults, model


class Claim(NamedTuple):
    """One VM's claim.

    :ivar weight: its ``cpu_shares``, of the whole VM.
    :ivar cpus: what it would use at most.
    :ivar reach: the CPUs that it can be on; None for all.
    """

    uuid: str
    weight: float
    cpus: float
    reach: frozenset[int] | None = None


def fair_cpus(claims: Iterable[Claim], capacity: float) -> dict[str, float]:
    """Weighted max-min fair division of a host's CPUs.

    :param capacity: number of CPUs.
    :returns: CPUs by uuid; nobody gets more than it claims, and what one
        does not want goes to the others by weight.
    """
    open_claims = {
        claim.uuid: claim
        for claim in claims
        if claim.cpus > 0 and claim.weight > 0
    }
    given: dict[str, float] = {}
    left = capacity
    while open_claims:
        weights = sum(claim.weight for claim in open_claims.values())
        sated = [
            claim
            for claim in open_claims.values()
            if claim.cpus <= left * claim.weight / weights
        ]
        if not sated:
            for uuid, claim in open_claims.items():
                given[uuid] = left * claim.weight / weights
            break
        for claim in sated:
            given[claim.uuid] = claim.cpus
            left -= claim.cpus
            del open_claims[claim.uuid]
    return given


def divide(
    claims: Iterable[Claim],
    room: Callable[[frozenset[int] | None], float],
) -> dict[str, float]:
    """The same where some can be on a part of the CPUs only.

    What is short is divided first, among those who can be nowhere else.
    Exact where of two reaches one is within the other or they share no CPU.

    :param room: how many of the CPUs of a reach there are to divide.
    """
    open_claims = [
        claim for claim in claims if claim.cpus > 0 and claim.weight > 0
    ]
    reaches = {claim.reach for claim in open_claims} | {None}
    if len(reaches) == 1:
        return fair_cpus(open_claims, room(None))
    left = {reach: room(reach) for reach in reaches}
    given: dict[str, float] = {}
    while open_claims:
        served: dict[str, float] = {}
        least = math.inf
        for reach in left:
            inside = [one for one in open_claims if _within(one, reach)]
            if not inside:
                continue
            found = fair_cpus(inside, max(0.0, left[reach]))
            level = min(
                (
                    found[one.uuid] / one.weight
                    for one in inside
                    if found[one.uuid] < one.cpus
                ),
                default=math.inf,
            )
            if level < least or not served:
                least, served = level, found
        for claim in open_claims:
            if claim.uuid not in served:
                continue
            given[claim.uuid] = served[claim.uuid]
            for reach in left:
                if _within(claim, reach):
                    left[reach] -= served[claim.uuid]
        open_claims = [one for one in open_claims if one.uuid not in given]
    return given


def _within(claim: Claim, reach: frozenset[int] | None) -> bool:
    return reach is None or (claim.reach is not None and claim.reach <= reach)


def shares(own: int | None, limits: model.ActuatorLimits) -> int:
    """A VM's own weight; where unknown, what it has by default."""
    if own is not None and own > 0:
        return max(limits.min_shares, min(limits.max_shares, own))
    if limits.min_shares < 2:
        return defaults.SHARES_V2
    return defaults.SHARES_V1


def weights_of(view: model.HostView) -> dict[str, int]:
    """Every VM's own weight, as nobody has touched it."""
    found = {
        vm.uuid: shares(vm.original.shares, view.limits) for vm in view.vms
    }
    found |= {vm.uuid: shares(vm.shares, view.limits) for vm in view.others}
    return found
