# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Check a host's uplinks against a network configuration.

The five network configurations are those of HPCVirt'09, section 4.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from nova_vhpc.scheduler.hosts.networks import Networks
from nova_vhpc.scheduler.planner.model import NO_LIMIT, Rail
from nova_vhpc.scheduler.sources.snapshot import UplinkState
from nova_vhpc.topology.model import BridgeKind

SHARED = BridgeKind.SHARED
SEPARATE = BridgeKind.SEPARATE

_NAMED = 4
"""Number of uplinks that a reason names at most: a host may have dozens."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """The uplinks that a member needs in one network configuration.

    :ivar kind: kind of the bridges that carry traffic between hosts; None
        if any kind serves.
    :ivar bridges: number of different bridges of that kind per member, or of
        different members of a bond that claims decide about.
    :ivar beside: kind of a further bridge that must exist, even with a dead
        link, because it carries the traffic of co-located peers; None
        without one.
    :ivar devices: whether a member gets PCI devices instead of uplinks.
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
"""Rule for flavors without a network configuration that have a minimum link
speed or a request group for an uplink."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """Whether a host's uplinks serve a rule.

    :ivar uplinks: uplinks that serve it, fastest first, even if all their
        slots are taken.
    :ivar reason: why the host does not serve it, for operators; None if it
        does.
    """

    uplinks: tuple[UplinkState, ...] = ()
    reason: str | None = None


def fit(
    rule: Rule,
    uplinks: Sequence[UplinkState],
    min_link_mbps: int | None,
    networks: Networks | None = None,
) -> Fit:
    """Return which of a host's uplinks serve a network configuration.

    :param uplinks: all uplinks of the host.
    :param min_link_mbps: least link speed in Mbit/s, None without one.
    :param networks: networks of the server, None if unknown: then any uplink
        serves.
    """
    # The integration bridge keeps the packets of peers on the host that are on
    # one tunneled network, or on one bond.
    peers_stay = (networks is not None and networks.uses_encap_ips) or any(
        uplink.bond for uplink in uplinks
    )
    if (
        rule.beside is not None
        and not peers_stay
        and not any(uplink.kind is rule.beside for uplink in uplinks)
    ):
        return Fit(
            reason=f'it has no {rule.beside} bridge for co-located peers; '
            + _bridges(uplinks)
        )
    if not rule.bridges:
        return Fit()
    fitting = []
    problems = []
    for uplink in uplinks:
        if rule.kind is not None and uplink.kind is not rule.kind:
            continue
        if not uplink.up:
            problems.append(
                f'{uplink} is held for guests that were on the bridge before '
                'its NIC or kind changed'
                if uplink.mbps
                else f'the link of {uplink} is down'
            )
        elif min_link_mbps and uplink.mbps < min_link_mbps:
            problems.append(
                f'{uplink} has a link of {uplink.mbps} Mbit/s, '
                f'vhpc:min_link_mbps asks for {min_link_mbps}'
            )
        elif networks is not None and (problem := networks.problem(uplink)):
            problems.append(problem)
        else:
            fitting.append(uplink)
    if len(fitting) < rule.bridges or (
        rule.bridges > 1 and len({u.path for u in fitting}) < rule.bridges
    ):
        return Fit(reason=_reason(rule, uplinks, fitting, problems))
    if len(fitting) > 1:
        fitting.sort(key=lambda uplink: -uplink.mbps)
    return Fit(tuple(fitting))


def members(rule: Rule, free: Iterable[tuple[str, int]]) -> int:
    """Return how many members the free slots serve at the same time.

    :param free: path and number of free slots of each uplink that serves
        the rule.
    """
    if not rule.bridges:
        return NO_LIMIT
    by_path: dict[str, int] = {}
    for path, slots in free:
        by_path[path] = by_path.get(path, 0) + slots
    total = sum(by_path.values())
    if rule.bridges == 1 or not by_path:
        return total
    # A member needs two different paths, so the slots of the fullest path can
    # be paired with those of other paths only.
    return min(total // 2, total - max(by_path.values()))


def free_rails(
    uplinks: Iterable[tuple[UplinkState, int]],
) -> tuple[Rail, ...]:
    """Return the rails of a host on which slots are free.

    :param uplinks: uplinks that serve a member, with their free slots.
    """
    rails: dict[str, Rail] = {}
    for uplink, slots in uplinks:
        if slots > 0:
            name = uplink.rail
            known = rails.get(name, Rail(name, 0, uplink.mbps))
            rails[name] = Rail(
                name, known.slots + slots, min(known.mbps, uplink.mbps)
            )
    return tuple(rails[name] for name in sorted(rails))


def taken(uplinks: Iterable[UplinkState]) -> str:
    """Return the reason that all slots of these uplinks are taken."""
    return listed(
        [f'{u} has {u.used} of {u.slots} slot(s) taken' for u in uplinks]
    )


def _reason(
    rule: Rule,
    uplinks: Sequence[UplinkState],
    fitting: Sequence[UplinkState],
    problems: Sequence[str],
) -> str:
    kind = 'uplinked' if rule.kind is None else str(rule.kind)
    if not problems:
        if rule.bridges > 1:
            bridges = len({uplink.path for uplink in fitting})
            return (
                f'it has {bridges} {kind} bridge(s), {rule.bridges} are '
                f'needed; {_bridges(uplinks)}'
            )
        return f'it has no {kind} bridge; {_bridges(uplinks)}'
    return listed(problems)


def _bridges(uplinks: Sequence[UplinkState]) -> str:
    if not uplinks:
        return 'its agent published no uplink at all'
    return 'published are ' + listed(
        [f'{uplink} ({uplink.kind})' for uplink in uplinks]
    )


def listed(parts: Sequence[str]) -> str:
    """Return the first parts of a reason, and how many more there are."""
    more = len(parts) - _NAMED
    text = ', '.join(parts[:_NAMED])
    return f'{text} and {more} more' if more > 0 else text
