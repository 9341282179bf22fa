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
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from nova_vhpc.control import defaults, model

Reach = frozenset[int] | None
"""CPUs that a VM can be on; None for all."""


class Claim(NamedTuple):
    """What a VM claims. Who claims the same gets the same.

    :ivar weight: its ``cpu_shares``, of the whole VM.
    :ivar cpus: what it would use at most.
    :ivar reach: the CPUs that it can be on; None for all.
    """

    weight: float
    cpus: float
    reach: Reach = None


Claims = Mapping[Claim, int]
"""How many VMs claim it. Most VMs are of a few flavors, so claims are few."""


def fair_cpus(claims: Claims, capacity: float) -> dict[Claim, float]:
    """Weighted max-min fair division of a host's CPUs.

    :param capacity: number of CPUs.
    :returns: CPUs of each VM with that claim; nobody gets more than it claims,
        and what one does not want goes to the others by weight.
    """
    if len(claims) == 1:
        # As of most VMs that have CPUs of their own.
        ((claim, vms),) = claims.items()
        if claim.cpus > 0 and claim.weight > 0:
            part = capacity * claim.weight / (claim.weight * vms)
            return {claim: min(claim.cpus, part)}
    open_claims = {
        claim: vms
        for claim, vms in claims.items()
        if claim.cpus > 0 and claim.weight > 0
    }
    given: dict[Claim, float] = {}
    left = capacity
    while open_claims:
        weights = sum(claim.weight * vms for claim, vms in open_claims.items())
        sated = [
            claim
            for claim in open_claims
            if claim.cpus <= left * claim.weight / weights
        ]
        if not sated:
            for claim in open_claims:
                given[claim] = left * claim.weight / weights
            break
        for claim in sated:
            given[claim] = claim.cpus
            left -= claim.cpus * open_claims.pop(claim)
    return given


def divide(
    claims: Claims,
    room: Callable[[Reach], float],
) -> dict[Claim, float]:
    """The same where some can be on a part of the CPUs only.

    What is short is divided first, among those who can be nowhere else.
    Exact where of two reaches one is within the other or they share no CPU.

    :param room: how many of the CPUs of a reach there are to divide.
    """
    # Those that are left.
    groups: dict[Reach, dict[Claim, int]] = {None: {}}
    for claim, vms in claims.items():
        if claim.cpus > 0 and claim.weight > 0:
            groups.setdefault(claim.reach, {})[claim] = vms
    if len(groups) == 1:
        return fair_cpus(groups[None], room(None))
    inside = _insides(groups)
    around: dict[Reach, list[Reach]] = {reach: [] for reach in groups}
    for reach, others in inside.items():
        for other in others:
            around[other].append(reach)
    left = {reach: room(reach) for reach in groups}
    given: dict[Claim, float] = {}
    found: dict[Reach, dict[Claim, float]] = {}
    levels: dict[Reach, float] = {}
    # Where somebody was served; all else is as it was.
    changed = dict.fromkeys(groups)
    while True:
        for reach in changed:
            those = groups[reach]
            if len(inside[reach]) > 1:
                those = {}
                for other in inside[reach]:
                    those |= groups[other]
            if those:
                found[reach] = fair_cpus(those, max(0.0, left[reach]))
                levels[reach] = _level(found[reach])
            else:
                levels.pop(reach, None)
        if not levels:
            return given
        tightest = min(levels, key=levels.__getitem__)
        served = found[tightest]
        given |= served
        if tightest is None:
            # All that were left, as each can be somewhere on the host.
            return given
        changed = {}
        for other in inside[tightest]:
            used = sum(
                served[claim] * vms for claim, vms in groups[other].items()
            )
            groups[other] = {}
            for reach in around[other]:
                left[reach] -= used
                changed[reach] = None


def _insides(reaches: Collection[Reach]) -> dict[Reach, list[Reach]]:
    """For each reach those that are within it, itself included."""
    sizes = {reach: len(reach) for reach in reaches if reach is not None}
    least = min(sizes.values())
    inside: dict[Reach, list[Reach]] = {None: list(reaches)}
    for reach, size in sizes.items():
        # Where all are of one size, as mostly, no pairs are compared.
        inside[reach] = (
            [reach]
            if size == least
            else [
                other
                for other, its_size in sizes.items()
                if other is reach or (its_size < size and other <= reach)
            ]
        )
    return inside


def _level(found: Mapping[Claim, float]) -> float:
    """What those have for their weight who would use more."""
    # Of one claim mostly: a generator for min() would take longer.
    level = math.inf
    for claim, cpus in found.items():
        if cpus < claim.cpus and cpus / claim.weight < level:
            level = cpus / claim.weight
    return level


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
