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

"""What each of the five network configurations asks of a host.

HPCVirt'09, section 4. Pure.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources.snapshot import UplinkState
from nova_vhpc.topology.model import BridgeKind

SHARED = BridgeKind.SHARED
SEPARATE = BridgeKind.SEPARATE

_NAMED = 4
"""Uplinks that a reason names at most; hosts may have dozens of ports."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """The uplinks of one network configuration.

    :ivar kind: kind of the bridges that carry traffic between hosts; None
        for none at all.
    :ivar bridges: how many different such bridges a member needs.
    :ivar beside: kind of a further bridge that must exist, whatever its
        link does: it carries the traffic of co-located peers.
    :ivar devices: whether the member takes PCI devices instead.
    """

    kind: BridgeKind | None
    bridges: int = 1
    beside: BridgeKind | None = None
    devices: bool = False


RULES = {
    'exported': Rule(None, bridges=0, devices=True),
    'shared': Rule(SHARED),
    'multiple-shared': Rule(SHARED, bridges=2),
    'separate': Rule(SEPARATE),
    'shared-separate': Rule(SEPARATE, beside=SHARED),
}

ANY = Rule(None)
"""For flavors that name a link speed or claim an uplink, but name no network
configuration."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """How far a host's uplinks serve a rule.

    :ivar uplinks: those that do, fastest first; all slots may be taken.
    :ivar reason: why the host cannot serve it, or None if it can.
    """

    uplinks: tuple[UplinkState, ...] = ()
    reason: str | None = None


def fit(
    rule: Rule,
    uplinks: Sequence[UplinkState],
    min_link_mbps: int | None,
) -> Fit:
    """Whether a host's bridges, NICs and links serve a configuration."""
    if rule.beside is not None and not any(
        uplink.kind is rule.beside for uplink in uplinks
    ):
        return Fit(
            reason=f'it has no {rule.beside} bridge for co-located peers; '
            + _bridges(uplinks)
        )
    if not rule.bridges:
        return Fit()
    good = []
    bad = []
    for uplink in uplinks:
        if rule.kind is not None and uplink.kind is not rule.kind:
            continue
        if not uplink.up:
            bad.append(
                f"{uplink} is held for the guest of the bridge's former NIC"
                if uplink.mbps
                else f'the link of {uplink} is down'
            )
        elif min_link_mbps and uplink.mbps < min_link_mbps:
            bad.append(
                f'{uplink} has a link of {uplink.mbps} Mbit/s, '
                f'vhpc:min_link_mbps asks for {min_link_mbps}'
            )
        else:
            good.append(uplink)
    if len(good) < rule.bridges or (
        rule.bridges > 1 and len({u.bridge for u in good}) < rule.bridges
    ):
        return Fit(reason=_reason(rule, uplinks, good, bad))
    if len(good) > 1:
        good.sort(key=lambda uplink: -uplink.mbps)
    return Fit(tuple(good))


def members(rule: Rule, free: Iterable[tuple[str, int]]) -> int:
    """Members whose uplinks the free slots can serve at the same time.

    :param free: bridge and free slots of every uplink that fits.
    """
    if not rule.bridges:
        return NO_LIMIT
    by_bridge: dict[str, int] = {}
    for bridge, slots in free:
        by_bridge[bridge] = by_bridge.get(bridge, 0) + slots
    total = sum(by_bridge.values())
    if rule.bridges == 1 or not by_bridge:
        return total
    # Pairs on two different bridges: the fullest may only pair with others.
    return min(total // 2, total - max(by_bridge.values()))


def taken(uplinks: Iterable[UplinkState]) -> str:
    """Reason: all slots of these uplinks are claimed."""
    return _listed(
        [f'{u} has {u.used} of {u.slots} slot(s) taken' for u in uplinks]
    )


def _reason(
    rule: Rule,
    uplinks: Sequence[UplinkState],
    good: Sequence[UplinkState],
    bad: Sequence[str],
) -> str:
    kind = 'uplinked' if rule.kind is None else str(rule.kind)
    if not bad:
        if rule.bridges > 1:
            has = len({uplink.bridge for uplink in good})
            return (
                f'it has {has} {kind} bridge(s), {rule.bridges} are '
                f'needed; {_bridges(uplinks)}'
            )
        return f'it has no {kind} bridge; {_bridges(uplinks)}'
    return _listed(bad)


def _bridges(uplinks: Sequence[UplinkState]) -> str:
    if not uplinks:
        return 'its agent published no uplink at all'
    return 'published are ' + _listed(
        [f'{uplink} ({uplink.kind})' for uplink in uplinks]
    )


def _listed(parts: Sequence[str]) -> str:
    more = len(parts) - _NAMED
    text = ', '.join(parts[:_NAMED])
    return f'{text} and {more} more' if more > 0 else text
