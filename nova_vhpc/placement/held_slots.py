# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which slots of a host's uplinks must not be offered. Pure.

Servers keep their claims while an operator renames a NIC, lowers the number of
slots or changes the kind of a bridge. Their guests are still on the bridge, so
as many slots of it are held back until they are gone.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from nova_vhpc.topology import model


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """An uplink as it was published last.

    :ivar bridge: name of its bridge.
    :ivar nic: name of its NIC.
    :ivar claims: number of claimed slots.
    :ivar separate: whether its bridge was for one guest.
    """

    bridge: str
    nic: str
    claims: int = 0
    separate: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """An uplink as it is to be published.

    :ivar uplink: the uplink; its kind and slots are the earlier ones as long
        as a guest has its bridge for itself.
    :ivar reserved: number of slots that no server may claim.
    """

    uplink: model.Uplink
    reserved: int


def offers(
    uplinks: Sequence[model.Uplink], published: Collection[Published]
) -> list[Offer]:
    """Return how to publish the uplinks of a host.

    Free slots are reserved first, of links that are up before others. If there
    are not enough, claimed ones are reserved on every uplink of the bridge, so
    that none is offered when one of the servers leaves.

    :param uplinks: present uplinks.
    :param published: uplinks that were published, also vanished ones.
    """
    here: dict[str, list[model.Uplink]] = {}
    for uplink in uplinks:
        here.setdefault(uplink.bridge, []).append(uplink)
    present = {(uplink.bridge, uplink.nic) for uplink in uplinks}
    new_names = _new_names(here, published)
    own: dict[tuple[str, str], int] = {}
    moved: dict[str, int] = {}
    exclusive = set()
    for one in published:
        bridge = new_names.get(one.bridge, one.bridge)
        if (one.bridge, one.nic) in present:
            own[one.bridge, one.nic] = one.claims
        else:
            moved[bridge] = moved.get(bridge, 0) + one.claims
        if one.separate and one.claims:
            exclusive.add(bridge)
    found: list[Offer] = []
    for bridge, on_bridge in here.items():
        kind = on_bridge[0].kind
        if bridge in exclusive and kind is model.BridgeKind.SHARED:
            # Its guest was promised to be the only one.
            kind = model.BridgeKind.SEPARATE
            found += [
                Offer(dataclasses.replace(uplink, kind=kind, slots=1), 1)
                for uplink in on_bridge
            ]
        else:
            found += _on_bridge(on_bridge, own, moved.get(bridge, 0))
    return found


def _new_names(
    here: Mapping[str, Sequence[model.Uplink]],
    published: Iterable[Published],
) -> dict[str, str]:
    """Return the new name of each bridge that was renamed, by the old one.

    All NICs of the new bridge were on the old one, which is gone.

    :param here: uplinks by bridge.
    """
    nics: dict[str, set[str]] = {}
    for one in published:
        if one.bridge not in here:
            nics.setdefault(one.bridge, set()).add(one.nic)
    return {
        old: new
        for old, old_nics in nics.items()
        for new, uplinks in here.items()
        if {uplink.nic for uplink in uplinks} <= old_nics
    }


def _on_bridge(
    uplinks: Sequence[model.Uplink],
    own: Mapping[tuple[str, str], int],
    moved: int,
) -> list[Offer]:
    """Return how to publish the uplinks of one bridge.

    :param own: number of claims by bridge and NIC.
    :param moved: number of claims of NICs that are not there any more.
    """
    claims = [own.get((uplink.bridge, uplink.nic), 0) for uplink in uplinks]
    surplus = [
        max(0, claims[number] - uplink.slots)
        for number, uplink in enumerate(uplinks)
    ]
    total = moved + sum(surplus)
    held = total
    reserved = [0] * len(uplinks)
    numbers = sorted(range(len(uplinks)), key=lambda n: not uplinks[n].up)
    for number in numbers:
        free = max(0, uplinks[number].slots - claims[number])
        reserved[number] = min(free, held)
        held -= reserved[number]
    for number in numbers:
        # An uplink's own surplus keeps its slots from being offered anyway.
        others = min(held, total - surplus[number])
        reserved[number] = min(
            uplinks[number].slots, reserved[number] + others
        )
    return [
        Offer(uplink, reserved[number])
        for number, uplink in enumerate(uplinks)
    ]
