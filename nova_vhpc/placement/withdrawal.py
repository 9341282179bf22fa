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


"""Taking our resource providers of one compute node out of Placement.

nova-compute keeps the providers of its node's tree in mind, for 300 s unless
``[compute]resource_provider_association_refresh`` says otherwise. Whenever a
server comes or goes it asks for the allocations of each, and fails if one is
missing. After that time it reads the tree again, and forgets what is no
longer in it. So our providers leave the tree first, and are deleted later.
"""

import dataclasses
from collections.abc import Sequence

from nova_vhpc.placement import client as api
from nova_vhpc.placement import provider_tree
from nova_vhpc.topology import model


@dataclasses.dataclass(frozen=True, slots=True)
class Withdrawn:
    """What is left of our providers.

    :ivar moved: names of those that are bare and out of the tree; they can
        be deleted as soon as nova-compute has forgotten them.
    :ivar kept: names of those that are still claimed; they are reserved, so
        that nobody can claim them anew.
    """

    moved: tuple[str, ...]
    kept: tuple[str, ...]


class Withdrawal:
    """Takes away what :class:`.publisher.Publisher` made.

    The arguments are as there.
    """

    def __init__(
        self,
        client: api.PlacementClient,
        names: Sequence[str],
        root_uuid: str | None = None,
    ) -> None:
        self._client = client
        self._node = provider_tree.Providers(client, names, root_uuid)

    def move_out(self) -> Withdrawn:
        """Empty our providers and take them out of the compute node's tree.

        They go into one of their own, the marker's, in which they are found
        again: by :meth:`delete`, and by an agent that publishes again.
        nova-compute may run; it still finds those that it asks for.

        :raises PlacementError: when Placement is away or refuses.
        """
        try:
            root, node = self._node.root()
        except provider_tree.NoRootError:
            # Nova deletes the whole tree with the compute service.
            return Withdrawn(self._all_moved(), ())
        self._node.mark_root(root, False)
        marker = model.marker_uuid(node)
        ours = self._in_tree(root, node)
        bare = {uuid for uuid in ours if self._node.empty(uuid)}
        if marker in bare:
            self._client.move(marker, ours[marker], None)
        elif bare and not self._client.tree_of_root(marker):
            # An earlier call took it, and left others that were claimed.
            self._client.create(marker, model.marker_name(node), None)
        for uuid in bare - {marker}:
            self._client.move(uuid, ours[uuid], marker)
        return Withdrawn(
            self._all_moved(),
            tuple(sorted(ours[uuid] for uuid in ours.keys() - bare)),
        )

    def delete(self) -> tuple[str, ...]:
        """Delete what :meth:`move_out` has moved, of now or of earlier.

        :returns: names of those that are in the compute node's tree: still
            claimed, or put back by an agent that has run since.
        :raises PlacementError: when Placement is away or refuses.
        """
        for node in self._nodes():
            for uuid in self._moved(node):
                self._client.delete(uuid)
        try:
            return tuple(sorted(self._in_tree(*self._node.root()).values()))
        except provider_tree.NoRootError:
            return ()

    def _all_moved(self) -> tuple[str, ...]:
        return tuple(
            sorted(
                name
                for node in self._nodes()
                for name in self._moved(node).values()
            )
        )

    def _nodes(self) -> tuple[str, ...]:
        """Names that the compute node has, or may have had."""
        try:
            return (self._node.root()[1],)
        except provider_tree.NoRootError:
            return self._node.names

    def _in_tree(self, root: str, node: str) -> dict[str, str]:
        """Names of ours that are in the compute node's tree, by uuid."""
        return {
            uuid: name
            for uuid, name in self._client.children(root).items()
            if provider_tree.is_ours(node, uuid, name)
        }

    def _moved(self, node: str) -> dict[str, str]:
        """Names of ours that are out of the tree, by uuid; the root last."""
        tree = self._client.tree_of_root(model.marker_uuid(node))
        return {
            uuid: name
            for uuid, name in tree.items()
            if provider_tree.is_ours(node, uuid, name)
        }
