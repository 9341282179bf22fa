# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Publish a host's topology as nested resource providers in Placement.

There is one provider for each uplink and one marker, all direct children of
the compute node's root provider. Nova owns the root; only its trait
``CUSTOM_VHPC_HOST`` is changed.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from nova_vhpc.placement import client as api
from nova_vhpc.placement import held_slots, provider_tree
from nova_vhpc.topology import model

_PLAIN = {'min_unit': 1, 'step_size': 1, 'allocation_ratio': 1.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """Outcome of one publication.

    :ivar node: name of the compute node's root provider.
    :ivar providers: names of the uplinks' providers, sorted.
    :ivar reserved: names of providers of vanished uplinks that servers still
        claim. As many slots of the present uplinks of their bridges are
        reserved, too.
    :ivar writes: number of requests that may have changed something in
        Placement.
    """

    node: str
    providers: tuple[str, ...]
    reserved: tuple[str, ...]
    writes: int


class Publisher:
    """Makes the providers of one compute node match its topology.

    :param client: Placement client.
    :param names: names that the root provider may have, most likely first.
    :param root_uuid: UUID of the root provider if known; names are then
        ignored.
    """

    def __init__(
        self,
        client: api.PlacementClient,
        names: Sequence[str],
        root_uuid: str | None = None,
    ) -> None:
        self._client = client
        self._node = provider_tree.Providers(client, names, root_uuid)

    def publish(self, topology: model.HostTopology, stamp: int) -> Published:
        """Write to Placement what differs from the topology.

        Providers of vanished uplinks are emptied, or reserved while a server
        claims them. They are not deleted: nova-compute caches the providers
        of its node for minutes, reads the allocations of each whenever a
        server comes or goes, and fails if a provider is missing.

        :param topology: bridges and uplinks of this host.
        :param stamp: :func:`model.stamp` for the marker provider.
        :raises provider_tree.NoRootError: nova-compute has not created the
            compute node's provider yet.
        :raises PlacementError: Placement is not reachable or refuses.
        """
        before = self._client.writes
        retrying = provider_tree.retrying(provider_tree.ChangedError)
        published: Published = retrying(self._publish, topology, stamp)
        return dataclasses.replace(
            published, writes=self._client.writes - before
        )

    def _publish(self, topology: model.HostTopology, stamp: int) -> Published:
        """Publish once.

        :raises provider_tree.ChangedError: a server has claimed an uplink
            after the claims were read.
        """
        root, node = self._node.root()
        children = self._children(node, root)
        uplinks = {
            model.provider_uuid(node, uplink.bridge, uplink.nic): uplink
            for uplink in topology.uplinks
        }
        marker = model.marker_uuid(node)
        # Before the other providers are written: a remaining claim takes a
        # slot of the present uplinks of the same bridge.
        reserved = {
            name: uuid
            for uuid, name in sorted(children.items(), key=lambda c: c[1])
            if uuid not in uplinks
            and uuid != marker
            and provider_tree.is_ours(node, uuid, name)
            and not self._node.empty(uuid)
        }
        # Generations before claims: a claim in between is noticed.
        found = {
            uuid: self._client.inventories(uuid)
            for uuid in uplinks
            if uuid in children
        }
        published = self._published(
            node, root, children, uplinks, frozenset(reserved.values())
        )
        wanted = {
            model.provider_uuid(
                node, offer.uplink.bridge, offer.uplink.nic
            ): _wanted(node, offer)
            for offer in held_slots.offers(topology.uplinks, published)
        }
        for uuid in sorted(wanted, key=lambda u: _grows(wanted[u], found, u)):
            if uuid in found:
                self._node.write(uuid, wanted[uuid], *found[uuid])
            else:
                self._create(uuid, wanted[uuid].name, root)
                self._node.sync(uuid, wanted[uuid])
        self._node.mark_root(root, True)
        # Last: the stamp says that all else was written.
        if marker not in children:
            self._create(marker, model.marker_name(node), root)
        self._node.sync(
            marker,
            provider_tree.Wanted(
                model.marker_name(node),
                {model.STAMP: _inventory(stamp)},
                frozenset(),
            ),
        )
        return Published(
            node=node,
            providers=tuple(sorted(p.name for p in wanted.values())),
            reserved=tuple(reserved),
            writes=0,
        )

    def _published(
        self,
        node: str,
        root: str,
        children: Mapping[str, str],
        uplinks: Mapping[str, model.Uplink],
        reserved: frozenset[str],
    ) -> list[held_slots.Published]:
        """Return our uplinks in Placement, with claims where they matter.

        Claims of a present uplink matter if its bridge has several uplinks,
        or guests of vanished ones, or was for one guest.

        :param reserved: UUIDs of vanished uplinks with claims.
        """
        separate: frozenset[str] = frozenset()
        if any(
            uplink.kind is model.BridgeKind.SHARED
            for uplink in uplinks.values()
        ):
            separate = self._client.separate(root)
        on_bridge = collections.Counter(u.bridge for u in uplinks.values())
        published = []
        for uuid, name in children.items():
            if uuid == model.marker_uuid(node) or not provider_tree.is_ours(
                node, uuid, name
            ):
                continue
            bridge, nic = name.rsplit(':', 2)[1:]
            claims = 0
            if uuid in reserved | separate or (
                uuid in uplinks and (reserved or on_bridge[bridge] > 1)
            ):
                claims = self._client.claims(uuid)
            published.append(
                held_slots.Published(bridge, nic, claims, uuid in separate)
            )
        return published

    def node(self) -> str:
        """Return the name of the compute node's root provider.

        :raises provider_tree.NoRootError: nova-compute has not created the
            compute node's provider yet.
        :raises PlacementError: Placement is not reachable or refuses.
        """
        return self._node.root()[1]

    def _children(self, node: str, root: str) -> dict[str, str]:
        """Return the names of the root's children, by UUID.

        Providers that :class:`.withdrawal.Withdrawal` moved to a tree of
        their own are moved back first.
        """
        children = self._client.children(root)
        marker = model.marker_uuid(node)
        if marker not in children:
            for uuid, name in self._client.tree_of_root(marker).items():
                # The marker moves last: its place tells whether all moved.
                self._client.move(uuid, name, root)
                children[uuid] = name
        return children

    def _create(self, uuid: str, name: str, root: str) -> None:
        try:
            self._client.create(uuid, name, root)
        except api.ConflictError:
            # Another agent process of this host created it meanwhile, which
            # is fine; or it is below an earlier root, which is not.
            if uuid not in self._client.children(root):
                raise


def _wanted(node: str, offer: held_slots.Offer) -> provider_tree.Wanted:
    uplink = offer.uplink
    mbps = max(1, uplink.mbps)
    return provider_tree.Wanted(
        model.provider_name(node, uplink.bridge, uplink.nic),
        {
            model.UPLINK: _inventory(
                uplink.slots, offer.reserved if uplink.up else uplink.slots
            ),
            model.MBPS: _inventory(mbps, 0 if uplink.up else mbps),
        },
        traits(uplink),
    )


def _grows(
    wanted: provider_tree.Wanted,
    found: Mapping[str, tuple[int, Mapping[str, Any]]],
    uuid: str,
) -> bool:
    """Return whether an uplink will offer more slots than before.

    Such ones are written last: if publishing ends early, no slot is offered
    by two uplinks.
    """
    _, inventories = found.get(uuid, (0, {}))
    before, after = (
        slots['total'] - slots['reserved']
        for slots in (
            inventories.get(model.UPLINK, _inventory(0)),
            wanted.inventories[model.UPLINK],
        )
    )
    return bool(after > before)


def _inventory(total: int, reserved: int = 0) -> dict[str, Any]:
    return {
        **_PLAIN,
        'total': total,
        'max_unit': total,
        'reserved': reserved,
    }


def traits(uplink: model.Uplink) -> frozenset[str]:
    """Return the traits of an uplink's provider."""
    separate = uplink.kind is model.BridgeKind.SEPARATE
    names = {model.TRAIT_SEPARATE if separate else model.TRAIT_SHARED}
    names.update(model.physnet_trait(name) for name in uplink.physnets)
    if uplink.exported:
        names.add(model.TRAIT_EXPORTED)
    if uplink.encap_ip is not None:
        names.add(model.TRAIT_TUNNEL)
    if uplink.rail is not None:
        names.add(model.rail_trait(uplink.rail))
    if uplink.bond is not None:
        names.add(model.TRAIT_BOND)
    return frozenset(names)
