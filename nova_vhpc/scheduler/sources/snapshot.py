# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""All hosts' uplinks in Placement at one moment, as plain values.

Pure. :func:`parse` reads the answer to the bulk read that
:mod:`nova_vhpc.scheduler.sources.uplink_cache` makes.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nova_vhpc.scheduler.sources import neutron_uplink
from nova_vhpc.topology import model

BULK_READ = (
    f'/allocation_candidates?resources={model.STAMP}:1'
    f'&root_required={model.TRAIT_HOST}'
)
"""Path of the request that reads all uplinks at once. The answer has one
candidate per host with an agent, and its summaries contain every provider of
the host's tree, also those without free inventory."""

BULK_READ_VERSION = '1.36'

NAMES_READ_VERSION = '1.39'

_KINDS = frozenset({model.TRAIT_SHARED, model.TRAIT_SEPARATE})

_PHYSNET = model.physnet_trait('')

_OWN = ('VCPU', 'PCPU', 'MEMORY_MB', 'DISK_GB')

Names = Mapping[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class UplinkState:
    """One uplink as published in Placement.

    :ivar uuid: uuid of its resource provider.
    :ivar kind: whether its bridge is shared or for one guest.
    :ivar bridge: name of its bridge; the uuid if the name is unknown.
    :ivar nic: kernel name of its NIC; '?' if unknown.
    :ivar mbps: link speed in Mbit/s; 0 if the link is down or its speed was
        not published.
    :ivar slots: number of guests that may claim it; 0 if the link is down.
    :ivar used: number of claimed slots.
    :ivar physnets: traits of the physical networks that it is on; empty if
        unknown.
    :ivar tunnel: whether tunnels of OVN end at it.
    :ivar bond: whether it is a member of a bond of Open vSwitch that agents
        can steer.
    :ivar rail: subnet of its encap IP; empty if unknown.
    """

    uuid: str
    kind: model.BridgeKind
    bridge: str
    nic: str
    mbps: int
    slots: int
    used: int
    physnets: frozenset[str] = frozenset()
    tunnel: bool = False
    bond: bool = False
    rail: str = ''

    @property
    def up(self) -> bool:
        """Whether its link is up; all slots of a dead link are reserved."""
        return self.slots > 0

    @property
    def free(self) -> int:
        """Number of slots that can still be claimed."""
        return max(0, self.slots - self.used)

    @property
    def path(self) -> str:
        """What no two uplinks of one member may have in common.

        That is the bridge. But of a bond whose members are chosen by claims,
        each is a path of its own.
        """
        return f'{self.bridge}/{self.uuid}' if self.bond else self.bridge

    def __str__(self) -> str:
        return f'NIC {self.nic} on bridge {self.bridge}'


class Resource(NamedTuple):
    """One of a host's own resources (CPUs, RAM, disk) in Placement.

    :ivar capacity: amount that Placement allocates at most: the total
        without its reserved part, times the allocation ratio.
    :ivar used: amount that is allocated.
    """

    capacity: int
    used: int


@dataclasses.dataclass(frozen=True, slots=True)
class HostUplinks:
    """The uplinks of one host, and when its agent last published them.

    :ivar uplinks: uplinks in the order of bridge and NIC.
    :ivar stamp_minutes: time of the last publication, in minutes since the
        epoch; None if unknown.
    :ivar resources: CPUs, RAM and disk of the host itself, by resource class.
    :ivar neutron_uplinks: uplinks whose bandwidth Neutron has published, in
        the order of their names.
    """

    uplinks: tuple[UplinkState, ...] = ()
    stamp_minutes: int | None = None
    resources: Mapping[str, Resource] = dataclasses.field(default_factory=dict)
    neutron_uplinks: tuple[neutron_uplink.NeutronUplink, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The uplinks of all hosts at one moment.

    :ivar hosts: uplinks by the uuid of the compute node's root provider.
    :ivar taken_s: monotonic time at which the read began, in seconds.
    :ivar has_tunnels: whether tunnels of OVN end at an uplink of any host.
    """

    hosts: Mapping[str, HostUplinks]
    taken_s: float
    has_tunnels: bool = False


def parse(
    body: Mapping[str, Any], names: Names, taken_s: float = 0.0
) -> Snapshot:
    """Return the snapshot that an answer to :data:`BULK_READ` contains.

    :param body: decoded JSON body of ``GET /allocation_candidates``.
    :param names: bridge and NIC by the uuid of the uplink's provider; type of
        agent and device for Neutron's.
    :param taken_s: monotonic time at which the read began, in seconds.
    :raises AttributeError, KeyError, OverflowError, TypeError, ValueError:
        the body is no such answer.
    """
    uplinks: dict[str, list[UplinkState]] = {}
    stamps: dict[str, int] = {}
    own: dict[str, dict[str, Resource]] = {}
    of_neutron: dict[str, list[neutron_uplink.NeutronUplink]] = {}
    has_tunnels = False
    for uuid, summary in body['provider_summaries'].items():
        resources = summary['resources']
        root = summary['root_provider_uuid']
        if uuid == root:
            own[root] = {
                name: Resource(int(values['capacity']), int(values['used']))
                for name in _OWN
                if (values := resources.get(name)) is not None
            }
            continue
        stamp = resources.get(model.STAMP)
        if stamp is not None:
            # A node that was renamed keeps its old marker, which is dead.
            stamps[root] = max(stamps.get(root, 0), int(stamp['capacity']))
            uplinks.setdefault(root, [])
            continue
        uplink = resources.get(model.UPLINK)
        if uplink is None:
            published = neutron_uplink.of_summary(uuid, summary, names)
            if published is not None:
                of_neutron.setdefault(root, []).append(published)
            continue
        traits = summary['traits']
        if model.TRAIT_SEPARATE in traits:
            kind = model.BridgeKind.SEPARATE
        elif model.TRAIT_SHARED in traits:
            kind = model.BridgeKind.SHARED
        else:
            continue
        tunnel = model.TRAIT_TUNNEL in traits
        has_tunnels |= tunnel
        bridge, nic = names.get(uuid, (uuid, '?'))
        speed = resources.get(model.MBPS)
        uplinks.setdefault(root, []).append(
            UplinkState(
                uuid,
                kind,
                bridge,
                nic,
                0 if speed is None else int(speed['capacity']),
                int(uplink['capacity']),
                int(uplink['used']),
                frozenset([t for t in traits if t.startswith(_PHYSNET)]),
                tunnel,
                model.TRAIT_BOND in traits,
                (model.rail_of(traits) if tunnel else None) or '',
            )
        )
    return Snapshot(
        hosts={
            root: HostUplinks(
                tuple(sorted(of_host, key=_by_name)),
                stamps.get(root),
                own.get(root, {}),
                tuple(
                    sorted(
                        of_neutron.get(root, ()),
                        key=lambda uplink: (uplink.device, uplink.uuid),
                    )
                ),
            )
            for root, of_host in uplinks.items()
        },
        taken_s=taken_s,
        has_tunnels=has_tunnels,
    )


def parse_names(providers: Iterable[Mapping[str, Any]]) -> Names:
    """Return bridge and NIC by uuid, from the names of uplink providers.

    Of Neutron's providers, such as ``<node>:OVN Controller agent:br-hpc1``,
    return the type of agent and the device.

    :param providers: ``resource_providers`` in the answer to
        :func:`names_read`.
    """
    names: dict[str, tuple[str, str]] = {}
    for provider in providers:
        # A node's name may hold colons, a Linux interface's may not.
        parts = provider['name'].rsplit(':', 2)
        if len(parts) == 3:
            names[provider['uuid']] = (parts[1], parts[2])
    return names


def names_read(body: Mapping[str, Any], names: Names) -> str | None:
    """Return the path that reads the uplinks' names, None if all are known.

    Provider summaries contain no names. The path contains only those traits
    that Placement has: it refuses a request for others.

    :param body: answer to :data:`BULK_READ`.
    :param names: names that are known.
    """
    traits: set[str] = set()
    for uuid, summary in body['provider_summaries'].items():
        if uuid in names:
            continue
        resources = summary['resources']
        if model.UPLINK in resources:
            traits.update(_KINDS.intersection(summary['traits']))
        elif any(name in resources for name in neutron_uplink.DIRECTIONS):
            traits.update(
                trait
                for trait in summary['traits']
                if trait.startswith(neutron_uplink.VNIC_TYPE)
            )
    if not traits:
        return None
    return '/resource_providers?required=in:' + ','.join(sorted(traits))


def _by_name(uplink: UplinkState) -> tuple[str, str, str]:
    return (uplink.bridge, uplink.nic, uplink.uuid)
