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

from collections.abc import Iterable
from typing import NamedTuple

from nova_vhpc.control import defaults, model


class Claim(NamedTuple):
    """One VM's claim.

    :ivar weight: its ``cpu_shares``, of the whole VM.
    :ivar cpus: what it would use at most.
    """

    uuid: str
    weight: float
    cpus: float


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
