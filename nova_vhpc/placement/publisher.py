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


"""HostTopology -> nested resource providers in Placement.

DESIGN.md section 4. One provider per uplink and one marker, all direct
children of the compute node's root provider. Of what Nova owns only the
trait ``CUSTOM_VHPC_HOST`` on the root is touched.
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
    :ivar reserved: providers of uplinks that are gone but still claimed;
        so are as many slots of their bridges' uplinks of now.
    :ivar writes: requests that may have changed something in Placement.
    """

    node: str
    providers: tuple[str, ...]
    reserved: tuple[str, ...]
    writes: int


class Publisher:
    """Makes the providers of one compute node look like its topology.

    :param names: names that the root provider may have, best first.
    :param root_uuid: its uuid, if known; then names do not matter.
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
        """Write what differs; nothing when nothing does.

        Uplinks that are gone are emptied, or reserved as long as somebody
        holds a claim on them. They are not deleted: nova-compute keeps the
        providers of its node in mind for minutes, asks for the allocations
        of each whenever a server comes or goes, and fails if one is missing.

        :param stamp: :func:`model.stamp` for the marker provider.
        :raises providers.NoRootError: when the compute node is not there yet.
        :raises PlacementError: when Placement is away or refuses.
        """
        before = self._client.writes
        root, node = self._node.root()
        children = self._children(node, root)
        wanted = _wanted(node, topology, stamp)
        # Before others come: a claim that stays may be one on their bridge.
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
        """Name of the compute node's root provider. Writes nothing.

        :raises providers.NoRootError: when the compute node is not there yet.
        :raises PlacementError: when Placement is away or refuses.
        """
        return self._node.root()[1]

    def _children(self, node: str, root: str) -> dict[str, str]:
        """Names of the root's children by uuid, with what was moved out.

        :class:`.withdrawal.Withdrawal` leaves our providers in a tree of
        their own for a while.
        """
        children = self._client.children(root)
        marker = model.marker_uuid(node)
        if marker not in children:
            for uuid, name in self._client.tree_of_root(marker).items():
                # The marker comes last: by it is seen that all are here.
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
        """Slots, by uplink, that guests with claims of vanished ones take.

        Where a bridge has several uplinks, those that have free slots first:
        on a full one they would take nothing away.

        :param held: by bridge, claims of uplinks that are gone. Their guests
            are still on the bridge, whatever its NIC is called now.
        """
        left = dict(held)
        bridges: dict[str, str] = {}
        slots: dict[str, int] = {}
        free: dict[str, int] = {}
        for uplink in topology.uplinks:
            if left.get(uplink.bridge):
                uuid = model.provider_uuid(node, uplink.bridge, uplink.nic)
                own = self._client.claims(uuid) if uuid in children else 0
                bridges[uuid] = uplink.bridge
                slots[uuid] = uplink.slots
                free[uuid] = max(0, uplink.slots - own)
        taken = dict.fromkeys(bridges, 0)
        for room in (free, slots):
            for uuid, bridge in bridges.items():
                more = min(room[uuid] - taken[uuid], left[bridge])
                taken[uuid] += more
                left[bridge] -= more
        return taken

    def _create(self, uuid: str, name: str, root: str) -> None:
        try:
            self._client.create(uuid, name, root)
        except api.ConflictError:
            # Made meanwhile by another agent process of this host, or it
            # stands below a root that was replaced: only the former is ok.
            if uuid not in self._client.children(root):
                raise


def _wanted(
    node: str,
    topology: model.HostTopology,
    stamp: int,
    taken: Mapping[str, int] = _NONE,
) -> dict[str, provider_tree.Wanted]:
    """Providers by uuid; the stamp comes last, when all else is written.

    :param taken: slots, by uplink, that are not to be given out.
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
