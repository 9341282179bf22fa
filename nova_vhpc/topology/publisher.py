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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tenacity

from nova_vhpc.topology import model
from nova_vhpc.topology import placement as api

_PLAIN = {'min_unit': 1, 'step_size': 1, 'allocation_ratio': 1.0}
_OUR_TRAITS = ('CUSTOM_VHPC_', 'CUSTOM_PHYSNET_')
_ATTEMPTS = 10
_NONE: Mapping[str, int] = {}


class NoRootError(api.PlacementError):
    """nova-compute has not created the compute node's provider yet."""


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Wanted:
    name: str
    inventories: Mapping[str, Mapping[str, Any]]
    traits: frozenset[str]


_BARE = _Wanted('', {}, frozenset())


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
        self._names = tuple(names)
        self._root_uuid = root_uuid

    def publish(self, topology: model.HostTopology, stamp: int) -> Published:
        """Write what differs; nothing when nothing does.

        Uplinks that are gone are emptied, or reserved as long as somebody
        holds a claim on them. They are not deleted: nova-compute keeps the
        providers of its node in mind for minutes, asks for the allocations
        of each whenever a server comes or goes, and fails if one is missing.

        :param stamp: :func:`model.stamp` for the marker provider.
        :raises NoRootError: when the compute node is not there yet.
        :raises PlacementError: when Placement is away or refuses.
        """
        before = self._client.writes
        root, node = self._root()
        children = self._client.children(root)
        wanted = _wanted(node, topology, stamp)
        # Before others come: a claim that stays may be one on their bridge.
        reserved = {
            name: uuid
            for uuid, name in sorted(children.items(), key=lambda c: c[1])
            if uuid not in wanted
            and _is_ours(node, uuid, name)
            and not self._empty(uuid)
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
            self._retry(self._sync, uuid, provider)
        self._retry(self._mark_root, root, True)
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

        :raises NoRootError: when the compute node is not there yet.
        :raises PlacementError: when Placement is away or refuses.
        """
        return self._root()[1]

    def withdraw(self) -> tuple[str, ...]:
        """Take everything of ours away from this compute node.

        Until nova-compute reads its providers again (by itself after
        ``[compute]resource_provider_association_refresh``, or restarted),
        it fails when servers come or go.

        :returns: names of providers that had to stay, as they are still
            claimed; they are reserved, so nobody can claim them anew.
        :raises PlacementError: as :meth:`publish` does.
        """
        try:
            root, node = self._root()
        except NoRootError:
            # Nova deletes the whole tree with the compute service.
            return ()
        self._retry(self._mark_root, root, False)
        return tuple(
            name
            for uuid, name in sorted(self._client.children(root).items())
            if _is_ours(node, uuid, name) and not self._remove(uuid)
        )

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

    def _root(self) -> tuple[str, str]:
        if self._root_uuid is not None:
            found = self._client.find_root(uuid=self._root_uuid)
            if found is not None:
                return found
            raise NoRootError(
                f'no resource provider {self._root_uuid} in Placement; has '
                f'nova-compute started on this host?'
            )
        for name in self._names:
            found = self._client.find_root(name=name)
            if found is not None:
                return found
        raise NoRootError(
            f'no resource provider named {" or ".join(self._names)} in '
            f'Placement; has nova-compute started on this host? If its '
            f'node has another name, set [vhpc_topology] node'
        )

    def _create(self, uuid: str, name: str, root: str) -> None:
        try:
            self._client.create(uuid, name, root)
        except api.ConflictError:
            # Made meanwhile by another agent process of this host, or it
            # stands below a root that was replaced: only the former is ok.
            if uuid not in self._client.children(root):
                raise

    def _sync(self, uuid: str, wanted: _Wanted) -> None:
        generation, inventories = self._client.inventories(uuid)
        if not _same(inventories, wanted.inventories):
            self._client.put_inventories(uuid, generation, wanted.inventories)
        generation, traits = self._client.traits(uuid)
        foreign = {t for t in traits if not t.startswith(_OUR_TRAITS)}
        if traits != wanted.traits | foreign:
            self._client.put_traits(uuid, generation, wanted.traits | foreign)

    def _empty(self, uuid: str) -> bool:
        """Leave a bare provider, or reserve all of it while it is claimed."""
        return self._give_up(
            uuid, lambda: self._retry(self._sync, uuid, _BARE)
        )

    def _remove(self, uuid: str) -> bool:
        """Delete a provider, or reserve all of it while it is claimed."""
        return self._give_up(uuid, lambda: self._client.delete(uuid))

    def _give_up(self, uuid: str, give_up: Callable[[], None]) -> bool:
        """Give a provider up, or reserve all of it while it is claimed.

        :returns: whether it was given up.
        """
        if not self._client.in_use(uuid):
            try:
                give_up()
            except api.ConflictError:
                # Claimed between the two calls.
                pass
            else:
                return True
        self._retry(self._reserve, uuid)
        return False

    def _reserve(self, uuid: str) -> None:
        generation, inventories = self._client.inventories(uuid)
        wanted = {
            name: {**inventory, 'reserved': inventory['total']}
            for name, inventory in inventories.items()
        }
        if wanted != inventories:
            self._client.put_inventories(uuid, generation, wanted)

    def _mark_root(self, root: str, present: bool) -> None:
        generation, traits = self._client.traits(root)
        ours = frozenset([model.TRAIT_HOST])
        wanted = traits | ours if present else traits - ours
        if wanted != traits:
            self._client.put_traits(root, generation, wanted)

    def _retry(self, call: Callable[..., None], *args: Any) -> None:
        """Do it again from the reading on while others write meanwhile."""
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(api.ConflictError),
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_random(0, 0.1),
            reraise=True,
        ):
            with attempt:
                call(*args)


def _wanted(
    node: str,
    topology: model.HostTopology,
    stamp: int,
    taken: Mapping[str, int] = _NONE,
) -> dict[str, _Wanted]:
    """Providers by uuid; the stamp comes last, when all else is written.

    :param taken: slots, by uplink, that are not to be given out.
    """
    wanted = {}
    for uplink in topology.uplinks:
        mbps = max(1, uplink.mbps)
        name = (node, uplink.bridge, uplink.nic)
        uuid = model.provider_uuid(*name)
        wanted[uuid] = _Wanted(
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
    wanted[model.marker_uuid(node)] = _Wanted(
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


def _same(
    found: Mapping[str, Mapping[str, Any]],
    wanted: Mapping[str, Mapping[str, Any]],
) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].get(field) == value
        for name, inventory in wanted.items()
        for field, value in inventory.items()
    )


def _is_ours(node: str, uuid: str, name: str) -> bool:
    """Whether we made a provider: by its name, and the uuid made of it."""
    if name == model.marker_name(node):
        return uuid == model.marker_uuid(node)
    head = model.marker_name(node) + ':'
    parts = name.removeprefix(head).split(':')
    return (
        name.startswith(head)
        and len(parts) == 2
        and uuid == model.provider_uuid(node, *parts)
    )
