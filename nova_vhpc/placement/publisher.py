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


"""Publish a host's topology as nested resource providers in Placement.

DESIGN.md section 4. There is one provider for each uplink and one marker,
all direct children of the compute node's root provider. Nova owns the root;
only its trait ``CUSTOM_VHPC_HOST`` is changed.
"""

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nova_vhpc.placement import client as api
from nova_vhpc.placement import provider_tree
from nova_vhpc.topology import model

_PLAIN = {'min_unit': 1, 'step_size': 1, 'allocation_ratio': 1.0}
_NONE: Mapping[str, int] = {}


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
        root, node = self._node.root()
        children = self._children(node, root)
        wanted = _wanted(node, topology, stamp)
        # Before the other providers are written: a remaining claim takes a
        # slot of the present uplinks of the same bridge.
        reserved = {
            name: uuid
            for uuid, name in sorted(children.items(), key=lambda c: c[1])
            if uuid not in wanted
            and provider_tree.is_ours(node, uuid, name)
            and not self._node.empty(uuid)
        }
        if reserved:
            held = collections.Counter[str]()
            for name, uuid in reserved.items():
                held[name.rsplit(':', 2)[1]] += self._client.claims(uuid)
            taken = self._taken(node, topology, children, held)
            wanted = _wanted(node, topology, stamp, taken)
        for uuid, provider in wanted.items():
            if uuid not in children:
                self._create(uuid, provider.name, root)
            self._node.sync(uuid, provider)
        self._node.mark_root(root, True)
        marker = model.marker_name(node)
        return Published(
            node=node,
            providers=tuple(
                sorted(p.name for p in wanted.values() if p.name != marker)
            ),
            reserved=tuple(reserved),
            writes=self._client.writes - before,
        )

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

    def _taken(
        self,
        node: str,
        topology: model.HostTopology,
        children: Collection[str],
        held: Mapping[str, int],
    ) -> dict[str, int]:
        """Return the slots, by uplink, to reserve for claims of vanished ones.

        If a bridge has several uplinks, free slots are reserved first:
        reserving a claimed slot keeps no further guest away.

        :param held: number of claims of vanished uplinks, by bridge. Their
            guests are still on the bridge, whatever its NIC is called now.
        """
        remaining = dict(held)
        bridges: dict[str, str] = {}
        slots: dict[str, int] = {}
        free: dict[str, int] = {}
        for uplink in topology.uplinks:
            if remaining.get(uplink.bridge):
                uuid = model.provider_uuid(node, uplink.bridge, uplink.nic)
                own = self._client.claims(uuid) if uuid in children else 0
                bridges[uuid] = uplink.bridge
                slots[uuid] = uplink.slots
                free[uuid] = max(0, uplink.slots - own)
        taken = dict.fromkeys(bridges, 0)
        for available in (free, slots):
            for uuid, bridge in bridges.items():
                more = min(available[uuid] - taken[uuid], remaining[bridge])
                taken[uuid] += more
                remaining[bridge] -= more
        return taken

    def _create(self, uuid: str, name: str, root: str) -> None:
        try:
            self._client.create(uuid, name, root)
        except api.ConflictError:
            # Another agent process of this host created it meanwhile, which
            # is fine; or it is below an earlier root, which is not.
            if uuid not in self._client.children(root):
                raise


def _wanted(
    node: str,
    topology: model.HostTopology,
    stamp: int,
    taken: Mapping[str, int] = _NONE,
) -> dict[str, provider_tree.Wanted]:
    """Return the wanted providers by UUID.

    The marker is last: its stamp is to be written after all else.

    :param taken: number of slots to reserve, by UUID of the uplink.
    """
    wanted = {}
    for uplink in topology.uplinks:
        mbps = max(1, uplink.mbps)
        name = (node, uplink.bridge, uplink.nic)
        uuid = model.provider_uuid(*name)
        wanted[uuid] = provider_tree.Wanted(
            model.provider_name(*name),
            {
                model.UPLINK: _inventory(
                    uplink.slots,
                    taken.get(uuid, 0) if uplink.up else uplink.slots,
                ),
                model.MBPS: _inventory(mbps, 0 if uplink.up else mbps),
            },
            _traits(uplink),
        )
    wanted[model.marker_uuid(node)] = provider_tree.Wanted(
        model.marker_name(node),
        {model.STAMP: _inventory(stamp)},
        frozenset(),
    )
    return wanted


def _inventory(total: int, reserved: int = 0) -> dict[str, Any]:
    return {
        **_PLAIN,
        'total': total,
        'max_unit': total,
        'reserved': reserved,
    }


def _traits(uplink: model.Uplink) -> frozenset[str]:
    separate = uplink.kind is model.BridgeKind.SEPARATE
    traits = {model.TRAIT_SEPARATE if separate else model.TRAIT_SHARED}
    if uplink.physnet is not None:
        traits.add(model.physnet_trait(uplink.physnet))
    if uplink.exported:
        traits.add(model.TRAIT_EXPORTED)
    return frozenset(traits)
