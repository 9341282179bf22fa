# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Remove nova-vhpc's resource providers of one compute node from Placement.

nova-compute caches the providers of its node's tree, for 300 s unless
``[compute]resource_provider_association_refresh`` differs. Whenever a server
comes or goes, it reads the allocations of each, and fails if a provider is
missing. After that time it reads the tree again and forgets providers that
have left it. Therefore ours are moved out of the tree first and deleted
later.
"""

import dataclasses
from collections.abc import Sequence

from nova_vhpc.placement import client as api
from nova_vhpc.placement import provider_tree
from nova_vhpc.topology import model


@dataclasses.dataclass(frozen=True, slots=True)
class Withdrawn:
    """Our providers after :meth:`Withdrawal.move_out`.

    :ivar moved: names of empty providers outside of the tree. They can be
        deleted once nova-compute has forgotten them.
    :ivar kept: names of providers that servers still claim. They are
        reserved, so that no further server can claim them.
    """

    moved: tuple[str, ...]
    kept: tuple[str, ...]


class Withdrawal:
    """Removes the providers that :class:`.publisher.Publisher` made.

    The parameters are those of that class.
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
        """Empty our providers and move them out of the compute node's tree.

        They move to a tree of their own below the marker, where
        :meth:`delete` and an agent that publishes again find them.
        nova-compute may be running: the providers that it has cached still
        exist.

        :raises PlacementError: Placement is not reachable or refuses.
        """
        try:
            root, node = self._node.root()
        except provider_tree.NoRootError:
            # Nova has deleted the whole tree with the compute service.
            return Withdrawn(self._all_moved(), ())
        self._node.mark_root(root, False)
        marker = model.marker_uuid(node)
        ours = self._in_tree(root, node)
        bare = {uuid for uuid in ours if self._node.empty(uuid)}
        if marker in bare:
            self._client.move(marker, ours[marker], None)
        elif bare and not self._client.tree_of_root(marker):
            # An earlier call moved the marker (deleted since) and kept
            # providers that were claimed then.
            self._client.create(marker, model.marker_name(node), None)
        for uuid in bare - {marker}:
            self._client.move(uuid, ours[uuid], marker)
        return Withdrawn(
            self._all_moved(),
            tuple(sorted(ours[uuid] for uuid in ours.keys() - bare)),
        )

    def delete(self) -> tuple[str, ...]:
        """Delete the providers that :meth:`move_out` has moved, also earlier.

        :returns: names of our providers that are in the compute node's tree:
            still claimed, or moved back by an agent that has run since.
        :raises PlacementError: Placement is not reachable or refuses.
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
        """Return the compute node's name, or the names it may have had."""
        try:
            return (self._node.root()[1],)
        except provider_tree.NoRootError:
            return self._node.names

    def _in_tree(self, root: str, node: str) -> dict[str, str]:
        """Return nova-vhpc's providers in the node's tree: names by UUID."""
        return {
            uuid: name
            for uuid, name in self._client.children(root).items()
            if provider_tree.is_ours(node, uuid, name)
        }

    def _moved(self, node: str) -> dict[str, str]:
        """Return nova-vhpc's providers outside of the node's tree.

        :returns: names by UUID; the root of their own tree last.
        """
        tree = self._client.tree_of_root(model.marker_uuid(node))
        return {
            uuid: name
            for uuid, name in tree.items()
            if provider_tree.is_ours(node, uuid, name)
        }
