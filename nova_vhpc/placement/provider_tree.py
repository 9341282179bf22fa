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


"""Our resource providers of one compute node, and what is done to each.

What publishing and withdrawing share. Every write is made again from the
reading on while others write meanwhile.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tenacity

from nova_vhpc.placement import client as api
from nova_vhpc.topology import model

_OUR_TRAITS = ('CUSTOM_VHPC_', 'CUSTOM_PHYSNET_')
_ATTEMPTS = 10


class NoRootError(api.PlacementError):
    """nova-compute has not created the compute node's provider yet."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What a provider is to look like."""

    name: str
    inventories: Mapping[str, Mapping[str, Any]]
    traits: frozenset[str]


_BARE = Wanted('', {}, frozenset())


class Providers:
    """The compute node's provider and ours.

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
        self.names = tuple(names)
        self._root_uuid = root_uuid

    def root(self) -> tuple[str, str]:
        """Uuid and name of the compute node's provider.

        :raises NoRootError: when it is not there yet.
        """
        if self._root_uuid is not None:
            found = self._client.find_root(uuid=self._root_uuid)
            if found is not None:
                return found
            raise NoRootError(
                f'no resource provider {self._root_uuid} in Placement; has '
                f'nova-compute started on this host?'
            )
        for name in self.names:
            found = self._client.find_root(name=name)
            if found is not None:
                return found
        raise NoRootError(
            f'no resource provider named {" or ".join(self.names)} in '
            f'Placement; has nova-compute started on this host? If its '
            f'node has another name, set [vhpc_topology] node'
        )

    def sync(self, uuid: str, wanted: Wanted) -> None:
        """Write what differs; nothing when nothing does."""
        self._retry(self._sync, uuid, wanted)

    def empty(self, uuid: str) -> bool:
        """Leave a bare provider, or reserve all of it while it is claimed.

        :returns: whether it is bare.
        """
        if not self._client.in_use(uuid):
            try:
                self._retry(self._sync, uuid, _BARE)
            except api.ConflictError:
                # Claimed between the two calls.
                pass
            else:
                return True
        self._retry(self._reserve, uuid)
        return False

    def mark_root(self, root: str, present: bool) -> None:
        """Give the root provider our trait, or take it away."""
        self._retry(self._mark_root, root, present)

    def _sync(self, uuid: str, wanted: Wanted) -> None:
        generation, inventories = self._client.inventories(uuid)
        if not _same(inventories, wanted.inventories):
            self._client.put_inventories(uuid, generation, wanted.inventories)
        generation, traits = self._client.traits(uuid)
        foreign = {t for t in traits if not t.startswith(_OUR_TRAITS)}
        if traits != wanted.traits | foreign:
            self._client.put_traits(uuid, generation, wanted.traits | foreign)

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


def _same(
    found: Mapping[str, Mapping[str, Any]],
    wanted: Mapping[str, Mapping[str, Any]],
) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].get(field) == value
        for name, inventory in wanted.items()
        for field, value in inventory.items()
    )


def is_ours(node: str, uuid: str, name: str) -> bool:
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
